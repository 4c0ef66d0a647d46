"""The context of a check that needs Spark, and its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.ledger.delta_log import DeltaLog, Origin
from penstock.ledger.entry import OUTSIDE_BATCHES
from penstock.ledger.pending import start_position
from penstock.ledger.position import parse_version, same_positions
from penstock.maintenance.tables import maintained_tables
from penstock.sources.delta import DeltaReader
from penstock.sources.delta_changes import table_id
from penstock.sources.registry import SourceContext, source_kind
from penstock.sql.causes import explain_errors
from penstock.sql.versions import Readable, TableVersion
from penstock.storage.stores import source_store
from penstock.verify.data_files import path_named_in
from penstock.verify.recompute.diff import EVERY_KEY, can_sample, sample_of
from penstock.verify.report import Proof

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.delta_log import Commit
    from penstock.ledger.entry import Entry
    from penstock.ledger.source import Source
    from penstock.plan.model import TablePlan
    from penstock.plan.sources import VersionsSource
    from penstock.storage.stores import Store
    from penstock.verify.recompute.diff import KeyDiff, KeySample, Sides
    from penstock.verify.report import Report

# What a table holds at a version: which entries made its rows, and what else changed them.


@dataclass
class Content:
    entry: Entry | None = None
    """The last batch or fill: what the table holds was made from its source up to the position of this entry. None if
    there was none yet: the table should hold nothing."""
    known: bool = True
    """False if the log no longer has that entry."""
    at_once: bool = False
    """That entry made all rows of the table."""
    from_start: bool = False
    """Every entry that contributed to what it holds is in `entries`."""
    entries: list[Entry] = field(default_factory=list)
    """Those entries, newest first."""
    excuses: list[str] = field(default_factory=list)
    """Why its rows may rightly differ from what a query gives now."""


def content_at(log: DeltaLog, version: int, definition: str, *, every_batch_anew: bool = False) -> Content:
    content = Content()
    for commit in _backwards(log, version):
        if commit.operation == "RESTORE":  # to a time, not to a version: which version is unknown
            break
        entry = commit.entry if commit.origin is Origin.LEDGER else None
        if entry is None:
            continue
        if entry.kind == "forget":
            if commit.changes:
                content.excuses.append(f"version {commit.version} ({entry.kind}) changed rows of it beside its batches")
            continue
        if entry.kind == "genesis" or _emptied(commit, entry):
            _check_position(content, entry)
            content.from_start = True
            return content
        if not _makes_rows(entry) or (content.entry is not None and entry.key == content.entry.key):
            continue
        _check_position(content, entry)
        is_newest = content.entry is None
        content.entry = content.entry or entry
        content.entries.append(entry)
        if entry.pins.definition != definition:
            content.excuses.append(
                f"version {commit.version} was made by another definition ({entry.pins.definition}, now {definition})"
            )
        overwritten = commit.changes and commit.operation == "WRITE"
        filled = entry.kind != "batch" and entry.batch == 0
        if filled or every_batch_anew or overwritten:
            content.at_once, content.from_start = is_newest, True
            return content
    content.known = content.entry is not None
    return content


def _backwards(log: DeltaLog, version: int) -> Iterator[Commit]:
    """The commits from a version back to the first that the log still has; a RESTORE continues at the version it
    restored."""
    while version >= 0 and (commit := log.commit(version)) is not None:
        if commit.restored_to is not None:
            version = min(commit.restored_to, version - 1)
            continue
        yield commit
        version -= 1


def _makes_rows(entry: Entry) -> bool:
    """Whether the entry stands for rows of the table. A carry repeats what a batch or a fill said, which log retention
    may have removed."""
    if entry.kind in OUTSIDE_BATCHES:
        filled = entry.filled is not None and entry.filled[0] == entry.generation
        return entry.kind == "carry" and (entry.batch > 0 or filled)
    return entry.kind in ("batch", "fill")


def _emptied(commit: Commit, entry: Entry) -> bool:
    return entry.kind == "open" and (commit.changes or (bool(entry.began) and entry.began == entry.after))


def _check_position(content: Content, older: Entry) -> None:
    """Add an excuse if the position moved between two entries that made rows."""
    if content.entries and not same_positions(content.entries[-1].before, older.after):
        newer = content.entries[-1]
        content.excuses.append(
            f"its position was moved by hand before batch {newer.generation}.{newer.batch}: what was skipped is not in "
            "its numbers"
        )


# The context and the result.


@dataclass(frozen=True)
class RecomputeContext:
    spark: SparkSession
    store: Store
    table: TablePlan
    report: Report
    """Has the version that is checked."""
    deep: bool
    logs: str
    """Where Spark's own log is."""
    tables: Mapping[str, TablePlan] = field(default_factory=dict)
    """All tables of the project, by name."""

    @property
    def source(self) -> VersionsSource:
        assert self.table.versions is not None
        return self.table.versions

    @property
    def upstream(self) -> str:
        """The name of what it reads."""
        return self.table.versions.label if self.table.versions is not None else self.table.source.name

    @property
    def upstream_log(self) -> DeltaLog:
        return DeltaLog(source_store(self.source, self.store), self.source.uri, self.upstream)

    @property
    def log(self) -> DeltaLog:
        return DeltaLog(self.store, self.table.uri, self.table.name)

    @property
    def version(self) -> int:
        assert self.report.version is not None
        return self.report.version

    def table_rows(self) -> DataFrame:
        return self.spark.read.format("delta").option("versionAsOf", self.version).load(self.table.uri)

    def companion_rows(self, uri: str) -> DataFrame | None:
        """The rows of its quarantine or of its tombstones; None if there is no such table."""
        if not self.store.names(f"{uri}/_delta_log"):
            return None
        return self.spark.read.format("delta").load(uri)

    def start_position(self, entry: Entry) -> tuple[str, ...]:
        return start_position(self.log, entry)

    def version_read(self, content: Content) -> int | None:
        """The version of its source that it has read up to, -1 for topics; None if it has read nothing yet."""
        if content.entry is None:
            return None
        if self.table.topics is not None:
            return -1
        version = parse_version(content.entry.after[0]).read_up_to
        return version if version >= 0 else None

    def reader(self) -> Source:
        """Its source, with the coordinates of every row."""
        if self.table.delta is None:
            return source_kind(self.table.source.kind).open(self.table, SourceContext(lambda _: self.store, self.spark))
        store, coordinates = source_store(self.source, self.store), self.table.input.coordinates
        isolates = self.table.isolates_where
        return DeltaReader(self.source, store, self.table.name, coordinates=coordinates, keep_raising=isolates)

    @contextmanager
    def reading(self, version: int) -> Iterator[None]:
        """Turn what Spark raises inside into Penstock's own errors, such as a missing file or a missing version."""
        versions = [TableVersion(Readable(self.table.name, self.table.uri), self.version)]
        if self.table.versions is not None:
            versions.append(TableVersion(Readable(self.upstream, self.source.uri), version))
        with explain_errors(self.spark, None, versions, self.logs):
            yield

    def new_check(self, name: str, against: str, unit: str) -> Proof:
        subject = f"{self.table.name} version {self.version}"
        return Proof(name, subject, against, "not made", "", unit=unit, of=self.report.rows)

    def nothing_read(self, check: Proof) -> Proof:
        """The check of a table that has read nothing yet: right if it is empty."""
        check.outcome, check.said = ("not made" if self.report.rows else "same"), "nothing was read yet"
        return check

    def sample(self, sides: Sides, rows: int) -> KeySample:
        """The sample to compare; `rows` is how many rows the table has."""
        sample = sample_of(rows, self.version, deep=self.deep)
        return sample if can_sample(sides) else EVERY_KEY

    def own_file(self, message: str) -> str | None:
        """The file that an error message names, if it belongs to the table or to a table beside it."""
        file_names = (
            path_named_in(place.uri, self.version if place.kind == "table" else None, message)
            for place in maintained_tables(self.table)
        )
        return next((name for name in file_names if name is not None), None)

    def same_source(self, entry: Entry) -> bool:
        """False if the table upstream was recreated, which starts its versions over."""
        log = self.upstream_log
        current_id = table_id(log, log.versions())
        return current_id is None or current_id == parse_version(entry.after[0]).table_id


def conclude(
    context: RecomputeContext,
    check: Proof,
    diff: KeyDiff,
    excuses: Sequence[str],
    *,
    sample: KeySample = EVERY_KEY,
    loose: Sequence[str] = (),
) -> Proof:
    """Fill in the check from a comparison. A difference with an excuse is not a mistake, and not a proof either."""
    unit = check.unit
    check.compared, check.differing, check.differences = diff.compared, diff.differing, list(diff.differences)
    check.sampled = not sample.whole
    if sample.whole:
        check.of, extent = check.compared, f"all {diff.compared:,} {unit}"
    else:
        check.of = max(check.of, check.compared)
        extent = f"{diff.compared:,} of {check.of:,} {unit}"
        check.remarks.append(f"one {unit.removesuffix('s')} in {sample.every:,}, chosen by a hash of its keys")
    if diff.nondeterministic:
        check.remarks.append(
            f"{', '.join(loose)}: {diff.nondeterministic:,} {unit} have other values now, which may be right: they "
            "depend on the order of rows, on the moment, or on numbers within other values"
        )
    verb = "computed again from" if check.name == "numbers" else "compared with"
    if not diff.differing:
        check.outcome, check.said = "same", f"{extent} {verb} {check.against}: the same"
        return check
    differ = f"{diff.differing:,} differ{'s' if diff.differing == 1 else ''}"
    check.outcome, check.said = "differs", f"{extent} {verb} {check.against}: {differ}"
    if excuses:
        check.outcome = "stale"
        check.remarks += excuses
    check.remarks.append(f"`penstock replay {context.table.name}` rebuilds it from its source")
    return check
