"""Whether the numbers of the ledger add up and are those of the tables; if not, in which batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.ledger.checkpoint import folder_of
from penstock.ledger.delta_log import DeltaLog, Origin
from penstock.ledger.position import Range
from penstock.ledger.row_counts import (
    BATCHES,
    REJECTED,
    conserved_counts,
    read_row_counts,
)
from penstock.plan.quarantine import quarantine_of
from penstock.plan.stages import Stages
from penstock.storage.delta_rows import query
from penstock.verify.upstream import arrivals

if TYPE_CHECKING:
    from penstock.ledger.delta_log import Commit
    from penstock.ledger.entry import Entry
    from penstock.ledger.row_counts import Conserved
    from penstock.verify.context import VerifyContext
    from penstock.verify.coordinates import Coordinates, Key, Spans
    from penstock.verify.ledger_walk import Chain
    from penstock.verify.upstream import Arrival

# Whether the numbers of the ledger add up, and are those of the tables.


def conserved(look: VerifyContext, chain: Chain) -> Conserved:
    tail, table = look.tail, look.table
    last = read_row_counts(look.store, folder_of(table.checkpoints, tail.entry), tail.entry.batch)
    counts = replace(tail, row_counts=last).counts
    return conserved_counts(counts.row_counts, counts.total, batches=chain.batches if chain.from_genesis else None)


def unbalanced(look: VerifyContext, one: Conserved, rows: int, quarantined: int, earlier: int) -> Iterator[str]:
    """What does not add up. `rows` and `quarantined` are what the two tables hold, `earlier` the rows that were there
    before the ledger."""
    stages = look.table.stages or Stages("")
    if one.uncounted:
        return
    if one.unexplained:
        yield f"{one.said} does not add up: {one.unexplained:,} rows are not accounted for"
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


# Which batch a wrong number belongs to: the rows that each batch wrote, and rejected, against those that are there.


_SHOWN = 6


def wrong_batches(look: VerifyContext, found: Coordinates) -> Iterator[str]:
    """Of a table whose rows have the coordinates of one record each. Nothing where the ledgers do not tell in which
    batch a record came."""
    table = look.table
    if table.stages is not None and table.stages.transform is not None:
        return
    try:
        came = arrivals(table, look.tables, look.store)
    except PenstockError:
        return
    by_version: dict[int, list[Arrival]] = {}
    for one in came:
        by_version.setdefault(one.number, []).append(one)
    present = {key: _Counted(found, key) for key in found.present}
    log = DeltaLog(look.store, table.uri, table.name)
    for version, parts in by_version.items():
        if version > look.tail.version or (commit := log.commit(version)) is None or commit.entry is None:
            continue
        there = sum(present[key].between(one.start, one.end) for one in parts if (key := _key(one)) in present)
        if there != commit.rows:
            yield (
                f"batch {commit.entry.generation}.{commit.entry.batch} (version {version}) wrote {commit.rows:,} rows, "
                f"the table has {there:,} of its records: {_ranges(parts)}"
            )


def wrong_rejects(look: VerifyContext) -> Iterator[str]:
    """Batches whose rejected rows are not all in quarantine, or more than those."""
    table, entry = look.table, look.tail.entry
    place = quarantine_of(table.name, table.uri)
    told = list(_rejected(look))
    reshaped = table.stages is not None and table.stages.transform is not None
    if not told or not look.store.names(f"{place.uri}/_delta_log"):
        return
    counted = query(place.uri, None, "SELECT generation, batch, count(*) FROM rows GROUP BY 1, 2")
    there = {(int(generation), int(batch)): int(rows) for generation, batch, rows in counted}
    for one, version, rejected in told:
        if one.key > entry.key:
            continue
        has = there.get(one.key, 0)
        # Of several rejected rows that a transform made of one record, the quarantine has that record once.
        if has > rejected or (has < rejected and not reshaped):
            yield (
                f"batch {one.generation}.{one.batch} (version {version}) rejected {rejected:,} rows, "
                f"the quarantine has {has:,} of them"
            )


def _rejected(look: VerifyContext) -> Iterator[tuple[Entry, int, int]]:
    """Each batch of the last generation, its version, and how many rows it rejected: what the next entry counts more
    than its own. Nothing if rows have left the quarantine since."""
    log = DeltaLog(look.store, look.table.uri, look.table.name)
    commits: list[Commit] = []
    for version in log.versions():
        commit = log.commit(version)
        if commit is None or commit.entry is None or commit.origin is not Origin.LEDGER:
            continue
        if commit.entry.kind in ("redrive", "forget", "fill", "rewind", "open"):
            return
        if version <= look.tail.version and (not commits or commits[-1].entry is None or _other(commits[-1], commit)):
            commits.append(commit)
    last = read_row_counts(look.store, folder_of(look.table.checkpoints, look.tail.entry), look.tail.entry.batch)
    for number, commit in enumerate(commits):
        entry = commit.entry
        assert entry is not None
        if entry.kind != "batch":
            continue
        if number + 1 < len(commits):
            after = commits[number + 1].entry
            assert after is not None
            more = {
                name: after.counts.row_counts.get(name, 0) - entry.counts.row_counts.get(name, 0)
                for name in (BATCHES, REJECTED)
            }
        else:
            more = {name: last.get(name, 0) for name in (BATCHES, REJECTED)}
        if more[BATCHES] == 1:
            yield entry, commit.version, more[REJECTED]


def _other(one: Commit, other: Commit) -> bool:
    return one.entry is None or other.entry is None or one.entry.key != other.entry.key


def _key(one: Arrival) -> Key:
    return one.topic, one.partition


def _ranges(parts: list[Arrival]) -> str:
    listed = [str(Range(one.topic, one.partition, one.start, one.end)) for one in parts[:_SHOWN]]
    return ", ".join(listed) + (f" and {len(parts) - _SHOWN} more" if len(parts) > _SHOWN else "")


class _Counted:
    """How many rows of a partition lie between two offsets, quickly: a log of years has many batches."""

    def __init__(self, found: Coordinates, key: Key) -> None:
        self._levels = [_Sums(level) for level in self._levels_of(found, key)]

    @staticmethod
    def _levels_of(found: Coordinates, key: Key) -> list[Spans]:
        if key not in found.repeated:
            return [found.present[key]]
        return found.levels()[key]

    def between(self, start: int, end: int) -> int:
        return sum(level.below(end) - level.below(start) for level in self._levels)


class _Sums:
    def __init__(self, spans: Spans) -> None:
        self._starts = [start for start, _ in spans]
        self._ends = [end for _, end in spans]
        self._before = [0, *accumulate(end - start for start, end in spans)]

    def below(self, offset: int) -> int:
        """Offsets before this one."""
        at = bisect_right(self._starts, offset)
        if not at:
            return 0
        return self._before[at - 1] + min(offset, self._ends[at - 1]) - self._starts[at - 1]
