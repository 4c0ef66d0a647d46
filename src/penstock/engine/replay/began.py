"""Where a table began to read. Every entry carries it; older ledgers say it only in their first one."""

from __future__ import annotations

from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.log import DeltaLog
from penstock.errors import Terminal


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
