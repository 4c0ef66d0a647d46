"""What a table should have read of the table upstream: the coordinates that are there, as of the version read up
to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, Terminal
from penstock.ledger import position
from penstock.ledger.delta_log import DeltaLog, Origin, RecentLog
from penstock.ledger.entry import named_streams
from penstock.ledger.position import parse_version
from penstock.operations.broker import PartitionLag
from penstock.plan.sources import VersionsSource
from penstock.plan.subjects import FORGOTTEN
from penstock.sources.delta_changes import changes_read_past, refuse_lost, table_id
from penstock.spark.sql_text import quoted_name, quoted_text
from penstock.storage.delta_rows import count_at, open_table
from penstock.storage.stores import store_of
from penstock.verify.coordinates import IN_SOURCE, Expected, Spans, landed
from penstock.verify.report import began_in_table
from penstock.verify.rows import Rows, read_at
from penstock.verify.unread import summed, unread_of_files, unread_of_table

if TYPE_CHECKING:
    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Version
    from penstock.plan.model import TablePlan
    from penstock.storage.stores import Store
    from penstock.verify.context import VerifyContext
    from penstock.verify.coordinates import Columns, Coordinates, Key
    from penstock.verify.ledger_walk import Chain

# Records upstream that say nothing any more: somebody was forgotten, and nobody reads them.


def readable(source: VersionsSource) -> str:
    """Those that are not redacted, as a condition. Records that are have one header, and that is the first."""
    headers = source.holds.headers
    if headers is None or not source.holds.subjects:
        return "TRUE"
    return f"coalesce({quoted_name(headers)}[1]['key'], '') <> {quoted_text(FORGOTTEN)}"


def redacted(source: VersionsSource, version: int) -> int:
    """How many there are as of a version."""
    kept = readable(source)
    return 0 if kept == "TRUE" or version < 0 else count_at(source.uri, version, f"NOT ({kept})")


# What a table should have read of the table upstream: the coordinates that are there, as of the version read up to.


@dataclass(frozen=True)
class UpstreamRows:
    at_least: Expected
    """Read for certain."""
    at_most: Expected
    """And what may have been read beyond that: files of a version that is not read to its end."""


def columns_upstream(table: TablePlan) -> Columns | None:
    """None if the rows there do not say from which offset they came."""
    if table.input.origin != "kafka":
        return None
    return landed(table.input.raw) if table.input.coordinates == "kafka" else IN_SOURCE


def read_upstream(look: VerifyContext, chain: Chain, columns: Columns) -> UpstreamRows:
    """Terminal if the version can no longer be read."""
    source = look.table.versions
    assert source is not None
    rows = Rows(source.label, source.uri, columns, readable(source))
    log = DeltaLog(store_of(source, look.store), source.uri, rows.name)
    at = parse_version(look.tail.entry.after[0])
    progress = look.step(f"reading the coordinates of {rows.name}")
    whole = _expected(read_at(rows, at.read_up_to, {}, progress)) if at.read_up_to >= 0 else Expected()
    start = _start(look, chain)
    if start is None:
        look.report.doubts.append(_no_start(chain, rows.name))
        return UpstreamRows(Expected(), whole)
    began = None
    if not start.snapshot and start.version > 0:
        began = _earlier(look, rows, start.version - 1)
        if began is None:
            return UpstreamRows(Expected(), whole)
        _take(whole, began)
    if to_its_end(at, log, source.uri):
        return UpstreamRows(whole, whole)
    last = None if at.snapshot or at.version == 0 else _earlier(look, rows, at.version - 1)
    if last is None:
        return UpstreamRows(Expected(), whole)
    sure = _expected(last)
    if began is not None:
        _take(sure, began)
    return UpstreamRows(sure, whole)


def of_last_batch(look: VerifyContext, columns: Columns) -> dict[Key, Spans]:
    """The coordinates that the last batch has read; Terminal if a version can no longer be read."""
    source, entry = look.table.versions, look.tail.entry
    assert source is not None
    rows = Rows(source.label, source.uri, columns, readable(source))
    before, after = parse_version(entry.before[0]).read_up_to, parse_version(entry.after[0]).read_up_to
    earlier = read_at(rows, before, {}).present if before >= 0 else {}
    return {key: one - earlier.get(key, Spans()) for key, one in read_at(rows, after, {}).present.items()}


def _earlier(look: VerifyContext, rows: Rows, version: int) -> Coordinates | None:
    """None, and a doubt in the report, if a vacuum has taken that version."""
    try:
        return read_at(rows, version, {})
    except Terminal:
        doubt = f"version {version} of {rows.name} can no longer be read: what came after it cannot be told apart"
        look.report.doubts.append(doubt)
        return None


def stand_upstream(look: VerifyContext) -> None:
    """How far behind the table is, and whether what comes next is still there."""
    table, entry, report = look.table, look.tail.entry, look.report
    assert table.versions is not None
    by_name: dict[str, VersionsSource] = {source.label: source for source in (*table.delta_sources, table.versions)}
    names = named_streams(entry) or tuple(by_name)
    report.upstream = ", ".join(dict.fromkeys(names))
    report.unit = "file" if table.files is not None else "version"
    report.places, unread = [], []
    report.began = began_in_table(table.versions, look.began)
    report.doubts += [report.began.doubt] if report.began.doubt else []
    for name, after in zip(names, entry.after, strict=False):
        source, at = by_name.get(name, table.versions), parse_version(after)
        log = RecentLog(store_of(source, look.store), source.uri, name)
        versions = log.versions()
        read_up_to = at.version - 1 if at.snapshot and at.index < 0 else at.read_up_to
        report.places.append(PartitionLag(name, 0, read_up_to + 1, log.end(read_up_to + 1)))
        if source.as_files is not None:
            unread.append(unread_of_files(source.as_files, entry, look.store))
        else:
            unread.append(unread_of_table(source, name, at, look.store, follows_changes=table.aggregate is not None))
        if note := note_of_changes(look, source):
            report.notes.append(note)
        try:
            refuse_lost(at, table_id(log, versions), versions, table.name, name)
        except PenstockError as error:
            report.problems.append(error.message)
            report.hint = error.hint
    report.unread = summed(unread)


def note_of_changes(look: VerifyContext, source: VersionsSource) -> str | None:
    """Versions upstream that changed rows, and that the table has read past because an option says so: it is not all
    that the source has."""
    entry = look.tail.entry
    if len(entry.began) != 1 or len(entry.after) != 1:
        return None
    return changes_read_past(store_of(source, look.store), source, entry.began[0], entry.after[0])


def changed_upstream(look: VerifyContext) -> bool:
    """Rows that were read have been removed or replaced there."""
    source = look.table.versions
    assert source is not None
    log = DeltaLog(store_of(source, look.store), source.uri, source.label)
    return any((commit := log.commit(version)) is not None and commit.changes for version in log.versions())


def _start(look: VerifyContext, chain: Chain) -> Version | None:
    """Where the table began to read; None if that is no longer known, or a person moved its position."""
    if any(one.skipped or one.again for one in chain.accepted):
        return None
    return parse_version(look.began[0]) if look.began else None


def _no_start(chain: Chain, upstream: str) -> str:
    moved = [one for one in chain.accepted if one.skipped or one.again]
    why = (
        f"its position was moved by hand in version {moved[-1].version}"
        if moved
        else "where it began to read is no longer in its log"
    )
    return f"{why}: whether records of {upstream} are missing cannot be told"


def to_its_end(at: Version, log: DeltaLog, uri: str) -> bool:
    if at.read_up_to < at.version:
        return True
    if at.snapshot:
        return at.index + 1 >= len(open_table(uri, at.version).file_uris())
    commit = log.commit(at.version)
    return commit is not None and at.index + 1 >= commit.files_added


def _expected(found: Coordinates) -> Expected:
    made = Expected()
    made.add_all(found.levels())
    return made


def _take(whole: Expected, earlier: Coordinates) -> None:
    for key, levels in earlier.levels().items():
        for level in levels:
            whole.remove(key, level | Spans())


def reshapes(table: TablePlan) -> bool:
    """Many rows may come of one record."""
    return table.stages is not None and table.stages.transform is not None


# In which batch of a table a record came, by the ledgers alone: its offset tells the batch of the table that landed
# it, that the version, and so on down to the table that is looked at.


@dataclass(frozen=True)
class Arrival:
    topic: str
    partition: int
    start: int
    end: int
    number: int
    """The version of the table in which these offsets came."""


def arrivals(table: TablePlan, tables: Mapping[str, TablePlan], store: Store) -> list[Arrival]:
    batches = _batches(table, store)
    if table.topics is not None:
        return [
            Arrival(one.topic, one.partition, one.start, one.end, version)
            for version, entry in batches
            for before, after in zip(entry.before, entry.after, strict=True)
            for one in position.ranges(before, after)
        ]
    upstream = tables.get(table.source.project_table or "")
    if upstream is None or table.input.origin != "kafka":
        raise Terminal("its source is not a table of the project that lands topics", where=table.name)
    by_version = _by_version(batches, table.name)
    made = []
    for one in arrivals(upstream, tables, store):
        number = by_version(one.number)
        if number is not None:
            made.append(Arrival(one.topic, one.partition, one.start, one.end, number))
    return made


def _batches(table: TablePlan, store: Store) -> list[tuple[int, Entry]]:
    log = DeltaLog(store, table.uri, table.name)
    found: list[tuple[int, Entry]] = []
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
            if not found or found[-1][1].key != entry.key:
                found.append((version, entry))
        elif entry.kind != "genesis":
            raise Terminal(f"a {entry.kind} in version {version} of {table.name} moved rows", where=table.name)
    return found


def _by_version(batches: list[tuple[int, Entry]], table: str) -> Callable[[int], int | None]:
    """Of the table upstream: the batch that read a version of it."""
    ends = []
    for version, entry in batches:
        after = parse_version(entry.after[0])
        if not after.whole:
            raise Terminal("a batch ended within a version of its source", where=table)
        ends.append((after.read_up_to, version))

    def found(upstream: int) -> int | None:
        return next((version for up_to, version in ends if upstream <= up_to), None)

    return found
