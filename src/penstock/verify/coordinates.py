"""Compares every (topic, partition, offset) of a table, and how often each is there, with what was read; reads them
with `deltalake`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.errors import Terminal
from penstock.ledger.spans import Spans
from penstock.spark.sql_text import quoted_name, quoted_text
from penstock.storage.delta_rows import _plain, open_table, table_of_files
from penstock.verify.data_files import LoggedFile

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from penstock.verify.ledger_walk import RowsAt

# What a table should hold: every range that its ledger says was read, as often as it was read.


Key = tuple[str, int]
"""Topic and partition."""


class Expected:
    def __init__(self) -> None:
        self.levels: dict[Key, list[Spans]] = {}
        """[0]: offsets that were read at least once; [1]: at least twice, because a person had them read again; …"""
        self.by_topic_id: dict[Key, dict[str, Spans]] = {}
        """Offsets by topic id: a recreated topic has other records under the same offsets."""

    def add(self, key: Key, start: int, end: int, topic_id: str) -> None:
        """Add one read of the offsets from `start` to `end`. An empty range still makes the partition known."""
        levels = self.levels.setdefault(key, [Spans()])
        if start >= end:
            return
        if not levels[0] or start >= levels[0].end:  # the usual case: it continues where the last read ended
            levels[0].add(start, end)
        else:
            self._add_spans(levels, Spans([(start, end)]))
        self.by_topic_id.setdefault(key, {}).setdefault(topic_id, Spans()).add(start, end)

    def add_all(self, levels: Mapping[Key, list[Spans]], topic_id: str = "") -> None:
        """Add each offset as many times as there are levels that hold it."""
        for key, added_levels in levels.items():
            known_levels, by_topic_id = self.levels.setdefault(key, [Spans()]), self.by_topic_id.setdefault(key, {})
            for level in added_levels:
                self._add_spans(known_levels, level)
                by_topic_id[topic_id] = by_topic_id.get(topic_id, Spans()) | level

    @staticmethod
    def _add_spans(levels: list[Spans], added: Spans) -> None:
        """Add each of these offsets once more, all spans at once because there may be many."""
        for i, level in enumerate(levels):
            levels[i], added = level | added, level & added
            if not added:
                return
        levels.append(added)

    def remove(self, key: Key, spans: Spans) -> None:
        """Remove each of these offsets once."""
        levels = self.levels.get(key, [])
        for i in reversed(range(len(levels))):
            overlap = levels[i] & spans
            levels[i], spans = levels[i] - overlap, spans - overlap

    def forget_before(self, key: Key, offset: int) -> None:
        """Remove the offsets before this one: nothing is known about them."""
        if key in self.levels and offset > 0:
            self.levels[key] = [level - Spans([(0, offset)]) for level in self.levels[key]]

    def once(self, key: Key) -> Spans:
        """Offsets that the table should hold at least once."""
        return self.levels[key][0] if key in self.levels else Spans()

    def end(self, key: Key) -> int | None:
        """Where the furthest read ended; None if nothing was read."""
        spans = self.once(key)
        return spans.end if spans else None


# Reading every (topic, partition, offset) of a table, with how often each is there.
#
# The rows are neither sorted nor brought into this process: the query engine folds 64 neighbouring offsets into one
# bitmap and one count. A full bitmap with a count of 64 proves that each of its offsets is there once. A count above
# the bits that are set shows that some are there more often, and only those stretches are read again, offset by offset.
# 10 million rows take about a second and 120 MB; memory grows with the span of the offsets, so a wide span is read in
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
    """Rows whose topic, partition or offset is NULL: they did not come from Kafka."""

    def levels(self) -> dict[Key, list[Spans]]:
        """[0]: offsets that are there at least once, [1]: at least twice, …"""
        levels = {key: [spans] for key, spans in self.present.items()}
        for key, repeated in self.repeated.items():
            for times in range(2, max(stretch.times for stretch in repeated) + 1):
                levels[key].append(
                    Spans((stretch.start, stretch.end) for stretch in repeated if stretch.times >= times)
                )
        return levels


Columns = tuple[str, str, str]
"""Topic, partition and offset, as SQL expressions."""
IN_SOURCE: Columns = ("\"_source\"['topic']", "\"_source\"['partition']", "\"_source\"['offset']")
"""For a table with stages, and for a quarantine."""

IN_FILE: Columns = ("\"_source\"['file']", "CAST(0 AS INT)", "\"_source\"['row']")
"""For a table that reads files: the file stands for the topic, the row number for the offset."""


def landed(columns: Mapping[str, str]) -> Columns:
    """For a table that lands topics; its columns may have other names."""
    return quoted_name(columns["topic"]), quoted_name(columns["partition"]), quoted_name(columns["offset"])


def read_coordinates(
    table: DeltaTable,
    columns: Columns,
    within: Mapping[Key, Spans],
    progress: Progress = lambda _: None,
    where: str = "TRUE",
) -> Coordinates:
    """`within` is where the offsets are expected. It only decides the slices: every row that meets `where` is read."""
    query = _Query(table, columns, where)
    coordinates = Coordinates()
    crowded: dict[Key, Spans] = {}
    slices = _slices(within)
    for number, (low, high) in enumerate(slices):
        for topic, partition, bucket, bits, rows in query.buckets(low, high):
            coordinates.rows += rows
            if topic is None or partition is None or bucket is None:
                coordinates.without += rows
                continue
            key, base, bits = (topic, partition), bucket << 6, bits & _FULL
            spans = coordinates.present.setdefault(key, Spans())
            if bits == _FULL:
                spans.add(base, base + 64)
            else:
                for start, end in runs(bits):
                    spans.add(base + start, base + end)
            if rows != bits.bit_count():
                crowded.setdefault(key, Spans()).add(base, base + 64)
        progress((number + 1) / (len(slices) + 1))
    for key, spans in crowded.items():
        coordinates.repeated[key] = _join_neighbours(_recount(query, key, spans))
    progress(1.0)
    return coordinates


def summed(first: Coordinates, second: Coordinates) -> Coordinates:
    """The coordinates of both together."""
    total = Expected()
    for coordinates in (first, second):
        total.add_all(coordinates.levels())
    return Coordinates(
        present={key: levels[0] for key, levels in total.levels.items()},
        repeated={key: list(_repeated(levels)) for key, levels in total.levels.items() if len(levels) > 1},
        rows=first.rows + second.rows,
        without=first.without + second.without,
    )


def _repeated(levels: list[Spans]) -> Iterator[Repeated]:
    for times in range(2, len(levels) + 1):
        next_level = levels[times] if times < len(levels) else Spans()
        for start, end in levels[times - 1] - next_level:
            yield Repeated(start, end, times)


def runs(bits: int) -> Iterator[tuple[int, int]]:
    """The stretches of ones in a bitmap: 0b0110 -> (1, 3)."""
    offset = 0
    while bits:
        skip = (bits & -bits).bit_length() - 1
        bits >>= skip
        length = (~bits & (bits + 1)).bit_length() - 1
        bits >>= length
        yield offset + skip, offset + skip + length
        offset += skip + length


def _recount(query: _Query, key: Key, crowded: Spans) -> Iterator[Repeated]:
    """Count these offsets one by one. Neighbouring stretches share a query: rows doubled here and there cost one query,
    not many."""
    pending_range: tuple[int, int] | None = None
    for start, end in crowded:
        for low in range(start, end, OFFSETS_PER_RECOUNT):
            high = min(end, low + OFFSETS_PER_RECOUNT)
            if pending_range is not None and high - pending_range[0] <= OFFSETS_PER_RECOUNT:
                pending_range = (pending_range[0], high)
                continue
            if pending_range is not None:
                yield from query.repeated(key, *pending_range)
            pending_range = (low, high)
    if pending_range is not None:
        yield from query.repeated(key, *pending_range)


def _join_neighbours(stretches: Iterator[Repeated]) -> list[Repeated]:
    """Join stretches that were cut by the queries."""
    joined: list[Repeated] = []
    for stretch in stretches:
        if joined and (joined[-1].end, joined[-1].times) == (stretch.start, stretch.times):
            joined[-1] = Repeated(joined[-1].start, stretch.end, stretch.times)
        else:
            joined.append(stretch)
    return joined


def _slices(within: Mapping[Key, Spans]) -> list[tuple[int | None, int | None]]:
    """Ranges that together cover all offsets, the first without a lower bound, the last without an upper one. Cut where
    the partitions that reach there hold a slice's worth of offsets: one may be far longer than the others."""
    edges = sorted(edge for spans in within.values() if spans for edge in ((spans.start, 1), (spans.end, -1)))
    cuts: list[int] = []
    remaining, position, partitions = OFFSETS_PER_SLICE, 0, 0
    for edge, change in edges:
        while partitions and (edge - position) * partitions > remaining:
            position += max(1, remaining // partitions)
            cuts.append(position)
            remaining = OFFSETS_PER_SLICE
        remaining -= (edge - position) * partitions
        position, partitions = edge, partitions + change
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


# The rows of a table at a version.


@dataclass(frozen=True)
class CoordinateTable:
    """A table whose rows say where they came from."""

    name: str
    uri: str
    columns: Columns
    where: str = "TRUE"


def read_at(
    table: CoordinateTable,
    version: int | None,
    within: Mapping[Key, Spans],
    progress: Callable[[float], None] = lambda _: None,
) -> Coordinates:
    """The coordinates of the rows of a version, None being the newest; Terminal if they cannot be read: a file is gone
    or broken."""
    try:
        return read_coordinates(open_table(table.uri, version), table.columns, within, progress, table.where)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the query engine raises plain Exception; a panic in it is not even that
        raise Terminal(
            f"the rows of {'version ' + str(version) if version is not None else table.name} cannot be read: "
            f"{_describe_unreadable(table, version)}{_plain(error)}",
            where=table.name,
            hint=f"`penstock history {table.name}` shows who changed the table",
        ) from None


_MOST_TRIED = 2_000
"""At most this many files are read one by one to find those that cannot be read."""


def _describe_unreadable(table: CoordinateTable, version: int | None) -> str:
    """Name the files of a local table that cannot be read, as far as they can be told apart: `part-0.parquet: `."""
    from deltalake import DeltaTable

    try:
        if "://" in table.uri:
            return ""
        delta_table = DeltaTable(table.uri, version=version)
        files = delta_table.file_uris()
    except Exception:
        return ""
    unreadable = []
    for file in files[:_MOST_TRIED]:
        try:
            read_coordinates(table_of_files(delta_table, [file]), table.columns, {}, lambda _: None, table.where)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            unreadable.append(LoggedFile.name_of(file))
    # What fails everywhere is not the fault of one file.
    if not unreadable or (len(unreadable) == len(files) and len(files) > 1):
        return ""
    return f"{', '.join(unreadable[:5])}{f' and {len(unreadable) - 5} more files' if len(unreadable) > 5 else ''}: "


def rows_at(table: CoordinateTable) -> RowsAt:
    """A reader of the rows of a version; it returns None if vacuum has removed the files of that version."""

    def read(version: int) -> Coordinates | None:
        try:
            return read_at(table, version, {})
        except Terminal:
            return None

    return read


# Comparing the table's coordinates with what its ledger says was read: missing, doubled and unexpected offsets.


@dataclass(frozen=True)
class Doubled:
    start: int
    end: int
    times: int
    """How often each of these offsets is in the table."""
    expected: int


@dataclass
class CoordinateDifference:
    """One partition. If everything but `rows` is empty, the table holds exactly what it should."""

    rows: int = 0
    gaps: Spans = field(default_factory=Spans)
    """Expected and not in the table. Not yet a loss: Kafka itself leaves offsets without a record."""
    short: list[Doubled] = field(default_factory=list)
    """In the table, but fewer times than they were read."""
    doubled: list[Doubled] = field(default_factory=list)
    unexpected: Spans = field(default_factory=Spans)
    """In the table, although no entry says that they were read."""


def compare(expected: Expected, actual: Coordinates) -> dict[Key, CoordinateDifference]:
    keys = sorted(set(expected.levels) | set(actual.present))
    return {
        key: _difference(
            expected.levels.get(key, [Spans()]), actual.present.get(key, Spans()), actual.repeated.get(key, [])
        )
        for key in keys
    }


def _difference(expected: list[Spans], present: Spans, repeated: list[Repeated]) -> CoordinateDifference:
    extra = sum((stretch.end - stretch.start) * (stretch.times - 1) for stretch in repeated)
    return CoordinateDifference(
        rows=present.size + extra,
        gaps=expected[0] - present,
        short=_short(expected, present, repeated),
        doubled=[doubled for stretch in repeated for doubled in _doubled(expected, stretch)],
        unexpected=present - expected[0],
    )


def _doubled(expected: list[Spans], stretch: Repeated) -> list[Doubled]:
    doubled: list[Doubled] = []
    span = Spans([(stretch.start, stretch.end)])
    for times in range(1, min(stretch.times - 1, len(expected)) + 1):
        exactly = span & expected[times - 1]
        if times < len(expected):
            exactly = exactly - expected[times]
        doubled.extend(Doubled(start, end, stretch.times, times) for start, end in exactly)
    return doubled


def _short(expected: list[Spans], present: Spans, repeated: list[Repeated]) -> list[Doubled]:
    short: list[Doubled] = []
    for times, level in enumerate(expected[1:], start=2):
        enough = Spans(
            (stretch.start, stretch.end)
            for stretch in sorted(repeated, key=lambda r: r.start)
            if stretch.times >= times
        )
        short.extend(Doubled(start, end, times - 1, times) for start, end in (level & present) - enough)
    return short
