"""What a table was at an earlier version: its position, its counts, and until when it was that."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.protocol.entry import Counts, Entry
from penstock.engine.protocol.ledger import Tail, standing
from penstock.engine.protocol.log import Commit, DeltaLog, Origin
from penstock.errors import UsageError


@dataclass(frozen=True)
class Then:
    version: int
    entry: Entry
    """The last one up to that version."""
    counts: Counts
    until_ms: int
    """When the first commit after that was made: what lies beside the table goes back to before then."""
    undone: tuple[Commit, ...]
    """The commits after it."""


def then_at(log: DeltaLog, tail: Tail, version: int) -> Then:
    """UsageError where the table cannot go back to that version, with the reason. `tail` knows what became of the rows
    of its last batch."""
    found = entry_at(log, version)
    undone = tuple(log.since(version))
    _refuse(log, tail, version, found, undone)
    assert found is not None and found.entry is not None
    later = (found.version + 1 + n for n in range(tail.version - found.version))
    commits = (commit for one in later if (commit := log.commit(one)) is not None)
    after = next((one for one in commits if one.origin is Origin.LEDGER and one.entry is not None), None)
    if after is None or after.entry is None:
        return Then(version, found.entry, tail.counts, undone[0].timestamp_ms, undone)
    return Then(version, found.entry, after.entry.counts, after.timestamp_ms, undone)


def entry_at(log: DeltaLog, version: int) -> Commit | None:
    """What was opened and had not become anything yet has changed no row: the entry before it counts."""
    while version >= 0:
        commit = log.commit(version)
        if commit is None:
            return None
        entry = commit.entry if commit.origin is Origin.LEDGER else None
        if entry is not None and not (entry.kind == "open" and entry.pending):
            return standing(log, commit)
        version -= 1
    return None


def _refuse(log: DeltaLog, tail: Tail, version: int, found: Commit | None, undone: tuple[Commit, ...]) -> None:
    table, see = log.table, f"`penstock history {log.table}` shows its versions"
    if version > tail.version:
        raise UsageError(f"{table} has no version {version}: its newest is {tail.version}", hint=see)
    if found is None:
        raise UsageError(
            f"the log of {table} does not reach back to where it was at version {version}",
            hint=f"`penstock replay {table}` makes it anew from its source",
        )
    if not any(one.origin is not Origin.MAINTENANCE for one in undone):
        raise UsageError(f"{table} is as it was at version {version}: there is nothing to undo", hint=see)
    forgotten = [one.version for one in undone if one.entry is not None and one.entry.kind == "forget"]
    if forgotten:
        raise UsageError(
            f"somebody was forgotten in version {forgotten[-1]} of {table}: it cannot go back to before that",
            hint=f"version {forgotten[-1]} is the oldest that it can go back to; or `penstock replay {table}`",
        )
