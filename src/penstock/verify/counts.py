"""Whether the numbers of the ledger add up and match the tables; if not, in which batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.ledger.checkpoint import checkpoint_folder
from penstock.ledger.delta_log import DeltaLog, Origin
from penstock.ledger.position import Range
from penstock.ledger.row_counts import BATCHES, REJECTED, read_row_counts, row_balance
from penstock.plan.quarantine import quarantine_of
from penstock.plan.stages import Stages
from penstock.storage.delta_rows import query
from penstock.verify.upstream import arrivals

if TYPE_CHECKING:
    from penstock.ledger.entry import Entry
    from penstock.ledger.row_counts import RowBalance
    from penstock.ledger.spans import Spans
    from penstock.verify.context import VerifyContext
    from penstock.verify.coordinates import Coordinates, Key
    from penstock.verify.ledger_walk import Chain
    from penstock.verify.upstream import Arrival


def conserved(context: VerifyContext, chain: Chain) -> RowBalance:
    counts = replace(context.head, row_counts=_last_counts(context)).counts
    return row_balance(counts.row_counts, counts.total, batches=chain.batches if chain.from_genesis else None)


def describe_imbalance(
    context: VerifyContext, counts: RowBalance, rows: int, quarantined: int, earlier: int
) -> Iterator[str]:
    """Describe what does not add up. `rows` and `quarantined` are what the two tables hold, `earlier` the rows that
    were there before the ledger."""
    stages = context.table.stages or Stages("")
    if counts.uncounted:
        return
    if counts.unexplained:
        yield f"{counts.description} does not add up: {counts.unexplained:,} rows are not accounted for"
    if stages.dedupe is None and counts.duplicates:
        yield f"{counts.read:,} rows were read, and {counts.duplicates:,} of those that passed were not written"
    merge = context.table.write.merge
    deletes_unread = merge is not None and (merge.truncate is not None or merge.snapshot is not None)
    if counts.duplicates < 0 or (counts.superseded < 0 and not deletes_unread):  # as older ledgers counted them
        yield f"{-min(counts.duplicates, counts.superseded):,} rows more were written than had passed"
    if quarantined > counts.rejected or (stages.transform is None and quarantined < counts.rejected):
        yield f"{counts.rejected:,} rows were rejected, the quarantine holds {quarantined:,}"
    if rows != counts.written + earlier and context.table.write.merge is None:
        yield f"{counts.written:,} rows were written, the table holds {rows - earlier:,}"


# Finding the batch of a wrong number: the rows that each batch wrote and rejected against those that are there.


_SHOWN = 6


def wrong_batches(context: VerifyContext, coordinates: Coordinates) -> Iterator[str]:
    """Describe batches that wrote another number of rows than the table has of them. Every row must have the
    coordinates of one record. Yields nothing if the ledgers do not tell in which batch a record arrived."""
    table = context.table
    if table.stages is not None and table.stages.transform is not None:
        return
    try:
        record_arrivals = arrivals(table, context.tables, context.store)
    except PenstockError:
        return
    by_version: dict[int, list[Arrival]] = {}
    for arrival in record_arrivals:
        by_version.setdefault(arrival.number, []).append(arrival)
    present = {key: _PartitionCounter(coordinates, key) for key in coordinates.present}
    log = DeltaLog(context.store, table.uri, table.name)
    for version, batch_arrivals in by_version.items():
        if version > context.head.version or (commit := log.commit(version)) is None or commit.entry is None:
            continue
        actual_rows = sum(
            present[key].between(arrival.start, arrival.end)
            for arrival in batch_arrivals
            if (key := (arrival.topic, arrival.partition)) in present
        )
        if actual_rows != commit.rows:
            yield (
                f"batch {commit.entry.generation}.{commit.entry.batch} (version {version}) wrote {commit.rows:,} rows, "
                f"the table has {actual_rows:,} of its records: {_ranges(batch_arrivals)}"
            )


def wrong_rejects(context: VerifyContext) -> Iterator[str]:
    """Describe batches that have more or fewer rows in quarantine than they rejected."""
    table, entry = context.table, context.head.entry
    quarantine = quarantine_of(table.name, table.uri)
    batches = list(_rejected_counts(context))
    reshaped = table.stages is not None and table.stages.transform is not None
    if not batches or not context.store.names(f"{quarantine.uri}/_delta_log"):
        return
    counts = query(quarantine.uri, None, "SELECT generation, batch, count(*) FROM rows GROUP BY 1, 2")
    quarantined = {(int(generation), int(batch)): int(rows) for generation, batch, rows in counts}
    for batch_entry, version, rejected in batches:
        if batch_entry.key > entry.key:
            continue
        quarantined_rows = quarantined.get(batch_entry.key, 0)
        # Of several rejected rows that a transform made of one record, the quarantine has that record once.
        if quarantined_rows > rejected or (quarantined_rows < rejected and not reshaped):
            yield (
                f"batch {batch_entry.generation}.{batch_entry.batch} (version {version}) rejected {rejected:,} rows, "
                f"the quarantine has {quarantined_rows:,} of them"
            )


def _rejected_counts(context: VerifyContext) -> Iterator[tuple[Entry, int, int]]:
    """Each batch of the last generation, its version and how many rows it rejected: the difference between the next
    entry's count and its own. Yields nothing if rows have left the quarantine since."""
    log = DeltaLog(context.store, context.table.uri, context.table.name)
    entries: list[tuple[int, Entry]] = []
    for version in log.versions():
        commit = log.commit(version)
        if commit is None or commit.entry is None or commit.origin is not Origin.LEDGER:
            continue
        if commit.entry.kind in ("redrive", "forget", "fill", "rewind", "open"):
            return
        if version <= context.head.version and (not entries or entries[-1][1].key != commit.entry.key):
            entries.append((version, commit.entry))
    for number, (version, entry) in enumerate(entries):
        if entry.kind != "batch":
            continue
        if number + 1 < len(entries):
            before, after = entry.counts.row_counts, entries[number + 1][1].counts.row_counts
        else:
            before, after = {}, _last_counts(context)
        if after.get(BATCHES, 0) - before.get(BATCHES, 0) == 1:
            yield entry, version, after.get(REJECTED, 0) - before.get(REJECTED, 0)


def _last_counts(context: VerifyContext) -> Mapping[str, int]:
    """What became of the rows of the last batch."""
    entry = context.head.entry
    return read_row_counts(context.store, checkpoint_folder(context.table.checkpoints, entry), entry.batch)


def _ranges(batch_arrivals: list[Arrival]) -> str:
    texts = [
        str(Range(arrival.topic, arrival.partition, arrival.start, arrival.end)) for arrival in batch_arrivals[:_SHOWN]
    ]
    return ", ".join(texts) + (f" and {len(batch_arrivals) - _SHOWN} more" if len(batch_arrivals) > _SHOWN else "")


class _PartitionCounter:
    """Counts the rows of a partition between two offsets, quickly: the log of several years has many batches."""

    def __init__(self, coordinates: Coordinates, key: Key) -> None:
        levels = coordinates.levels()[key] if key in coordinates.repeated else [coordinates.present[key]]
        self._levels = [_SpanSums(level) for level in levels]

    def between(self, start: int, end: int) -> int:
        return sum(level.below(end) - level.below(start) for level in self._levels)


class _SpanSums:
    def __init__(self, spans: Spans) -> None:
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]
        self._before = [0, *accumulate(end - start for start, end in spans)]

    def below(self, offset: int) -> int:
        """Number of offsets before this one."""
        index = bisect_right(self._starts, offset)
        if not index:
            return 0
        return self._before[index - 1] + min(offset, self._ends[index - 1]) - self._starts[index - 1]
