"""What a ledger still owes: an unfinished replay or rewind, where the table began, and when somebody was last
erased."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import Terminal

if TYPE_CHECKING:
    from penstock.ledger.delta_log import Commit, DeltaLog
    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Offsets

# Where a table began to read. Every entry carries it; older ledgers say it only in their first one.


def began_of(log: DeltaLog, entry: Entry) -> tuple[str, ...]:
    if entry.began:
        return entry.began
    first: Entry | None = None
    for commit in log.backwards():
        if commit.entry is not None:
            first = commit.entry
    if first is None or first.kind != "genesis" or dict(first.subscription) != dict(entry.subscription):
        raise Terminal(
            "where it began to read is no longer in its log, or it has read another source before: what it was made of "
            "cannot be told",
            where=log.table,
            hint="begin anew: `penstock checkpoints reset` to a position of your choice",
        )
    return first.after


# What a generation that was opened for a replay still owes. It stands in the ledger, so that whoever starts the table
# next can finish it.


_REPLAY, _SETTLE = "replay", "settle"


@dataclass(frozen=True)
class Replay:
    """Its end is the position at which the generation was opened."""

    since: int
    """The generation before it, which counts until the table is filled."""
    position: tuple[str, ...]
    """Where the table was then."""
    at: int | None = None
    """The version of the table upstream that is read; None: what the table had read of it."""


def document(replay: Replay) -> dict[str, Any]:
    return {_REPLAY: {"since": replay.since, "position": list(replay.position), "at": replay.at}}


def pending_replay(entry: Entry) -> Replay | None:
    """None if nothing is owed."""
    asked = entry.pending.get(_REPLAY)
    return None if asked is None else Replay(asked["since"], tuple(asked["position"]), asked.get("at"))


def settling(kept: str | None, held: Offsets | None) -> dict[str, Any]:
    """What a fill itself owes: its quarantine still has rejected rows from before. `kept` is a condition upon those
    that stay: of records from before `held`."""
    return {_SETTLE: {"kept": kept, "held": held}}


def held_of(entry: Entry) -> Offsets | None:
    """Of a fill: the first offsets that it read; None if those are where the table began."""
    held = entry.pending.get(_SETTLE, {}).get("held")
    return None if held is None else {topic: {int(p): o for p, o in parts.items()} for topic, parts in held.items()}


def owes_settling(entry: Entry) -> bool:
    return _SETTLE in entry.pending


def kept_of(entry: Entry) -> str | None:
    kept = entry.pending[_SETTLE]["kept"]
    return None if kept is None else str(kept)


# What is owed because of a rewind. It stands in the ledgers, so that whoever starts a table next can finish it.
#
# The table itself owes its rows of then. A table that reads it, and had not read beyond that version, is stopped
# before and owes a jump: over the versions whose rows are gone, which a stream would read all the same.


_REWIND, _HALT, _UNTIL = "rewind", "halt", "until"


@dataclass(frozen=True)
class Rewind:
    version: int
    since: int
    """The generation before it, which counts until the table is back."""
    position: tuple[str, ...]
    """Where the table was."""


@dataclass(frozen=True)
class Halt:
    """Of a reader: it waits for the table that it reads to go back."""

    seen: int
    """The newest version of that table when the reader was stopped."""


@dataclass(frozen=True)
class Until:
    """Of a reader: it reads up to one position, and goes on at another."""

    at: str
    to: str
    base: int
    """The version of the table upstream from which on its rows count as made of."""


def rewind_document(rewind: Rewind) -> dict[str, Any]:
    return {_REWIND: {"version": rewind.version, "since": rewind.since, "position": list(rewind.position)}}


def pending_rewind(entry: Entry) -> Rewind | None:
    asked = entry.pending.get(_REWIND)
    return None if asked is None else Rewind(asked["version"], asked["since"], tuple(asked["position"]))


def halt_document(halt: Halt) -> dict[str, Any]:
    return {_HALT: {"seen": halt.seen}}


def pending_halt(entry: Entry) -> Halt | None:
    asked = entry.pending.get(_HALT)
    return None if asked is None else Halt(asked["seen"])


def until_document(until: Until) -> dict[str, Any]:
    return {_UNTIL: {"at": until.at, "to": until.to, "base": until.base}}


def pending_until(entry: Entry) -> Until | None:
    asked = entry.pending.get(_UNTIL)
    return None if asked is None else Until(asked["at"], asked["to"], asked["base"])


def owes_jump(entry: Entry) -> bool:
    return _HALT in entry.pending or _UNTIL in entry.pending


# Versions of a table from before somebody was forgotten: nothing reads them any more, nothing goes back to them.


def forgets(commit: Commit) -> bool:
    """Whether rows of somebody went with it."""
    return commit.entry is not None and commit.entry.kind == "forget" and commit.changes


def forgotten_since(log: DeltaLog) -> int | None:
    """The newest version in which somebody was forgotten; no version before it can be gone back to. None: nobody was,
    as far as the log goes back."""
    return next((commit.version for commit in log.backwards() if forgets(commit)), None)


def forgotten_after(log: DeltaLog, version: int) -> int | None:
    """The first version after this one in which somebody was forgotten."""
    return next((commit.version for commit in log.since(version) if forgets(commit)), None)
