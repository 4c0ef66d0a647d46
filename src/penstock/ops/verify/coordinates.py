"""Every (topic, partition, offset) of a table, exactly and with how often each is there.

The rows are not sorted and not brought into this process: the query engine folds 64 neighbouring offsets into one
bitmap and one count. A full bitmap with a count of 64 proves its offsets to be there once each; a count above the bits
that are set shows that some are there more often, and only those stretches are read again, offset by offset. 10 million
rows take about a second and 120 MB; memory grows with the span of the offsets, so a wide one is read in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.ops.quoting import identifier, literal
from penstock.ops.verify.expected import Expected, Key
from penstock.ops.verify.spans import Spans

if TYPE_CHECKING:
    from deltalake import DeltaTable

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
    return identifier(columns["topic"]), identifier(columns["partition"]), identifier(columns["offset"])


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
            f"SELECT {self._offset} AS at, count(*) AS times FROM {self._from} WHERE {self._topic} = {literal(topic)} "
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
