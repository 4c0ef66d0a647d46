"""Every (topic, partition, offset) of a table, exactly and with how often each is there, against what was read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from penstock.spark.sql_text import quoted_name, quoted_text

if TYPE_CHECKING:
    from deltalake import DeltaTable


# Sets of offsets as spans: exact, and small however many offsets they hold.


class Spans:
    """Offsets of one partition: sorted spans [start, end) that neither overlap nor touch.

    Kept as their edges in a flat array: a transactional topic has a span per transaction, millions of them.
    """

    __slots__ = ("_edges",)

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._edges = array("q")
        for start, end in spans:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """Cheap where `start` lies at or after the last span's start, which is how tables grow."""
        edges = self._edges
        if start >= end:
            return
        if not edges or start > edges[-1]:
            edges.extend((start, end))
        elif start >= edges[-2]:
            edges[-1] = max(edges[-1], end)
        else:
            self._edges = _sweep(edges, array("q", (start, end)), lambda one, other: one or other)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        edges = self._edges
        for i in range(0, len(edges), 2):
            yield edges[i], edges[i + 1]

    def __len__(self) -> int:
        """How many spans."""
        return len(self._edges) // 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spans) and self._edges == other._edges

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Spans({list(self)})"

    def __or__(self, other: Spans) -> Spans:
        return self._with(other, lambda one, two: one or two)

    def __and__(self, other: Spans) -> Spans:
        return self._with(other, lambda one, two: one and two)

    def __sub__(self, other: Spans) -> Spans:
        return self._with(other, lambda one, two: one and not two)

    @property
    def size(self) -> int:
        """How many offsets."""
        edges = self._edges
        return sum(edges[1::2]) - sum(edges[0::2])

    @property
    def start(self) -> int:
        return self._edges[0]

    @property
    def end(self) -> int:
        return self._edges[-1]

    def first(self, limit: int) -> list[tuple[int, int]]:
        return list(islice(self, limit))

    def _with(self, other: Spans, wanted: Callable[[bool, bool], bool]) -> Spans:
        found = Spans()
        found._edges = _sweep(self._edges, other._edges, wanted)
        return found


def _sweep(one: array[int], other: array[int], wanted: Callable[[bool, bool], bool]) -> array[int]:
    """Walks the edges of both from left to right and notes where `wanted(inside one, inside other)` changes."""
    found = array("q")
    in_one = in_other = on = False
    i = j = 0
    while i < len(one) or j < len(other):
        at = one[i] if j >= len(other) or (i < len(one) and one[i] <= other[j]) else other[j]
        if i < len(one) and one[i] == at:
            in_one, i = not in_one, i + 1
        if j < len(other) and other[j] == at:
            in_other, j = not in_other, j + 1
        if wanted(in_one, in_other) != on:
            on = not on
            found.append(at)
    return found


# What a table should hold: every range that its ledger says was read, as often as it was read.


Key = tuple[str, int]
"""Topic and partition."""


class Expected:
    def __init__(self) -> None:
        self.times: dict[Key, list[Spans]] = {}
        """[0]: offsets that were read at least once; [1]: at least twice, because a person had them read again; …"""
        self.under: dict[Key, dict[str, Spans]] = {}
        """By topic id: a topic made again has other records under the same offsets."""

    def add(self, key: Key, start: int, end: int, topic_id: str) -> None:
        """An empty range makes the partition known."""
        levels = self.times.setdefault(key, [Spans()])
        if start >= end:
            return
        if not levels[0] or start >= levels[0].end:  # the ordinary case: it goes on where it ended
            levels[0].add(start, end)
        else:
            self._join(levels, Spans([(start, end)]))
        self.under.setdefault(key, {}).setdefault(topic_id, Spans()).add(start, end)

    def add_all(self, levels: Mapping[Key, list[Spans]], topic_id: str = "") -> None:
        """Each offset as often as it has levels."""
        for key, given in levels.items():
            known, under = self.times.setdefault(key, [Spans()]), self.under.setdefault(key, {})
            for level in given:
                self._join(known, level)
                under[topic_id] = under.get(topic_id, Spans()) | level

    @staticmethod
    def _join(levels: list[Spans], added: Spans) -> None:
        """Each of these offsets one time more; as a whole, for there may be many spans."""
        for i, level in enumerate(levels):
            levels[i], added = level | added, level & added
            if not added:
                return
        levels.append(added)

    def remove(self, key: Key, taken: Spans) -> None:
        """Each of these offsets one time less."""
        levels = self.times.get(key, [])
        for i in reversed(range(len(levels))):
            here = levels[i] & taken
            levels[i], taken = levels[i] - here, taken - here

    def forget_before(self, key: Key, offset: int) -> None:
        """Nothing is known of the offsets before this one."""
        if key in self.times and offset > 0:
            self.times[key] = [level - Spans([(0, offset)]) for level in self.times[key]]

    def once(self, key: Key) -> Spans:
        """Offsets that the table should hold at least once."""
        return self.times[key][0] if key in self.times else Spans()

    def reached(self, key: Key) -> int | None:
        """Where the furthest read ended."""
        spans = self.once(key)
        return spans.end if spans else None


# Every (topic, partition, offset) of a table, exactly and with how often each is there.
#
# The rows are not sorted and not brought into this process: the query engine folds 64 neighbouring offsets into one
# bitmap and one count. A full bitmap with a count of 64 proves its offsets to be there once each; a count above the
# bits that are set shows that some are there more often, and only those stretches are read again, offset by offset.
# 10 million rows take about a second and 120 MB; memory grows with the span of the offsets, so a wide one is read in
# slices.


OFFSETS_PER_SLICE = 32_000_000
"""At most half a million bitmaps at a time. A slice takes a second or two, in which nothing else in this process runs:
the query engine keeps Python's lock."""
OFFSETS_PER_RECOUNT = 2_000_000
_FULL = (1 << 64) - 1
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Repeated:
    """Each offset from start up to end is in the table `times` times; times > 1."""

    start: int
    end: int
    times: int


@dataclass
class Coordinates:
    present: dict[Key, Spans] = field(default_factory=dict)
    """Offsets that are there at least once."""
    repeated: dict[Key, list[Repeated]] = field(default_factory=dict)
    rows: int = 0
    without: int = 0
    """Rows whose topic, partition or offset is NULL: nothing that came from Kafka."""

    def levels(self) -> dict[Key, list[Spans]]:
        """[0]: offsets that are there at least once, [1]: at least twice, …"""
        found = {key: [spans] for key, spans in self.present.items()}
        for key, repeated in self.repeated.items():
            for times in range(2, max(one.times for one in repeated) + 1):
                found[key].append(Spans((one.start, one.end) for one in repeated if one.times >= times))
        return found


Columns = tuple[str, str, str]
"""Topic, partition and offset, as SQL expressions."""
IN_SOURCE: Columns = ("\"_source\"['topic']", "\"_source\"['partition']", "\"_source\"['offset']")
"""Of a table with stages, and of a quarantine."""

IN_FILE: Columns = ("\"_source\"['file']", "CAST(0 AS INT)", "\"_source\"['row']")
"""Of a table that reads files: the file stands for the topic, the number of the row for the offset."""


def landed(columns: Mapping[str, str]) -> Columns:
    """Of a table that lands topics; its columns may have other names."""
    return quoted_name(columns["topic"]), quoted_name(columns["partition"]), quoted_name(columns["offset"])


def read_coordinates(
    table: DeltaTable,
    columns: Columns,
    within: Mapping[Key, Spans],
    progress: Progress = lambda _: None,
    where: str = "TRUE",
) -> Coordinates:
    """`within`: where the offsets are thought to lie. It only decides the slices; every row that meets `where` is read
    in any case."""
    query = _Query(table, columns, where)
    found = Coordinates()
    crowded: dict[Key, Spans] = {}
    slices = _slices(within)
    for number, (low, high) in enumerate(slices):
        for topic, partition, bucket, bits, rows in query.buckets(low, high):
            found.rows += rows
            if topic is None or partition is None or bucket is None:
                found.without += rows
                continue
            key, base, bits = (topic, partition), bucket << 6, bits & _FULL
            spans = found.present.setdefault(key, Spans())
            if bits == _FULL:
                spans.add(base, base + 64)
            else:
                for start, end in runs(bits):
                    spans.add(base + start, base + end)
            if rows != bits.bit_count():
                crowded.setdefault(key, Spans()).add(base, base + 64)
        progress((number + 1) / (len(slices) + 1))
    for key, spans in crowded.items():
        found.repeated[key] = _joined(_recount(query, key, spans))
    progress(1.0)
    return found


def summed(one: Coordinates, other: Coordinates) -> Coordinates:
    """The rows of both."""
    both = Expected()
    for found in (one, other):
        both.add_all(found.levels())
    return Coordinates(
        present={key: levels[0] for key, levels in both.times.items()},
        repeated={key: list(_repeated(levels)) for key, levels in both.times.items() if len(levels) > 1},
        rows=one.rows + other.rows,
        without=one.without + other.without,
    )


def _repeated(levels: list[Spans]) -> Iterator[Repeated]:
    for times in range(2, len(levels) + 1):
        more = levels[times] if times < len(levels) else Spans()
        for start, end in levels[times - 1] - more:
            yield Repeated(start, end, times)


def runs(bits: int) -> Iterator[tuple[int, int]]:
    """The stretches of ones in a bitmap: 0b0110 -> (1, 3)."""
    at = 0
    while bits:
        skip = (bits & -bits).bit_length() - 1
        bits >>= skip
        length = (~bits & (bits + 1)).bit_length() - 1
        bits >>= length
        yield at + skip, at + skip + length
        at += skip + length


def _recount(query: _Query, key: Key, crowded: Spans) -> Iterator[Repeated]:
    """Neighbouring stretches are asked for together: a row doubled here and there costs one question, not many."""
    asked: tuple[int, int] | None = None
    for start, end in crowded:
        for low in range(start, end, OFFSETS_PER_RECOUNT):
            high = min(end, low + OFFSETS_PER_RECOUNT)
            if asked is not None and high - asked[0] <= OFFSETS_PER_RECOUNT:
                asked = (asked[0], high)
                continue
            if asked is not None:
                yield from query.repeated(key, *asked)
            asked = (low, high)
    if asked is not None:
        yield from query.repeated(key, *asked)


def _joined(found: Iterator[Repeated]) -> list[Repeated]:
    """Stretches that were cut by the questions become one again."""
    joined: list[Repeated] = []
    for one in found:
        if joined and (joined[-1].end, joined[-1].times) == (one.start, one.times):
            joined[-1] = Repeated(joined[-1].start, one.end, one.times)
        else:
            joined.append(one)
    return joined


def _slices(within: Mapping[Key, Spans]) -> list[tuple[int | None, int | None]]:
    """Ranges of offsets that together hold all of them, the first without a lower bound, the last without an upper one.
    Cut where the partitions that reach there hold a slice's worth of offsets: one may be far longer than the others."""
    edges = sorted(edge for spans in within.values() if spans for edge in ((spans.start, 1), (spans.end, -1)))
    cuts: list[int] = []
    left, at, partitions = OFFSETS_PER_SLICE, 0, 0
    for edge, change in edges:
        while partitions and (edge - at) * partitions > left:
            at += max(1, left // partitions)
            cuts.append(at)
            left = OFFSETS_PER_SLICE
        left -= (edge - at) * partitions
        at, partitions = edge, partitions + change
    return list(zip([None, *cuts], [*cuts, None], strict=True))


class _Query:
    """SQL over one version of the table, read with deltalake, which knows deletion vectors and compacted files."""

    def __init__(self, table: DeltaTable, columns: Columns, where: str) -> None:
        from deltalake import QueryBuilder

        self._engine = QueryBuilder().register("bronze", table)
        self._from = f"(SELECT * FROM bronze WHERE {where}) AS rows"
        self._topic, self._partition, self._offset = columns

    def buckets(self, low: int | None, high: int | None) -> Iterator[tuple[Any, ...]]:
        """(topic, partition, offset >> 6, bitmap, rows), sorted."""
        where = "TRUE" if low is None else f"{self._offset} >= {low}"
        if high is not None:
            where += f" AND {self._offset} < {high}"
        if low is None:
            where += f" OR {self._offset} IS NULL"
        return self._rows(
            f"SELECT {self._topic}, {self._partition}, {self._offset} >> 6, "
            f"bit_or(CAST(1 AS BIGINT) << ({self._offset} & 63)), count(*) "
            f"FROM {self._from} WHERE {where} GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
        )

    def repeated(self, key: Key, low: int, high: int) -> Iterator[Repeated]:
        topic, partition = key
        counted = (
            f"SELECT {self._offset} AS at, count(*) AS times FROM {self._from} "
            f"WHERE {self._topic} = {quoted_text(topic)} "
            f"AND {self._partition} = {partition} AND {self._offset} >= {low} AND {self._offset} < {high} "
            "GROUP BY 1 HAVING count(*) > 1"
        )
        islands = (
            f"SELECT at, times, at - row_number() OVER (PARTITION BY times ORDER BY at) AS island FROM ({counted})"
        )
        query = f"SELECT min(at), max(at) + 1, times FROM ({islands}) GROUP BY times, island ORDER BY 1"
        for start, end, times in self._rows(query):
            yield Repeated(start, end, times)

    def _rows(self, sql: str) -> Iterator[tuple[Any, ...]]:
        for batch in self._engine.execute(sql):
            yield from zip(*(batch.column(i).to_pylist() for i in range(batch.num_columns)), strict=True)


# The table's coordinates against what its ledger says was read: what lacks, what is doubled, what is strange.


@dataclass(frozen=True)
class Doubled:
    start: int
    end: int
    times: int
    """How often each of these offsets is in the table."""
    expected: int


@dataclass
class CoordinateDifference:
    """One partition. All empty: the table holds exactly what it should."""

    rows: int = 0
    gaps: Spans = field(default_factory=Spans)
    """Should be there and are not. Not yet a loss: Kafka itself leaves offsets without a record."""
    short: list[Doubled] = field(default_factory=list)
    """Are there, but fewer times than they were read."""
    doubled: list[Doubled] = field(default_factory=list)
    unexpected: Spans = field(default_factory=Spans)
    """Are there, and no entry says that they were read."""


def compare(expected: Expected, found: Coordinates) -> dict[Key, CoordinateDifference]:
    keys = sorted(set(expected.times) | set(found.present))
    return {
        key: _difference(
            expected.times.get(key, [Spans()]), found.present.get(key, Spans()), found.repeated.get(key, [])
        )
        for key in keys
    }


def _difference(wanted: list[Spans], present: Spans, repeated: list[Repeated]) -> CoordinateDifference:
    extra = sum((one.end - one.start) * (one.times - 1) for one in repeated)
    return CoordinateDifference(
        rows=present.size + extra,
        gaps=wanted[0] - present,
        short=_short(wanted, present, repeated),
        doubled=[doubled for one in repeated for doubled in _doubled(wanted, one)],
        unexpected=present - wanted[0],
    )


def _doubled(wanted: list[Spans], one: Repeated) -> list[Doubled]:
    found: list[Doubled] = []
    span = Spans([(one.start, one.end)])
    for times in range(1, min(one.times - 1, len(wanted)) + 1):
        exactly = span & wanted[times - 1]
        if times < len(wanted):
            exactly = exactly - wanted[times]
        found.extend(Doubled(start, end, one.times, times) for start, end in exactly)
    return found


def _short(wanted: list[Spans], present: Spans, repeated: list[Repeated]) -> list[Doubled]:
    found: list[Doubled] = []
    for times, level in enumerate(wanted[1:], start=2):
        enough = Spans((one.start, one.end) for one in sorted(repeated, key=lambda r: r.start) if one.times >= times)
        found.extend(Doubled(start, end, times - 1, times) for start, end in (level & present) - enough)
    return found
