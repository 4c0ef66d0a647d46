"""Who decides that a batch is already in the table: this check, from the ledger.

It covers half-written seeds, old backups put back, two runners and lost metadata, because all of them show as a batch
that does not start where the last entry ended.
"""

from __future__ import annotations

from enum import Enum

from penstock.engine.protocol import position
from penstock.engine.protocol.entry import Entry
from penstock.errors import ChainBroken, Fenced


class Verdict(Enum):
    WRITE = "write"
    RETRY = "retry"
    """The rows are in the table already: skip that write and complete the rest of the batch."""


def check(last: Entry, generation: int, batch: int, before: tuple[str, ...], after: tuple[str, ...]) -> Verdict:
    """May batch `batch` of `generation`, which covers before..after, be written after the entry `last`?"""
    if last.generation > generation:
        raise Fenced(
            f"generation {generation} was replaced by generation {last.generation} ({last.kind})",
            where=last.table,
            hint="the table goes on from its ledger by itself",
        )
    if last.generation == generation:
        if (
            batch == last.batch
            and _same(after, last.after)
            and _same(_filled(before, after), _filled(last.before, after))
        ):
            return Verdict.RETRY
        if batch == last.batch + 1 and _same(before, last.after):
            return Verdict.WRITE
    raise ChainBroken(
        f"batch {batch} of generation {generation} reads {_describe(before, after)}, but the ledger ends with batch "
        f"{last.batch} of generation {last.generation} at {', '.join(last.after)}",
        where=last.table,
        hint="nothing was written. Start again: the checkpoint is then compared with the ledger. If this comes back, "
        "another process writes to the table or its checkpoint",
    )


def _filled(before: tuple[str, ...], after: tuple[str, ...]) -> tuple[str, ...]:
    """A healed checkpoint names the partitions that were new in its last batch; the ledger has Spark's own text."""
    return tuple(map(position.filled, before, after))


def _same(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return len(one) == len(other) and all(position.same(a, b) for a, b in zip(one, other, strict=True))


def _describe(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    return "; ".join(position.difference(a, b) for a, b in zip(before, after, strict=False))
