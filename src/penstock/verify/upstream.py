"""What a table should have read from the table upstream: the coordinates there, as of the version it has read up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, Terminal
from penstock.ledger import position
from penstock.ledger.delta_log import DeltaLog, Origin, RecentLog
from penstock.ledger.entry import stream_tables
from penstock.ledger.position import parse_version
from penstock.ledger.spans import Spans
from penstock.operations.broker import PartitionLag
from penstock.plan.sources import VersionsSource
from penstock.plan.subjects import FORGOTTEN
from penstock.sources.delta_changes import changes_read_past, refuse_lost, table_id
from penstock.spark.sql_text import quoted_name, quoted_text
from penstock.storage.delta_rows import count_at, open_table
from penstock.storage.stores import source_store
from penstock.verify.coordinates import IN_SOURCE, CoordinateTable, Expected, landed, read_at
from penstock.verify.report import beginning_in_table
from penstock.verify.unread import summed, unread_of_files, unread_of_table

if TYPE_CHECKING:
    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Version
    from penstock.plan.model import TablePlan
    from penstock.storage.stores import Store
    from penstock.verify.context import VerifyContext
    from penstock.verify.coordinates import Columns, Coordinates, Key
    from penstock.verify.ledger_walk import Chain

# Redacted records upstream: their subject was forgotten, and no table reads them.


def readable(source: VersionsSource) -> str:
    """Condition for records that are not redacted. Redacted ones have one header, which is the first."""
    headers = source.holds.headers
    if headers is None or not source.holds.subjects:
        return "TRUE"
    return f"coalesce({quoted_name(headers)}[1]['key'], '') <> {quoted_text(FORGOTTEN)}"


def redacted(source: VersionsSource, version: int) -> int:
    """Number of redacted records as of a version."""
    condition = readable(source)
    return 0 if condition == "TRUE" or version < 0 else count_at(source.uri, version, f"NOT ({condition})")


# What the table should have read.


@dataclass(frozen=True)
class UpstreamRows:
    at_least: Expected
    """Read for certain."""
    at_most: Expected
    """Also what may have been read beyond that: files of a version that is not read to its end."""


def columns_upstream(table: TablePlan) -> Columns | None:
    """The coordinate columns upstream; None if the rows there do not say from which offset they came."""
    if table.input.origin != "kafka":
        return None
    return landed(table.input.raw) if table.input.coordinates == "kafka" else IN_SOURCE


def read_upstream(context: VerifyContext, chain: Chain, columns: Columns) -> UpstreamRows:
    """Terminal if the version can no longer be read."""
    source = context.table.versions
    assert source is not None
    rows = CoordinateTable(source.label, source.uri, columns, readable(source))
    log = DeltaLog(source_store(source, context.store), source.uri, rows.name)
    read_position = parse_version(context.head.entry.after[0])
    progress = context.step(f"reading the coordinates of {rows.name}")
    expected = (
        _expect(read_at(rows, read_position.read_up_to, {}, progress)) if read_position.read_up_to >= 0 else Expected()
    )
    if chain.moves or not context.start_position:
        reason = (
            f"its position was moved by hand in version {chain.moves[-1].version}"
            if chain.moves
            else "its start position is no longer in its log"
        )
        context.report.doubts.append(f"{reason}: whether records of {rows.name} are missing is unknown")
        return UpstreamRows(Expected(), expected)
    start = parse_version(context.start_position[0])
    before_start = None
    if not start.snapshot and start.version > 0:
        before_start = _read_earlier(context, rows, start.version - 1)
        if before_start is None:
            return UpstreamRows(Expected(), expected)
        _remove(expected, before_start)
    if is_read_to_end(read_position, log, source.uri):
        return UpstreamRows(expected, expected)
    before_last = (
        None
        if read_position.snapshot or read_position.version == 0
        else _read_earlier(context, rows, read_position.version - 1)
    )
    if before_last is None:
        return UpstreamRows(Expected(), expected)
    certain = _expect(before_last)
    if before_start is not None:
        _remove(certain, before_start)
    return UpstreamRows(certain, expected)


def last_batch_coordinates(context: VerifyContext, columns: Columns) -> dict[Key, Spans]:
    """The coordinates that the last batch has read; Terminal if a version can no longer be read."""
    source, entry = context.table.versions, context.head.entry
    assert source is not None
    rows = CoordinateTable(source.label, source.uri, columns, readable(source))
    before, after = parse_version(entry.before[0]).read_up_to, parse_version(entry.after[0]).read_up_to
    earlier = read_at(rows, before, {}).present if before >= 0 else {}
    return {key: spans - earlier.get(key, Spans()) for key, spans in read_at(rows, after, {}).present.items()}


def _read_earlier(context: VerifyContext, rows: CoordinateTable, version: int) -> Coordinates | None:
    """The coordinates at a version; None, and a doubt in the report, if a vacuum has removed that version."""
    try:
        return read_at(rows, version, {})
    except Terminal:
        doubt = f"version {version} of {rows.name} can no longer be read: what came after it is unknown"
        context.report.doubts.append(doubt)
        return None


def report_position_upstream(context: VerifyContext) -> None:
    """Report how far behind the table is, and whether the next versions to read still exist."""
    table, entry, report = context.table, context.head.entry, context.report
    assert table.versions is not None
    by_name: dict[str, VersionsSource] = {source.label: source for source in (*table.delta_sources, table.versions)}
    names = stream_tables(entry) or tuple(by_name)
    report.upstream = ", ".join(dict.fromkeys(names))
    report.unit = "file" if table.files is not None else "version"
    report.lags, unread = [], []
    report.beginning = beginning_in_table(table.versions, context.start_position)
    report.doubts += [report.beginning.doubt] if report.beginning.doubt else []
    for name, after in zip(names, entry.after, strict=False):
        source, read_position = by_name.get(name, table.versions), parse_version(after)
        log = RecentLog(source_store(source, context.store), source.uri, name)
        versions = log.versions()
        read_up_to = (
            read_position.version - 1
            if read_position.snapshot and read_position.index < 0
            else read_position.read_up_to
        )
        report.lags.append(PartitionLag(name, 0, read_up_to + 1, log.readable_end(read_up_to + 1)))
        if source.as_files is not None:
            unread.append(unread_of_files(source.as_files, entry, context.store))
        else:
            unread.append(
                unread_of_table(source, name, read_position, context.store, follows_changes=table.aggregate is not None)
            )
        if note := note_of_changes(context, source):
            report.notes.append(note)
        try:
            refuse_lost(read_position, table_id(log, versions), versions, table.name, name)
        except PenstockError as error:
            report.problems.append(error.message)
            report.hint = error.hint
    report.unread = summed(unread)


def note_of_changes(context: VerifyContext, source: VersionsSource) -> str | None:
    """A note on versions upstream that changed rows and that the table read past because of an option: it lacks a part
    of what the source has."""
    entry = context.head.entry
    if len(entry.began) != 1 or len(entry.after) != 1:
        return None
    return changes_read_past(source_store(source, context.store), source, entry.began[0], entry.after[0])


def changed_upstream(context: VerifyContext) -> bool:
    """Whether rows that were read have been removed or replaced there."""
    source = context.table.versions
    assert source is not None
    return last_changed_version(DeltaLog(source_store(source, context.store), source.uri, source.label)) is not None


def last_changed_version(log: DeltaLog) -> int | None:
    """The newest version of the table upstream that changed rows; None if its log has none."""
    return max((commit.version for commit in log.backwards() if commit.changes), default=None)


def is_read_to_end(read_position: Version, log: DeltaLog, uri: str) -> bool:
    if read_position.read_up_to < read_position.version:
        return True
    if read_position.snapshot:
        return read_position.index + 1 >= len(open_table(uri, read_position.version).file_uris())
    commit = log.commit(read_position.version)
    return commit is not None and read_position.index + 1 >= commit.files_added


def _expect(coordinates: Coordinates) -> Expected:
    expected = Expected()
    expected.add_all(coordinates.levels())
    return expected


def _remove(expected: Expected, earlier: Coordinates) -> None:
    for key, levels in earlier.levels().items():
        for level in levels:
            expected.remove(key, level | Spans())


def may_reshape(table: TablePlan) -> bool:
    """Whether one record may become many rows."""
    return table.stages is not None and table.stages.transform is not None


# The batch of a table in which a record arrived, from the ledgers alone: its offset gives the batch of the table that
# landed it, that batch the version, and so on down to the table that is checked.


@dataclass(frozen=True)
class Arrival:
    topic: str
    partition: int
    start: int
    end: int
    number: int
    """The version of the table in which these offsets arrived."""


def arrivals(table: TablePlan, tables: Mapping[str, TablePlan], store: Store) -> list[Arrival]:
    batches = _read_batches(table, store)
    if table.topics is not None:
        return [
            Arrival(span.topic, span.partition, span.start, span.end, version)
            for version, entry in batches
            for before, after in zip(entry.before, entry.after, strict=True)
            for span in position.ranges(before, after)
        ]
    upstream = tables.get(table.source.project_table or "")
    if upstream is None or table.input.origin != "kafka":
        raise Terminal("its source is not a table of the project that lands topics", where=table.name)
    ends = []
    for version, entry in batches:
        after = parse_version(entry.after[0])
        if not after.whole:
            raise Terminal("a batch ended within a version of its source", where=table.name)
        ends.append((after.read_up_to, version))
    table_arrivals = []
    for arrival in arrivals(upstream, tables, store):
        number = next((version for read_up_to, version in ends if arrival.number <= read_up_to), None)
        if number is not None:
            table_arrivals.append(replace(arrival, number=number))
    return table_arrivals


def _read_batches(table: TablePlan, store: Store) -> list[tuple[int, Entry]]:
    log = DeltaLog(store, table.uri, table.name)
    batches: list[tuple[int, Entry]] = []
    first = True
    for version in log.versions():
        commit = log.commit(version)
        entry = commit.entry if commit is not None and commit.origin is Origin.LEDGER else None
        if commit is None or (entry is None and commit.origin is not Origin.MAINTENANCE):
            raise Terminal(f"version {version} of {table.name} was made by others", where=table.name)
        if entry is None or entry.kind == "carry":
            continue
        if first and entry.kind != "genesis":
            raise Terminal(f"the log of {table.name} no longer goes back to its first batch", where=table.name)
        first = False
        if entry.kind == "batch":
            if not batches or batches[-1][1].key != entry.key:
                batches.append((version, entry))
        elif entry.kind != "genesis":
            raise Terminal(f"a {entry.kind} in version {version} of {table.name} moved rows", where=table.name)
    return batches
