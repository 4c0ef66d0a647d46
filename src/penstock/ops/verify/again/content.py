"""What a table holds at a version: the rows of which entry, and what else had a hand in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.engine.protocol.entry import BESIDE, Entry
from penstock.engine.protocol.log import Commit, DeltaLog, Origin
from penstock.ops.verify.positions import same


@dataclass
class Content:
    entry: Entry | None = None
    """The last batch or fill: what the table holds was made of its source up to this one's position. None if there was
    none yet: the table should hold nothing."""
    known: bool = True
    """False if the log no longer has that entry."""
    at_once: bool = False
    """That entry made all rows of the table."""
    from_start: bool = False
    """Every entry that had a part in what it holds is in `made`."""
    made: list[Entry] = field(default_factory=list)
    """Those entries, newest first."""
    excuses: list[str] = field(default_factory=list)
    """Why rows of it may rightly be others than a query of now gives."""


def content_at(log: DeltaLog, version: int, definition: str, *, every_batch_anew: bool = False) -> Content:
    found = Content()
    for commit in _backwards(log, version):
        if commit.operation == "RESTORE":  # to a time, not to a version: nobody knows which
            break
        entry = commit.entry if commit.origin is Origin.LEDGER else None
        if entry is None:
            continue
        if entry.kind == "forget":
            if commit.changes:
                found.excuses.append(f"version {commit.version} ({entry.kind}) changed rows of it beside its batches")
            continue
        if entry.kind == "genesis" or _emptied(commit, entry):
            _follow(found, entry)
            found.from_start = True
            return found
        if not _makes_rows(entry) or (found.entry is not None and entry.key == found.entry.key):
            continue
        _follow(found, entry)
        last = found.entry is None
        found.entry = found.entry or entry
        found.made.append(entry)
        if entry.pins.definition != definition:
            found.excuses.append(
                f"version {commit.version} was made by another definition ({entry.pins.definition}, now {definition})"
            )
        overwritten = commit.changes and commit.operation == "WRITE"
        filled = entry.kind != "batch" and entry.batch == 0
        if filled or every_batch_anew or overwritten:
            found.at_once, found.from_start = last, True
            return found
    found.known = found.entry is not None
    return found


def _backwards(log: DeltaLog, version: int) -> Iterator[Commit]:
    """From a version back to the first that the log still has; a RESTORE leads on from where it went back to."""
    while version >= 0 and (commit := log.commit(version)) is not None:
        if commit.restored_to is not None:
            version = min(commit.restored_to, version - 1)
            continue
        yield commit
        version -= 1


def _makes_rows(entry: Entry) -> bool:
    """A carry says again what a batch or a fill had said, which log retention may have taken."""
    if entry.kind in BESIDE:
        filled = entry.filled is not None and entry.filled[0] == entry.generation
        return entry.kind == "carry" and (entry.batch > 0 or filled)
    return entry.kind in ("batch", "fill")


def _emptied(commit: Commit, entry: Entry) -> bool:
    return entry.kind == "open" and (commit.changes or (bool(entry.began) and entry.began == entry.after))


def _follow(found: Content, older: Entry) -> None:
    """Between two entries that made rows the position must not have moved."""
    if found.made and not same(found.made[-1].before, older.after):
        newer = found.made[-1]
        found.excuses.append(
            f"its position was moved by hand before batch {newer.generation}.{newer.batch}: what was skipped is not in "
            "its numbers"
        )
