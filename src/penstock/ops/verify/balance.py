"""Whether the numbers of the ledger add up, and are those of the tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from penstock.engine.protocol.checkpoint import folder_of
from penstock.engine.protocol.fates import (
    BATCHES,
    CONFLICTS,
    DROPPED,
    DUPLICATES,
    FORGOTTEN,
    READ,
    REJECTED,
    RESHAPED,
    SUPERSEDED,
    read_fates,
)
from penstock.ops.verify.chain import Chain
from penstock.ops.verify.conserved import Conserved
from penstock.ops.verify.look import Look
from penstock.plan.stages import Stages


def conserved(look: Look, chain: Chain) -> Conserved:
    tail, table = look.tail, look.table
    last = read_fates(look.store, folder_of(table.checkpoints, tail.entry), tail.entry.batch)
    counts = replace(tail, fates=last).counts
    fates = counts.fates
    return Conserved(
        read=fates.get(READ, 0),
        reshaped=fates.get(RESHAPED, 0),
        written=counts.total,
        rejected=fates.get(REJECTED, 0),
        dropped=fates.get(DROPPED, 0),
        duplicates=fates.get(DUPLICATES, 0),
        superseded=fates.get(SUPERSEDED, 0),
        forgotten=fates.get(FORGOTTEN, 0),
        conflicts=fates.get(CONFLICTS, 0),
        uncounted=max(0, chain.batches - fates.get(BATCHES, 0)) if chain.from_genesis else 0,
    )


def unbalanced(look: Look, one: Conserved, rows: int, quarantined: int, earlier: int) -> Iterator[str]:
    """What does not add up. `rows` and `quarantined` are what the two tables hold, `earlier` the rows that were there
    before the ledger."""
    stages = look.table.stages or Stages("")
    if one.uncounted:
        return
    if stages.dedupe is None and one.duplicates:
        yield f"{one.read:,} rows were read, and {one.duplicates:,} of those that passed were not written"
    merge = look.table.write.merge
    deletes_unread = merge is not None and (merge.truncate is not None or merge.snapshot is not None)
    if one.duplicates < 0 or (one.superseded < 0 and not deletes_unread):  # as ledgers of before have counted them
        yield f"{-min(one.duplicates, one.superseded):,} rows more were written than had passed"
    if quarantined > one.rejected or (stages.transform is None and quarantined < one.rejected):
        yield f"{one.rejected:,} rows were rejected, the quarantine holds {quarantined:,}"
    if rows != one.written + earlier and look.table.write.merge is None:
        yield f"{one.written:,} rows were written, the table holds {rows - earlier:,}"
