"""What a table should have read of the table upstream: the coordinates that are there, as of the version read up to."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.delta.start import refuse_lost, table_id
from penstock.engine.delta.upstream_change import changes_read_past
from penstock.engine.delta.version import Version, parse
from penstock.engine.protocol.entry import named_streams
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.stores import store_of
from penstock.errors import PenstockError, Terminal
from penstock.ops.place import Place
from penstock.ops.recent import RecentLog
from penstock.ops.verify.chain import Chain
from penstock.ops.verify.coordinates import IN_SOURCE, Columns, Coordinates, landed
from penstock.ops.verify.expected import Expected, Key
from penstock.ops.verify.look import Look
from penstock.ops.verify.redacted import readable
from penstock.ops.verify.rows import Rows, open_table, read_at
from penstock.ops.verify.spans import Spans
from penstock.ops.verify.started import began_in_table
from penstock.ops.verify.unread import summed, unread_of_files, unread_of_table
from penstock.plan.files import FilesSource
from penstock.plan.model import DeltaSource, TablePlan


@dataclass(frozen=True)
class Upstream:
    at_least: Expected
    """Read for certain."""
    at_most: Expected
    """And what may have been read beyond that: files of a version that is not read to its end."""


def columns_upstream(table: TablePlan) -> Columns | None:
    """None if the rows there do not say from which offset they came."""
    if table.input.origin != "kafka":
        return None
    return landed(table.input.raw) if table.input.coordinates == "kafka" else IN_SOURCE


def read_upstream(look: Look, chain: Chain, columns: Columns) -> Upstream:
    """Terminal if the version can no longer be read."""
    source = look.table.source
    assert isinstance(source, DeltaSource)
    rows = Rows(source.table or source.uri, source.uri, columns, readable(source))
    log = DeltaLog(store_of(source, look.store), source.uri, rows.name)
    at = parse(look.tail.entry.after[0])
    progress = look.step(f"reading the coordinates of {rows.name}")
    whole = _expected(read_at(rows, at.read_up_to, {}, progress)) if at.read_up_to >= 0 else Expected()
    start = _start(look, chain)
    if start is None:
        look.report.doubts.append(_no_start(chain, rows.name))
        return Upstream(Expected(), whole)
    began = None
    if not start.snapshot and start.version > 0:
        began = _earlier(look, rows, start.version - 1)
        if began is None:
            return Upstream(Expected(), whole)
        _take(whole, began)
    if to_its_end(at, log, source.uri):
        return Upstream(whole, whole)
    last = None if at.snapshot or at.version == 0 else _earlier(look, rows, at.version - 1)
    if last is None:
        return Upstream(Expected(), whole)
    sure = _expected(last)
    if began is not None:
        _take(sure, began)
    return Upstream(sure, whole)


def of_last_batch(look: Look, columns: Columns) -> dict[Key, Spans]:
    """The coordinates that the last batch has read; Terminal if a version can no longer be read."""
    source, entry = look.table.source, look.tail.entry
    assert isinstance(source, DeltaSource)
    rows = Rows(source.table or source.uri, source.uri, columns, readable(source))
    before, after = parse(entry.before[0]).read_up_to, parse(entry.after[0]).read_up_to
    earlier = read_at(rows, before, {}).present if before >= 0 else {}
    return {key: one - earlier.get(key, Spans()) for key, one in read_at(rows, after, {}).present.items()}


def _earlier(look: Look, rows: Rows, version: int) -> Coordinates | None:
    """None, and a doubt in the report, if a vacuum has taken that version."""
    try:
        return read_at(rows, version, {})
    except Terminal:
        doubt = f"version {version} of {rows.name} can no longer be read: what came after it cannot be told apart"
        look.report.doubts.append(doubt)
        return None


def stand_upstream(look: Look) -> None:
    """How far behind the table is, and whether what comes next is still there."""
    table, entry, report = look.table, look.tail.entry, look.report
    assert isinstance(table.source, DeltaSource)
    read = table.stream.inputs.values() if table.stream is not None else (table.source,)
    by_name = {one.table or one.uri: one for one in read}
    names = named_streams(entry) or tuple(by_name)
    report.upstream = ", ".join(dict.fromkeys(names))
    report.unit = "file" if isinstance(table.source, FilesSource) else "version"
    report.places, unread = [], []
    report.began = began_in_table(table.source, look.began)
    report.doubts += [report.began.doubt] if report.began.doubt else []
    for name, after in zip(names, entry.after, strict=False):
        source, at = by_name.get(name, table.source), parse(after)
        log = RecentLog(store_of(source, look.store), source.uri, name)
        versions = log.versions()
        read_up_to = at.version - 1 if at.snapshot and at.index < 0 else at.read_up_to
        report.places.append(Place(name, 0, read_up_to + 1, log.end(read_up_to + 1)))
        if isinstance(source, FilesSource):
            unread.append(unread_of_files(source, entry, look.store))
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


def note_of_changes(look: Look, source: DeltaSource) -> str | None:
    """Versions upstream that changed rows, and that the table has read past because an option says so: it is not all
    that the source has."""
    entry = look.tail.entry
    if len(entry.began) != 1 or len(entry.after) != 1:
        return None
    return changes_read_past(store_of(source, look.store), source, entry.began[0], entry.after[0])


def changed_upstream(look: Look) -> bool:
    """Rows that were read have been removed or replaced there."""
    source = look.table.source
    assert isinstance(source, DeltaSource)
    log = DeltaLog(store_of(source, look.store), source.uri, source.table or source.uri)
    return any((commit := log.commit(version)) is not None and commit.changes for version in log.versions())


def _start(look: Look, chain: Chain) -> Version | None:
    """Where the table began to read; None if that is no longer known, or a person moved its position."""
    if any(one.skipped or one.again for one in chain.accepted):
        return None
    return parse(look.began[0]) if look.began else None


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
