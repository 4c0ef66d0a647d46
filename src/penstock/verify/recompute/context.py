"""What a check that needs Spark has at hand, and the shape of its answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.ledger.delta_log import DeltaLog, Origin
from penstock.ledger.entry import BESIDE
from penstock.ledger.position import parse_version
from penstock.maintenance.tables import places
from penstock.sources.delta import DeltaReader
from penstock.sources.delta_changes import table_id
from penstock.sources.registry import SourceContext, source_kind
from penstock.sql.causes import explained
from penstock.sql.versions import Readable, TableVersion
from penstock.storage.stores import store_of
from penstock.verify.data_files import own_file
from penstock.verify.ledger_walk import same
from penstock.verify.recompute.diff import KeySample, can_sample, hold, sample_of
from penstock.verify.report import Proof

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.errors import PenstockError
    from penstock.ledger.delta_log import Commit
    from penstock.ledger.entry import Entry
    from penstock.ledger.source import Source
    from penstock.plan.model import TablePlan
    from penstock.plan.sources import VersionsSource
    from penstock.storage.stores import Store
    from penstock.verify.recompute.diff import KeyDiff, Sides
    from penstock.verify.report import Report

# What a table holds at a version: the rows of which entry, and what else had a hand in it.


@dataclass
class Content:
    entry: Entry | None = None
    """The last batch or fill: what the table holds was made of its source up to this one's position. None if there was
    none yet: the table should hold nothing."""
    known: bool = True
    """False if the log no longer has that entry."""
    at_once: bool = False
    """That entry made all rows of the table."""
    from_start: bool = False
    """Every entry that had a part in what it holds is in `made`."""
    made: list[Entry] = field(default_factory=list)
    """Those entries, newest first."""
    excuses: list[str] = field(default_factory=list)
    """Why rows of it may rightly be others than a query of now gives."""


def content_at(log: DeltaLog, version: int, definition: str, *, every_batch_anew: bool = False) -> Content:
    found = Content()
    for commit in _backwards(log, version):
        if commit.operation == "RESTORE":  # to a time, not to a version: nobody knows which
            break
        entry = commit.entry if commit.origin is Origin.LEDGER else None
        if entry is None:
            continue
        if entry.kind == "forget":
            if commit.changes:
                found.excuses.append(f"version {commit.version} ({entry.kind}) changed rows of it beside its batches")
            continue
        if entry.kind == "genesis" or _emptied(commit, entry):
            _follow(found, entry)
            found.from_start = True
            return found
        if not _makes_rows(entry) or (found.entry is not None and entry.key == found.entry.key):
            continue
        _follow(found, entry)
        last = found.entry is None
        found.entry = found.entry or entry
        found.made.append(entry)
        if entry.pins.definition != definition:
            found.excuses.append(
                f"version {commit.version} was made by another definition ({entry.pins.definition}, now {definition})"
            )
        overwritten = commit.changes and commit.operation == "WRITE"
        filled = entry.kind != "batch" and entry.batch == 0
        if filled or every_batch_anew or overwritten:
            found.at_once, found.from_start = last, True
            return found
    found.known = found.entry is not None
    return found


def _backwards(log: DeltaLog, version: int) -> Iterator[Commit]:
    """From a version back to the first that the log still has; a RESTORE leads on from where it went back to."""
    while version >= 0 and (commit := log.commit(version)) is not None:
        if commit.restored_to is not None:
            version = min(commit.restored_to, version - 1)
            continue
        yield commit
        version -= 1


def _makes_rows(entry: Entry) -> bool:
    """A carry says again what a batch or a fill had said, which log retention may have taken."""
    if entry.kind in BESIDE:
        filled = entry.filled is not None and entry.filled[0] == entry.generation
        return entry.kind == "carry" and (entry.batch > 0 or filled)
    return entry.kind in ("batch", "fill")


def _emptied(commit: Commit, entry: Entry) -> bool:
    return entry.kind == "open" and (commit.changes or (bool(entry.began) and entry.began == entry.after))


def _follow(found: Content, older: Entry) -> None:
    """Between two entries that made rows the position must not have moved."""
    if found.made and not same(found.made[-1].before, older.after):
        newer = found.made[-1]
        found.excuses.append(
            f"its position was moved by hand before batch {newer.generation}.{newer.batch}: what was skipped is not in "
            "its numbers"
        )


# What a check that needs Spark has at hand, and the shape of its answer.


@dataclass(frozen=True)
class RecomputeContext:
    spark: SparkSession
    store: Store
    table: TablePlan
    report: Report
    """With the version that is looked at."""
    deep: bool
    logs: str
    """Where Spark's own log is."""
    tables: Mapping[str, TablePlan] = field(default_factory=dict)
    """All of the project, by their names."""

    @property
    def source(self) -> VersionsSource:
        assert self.table.versions is not None
        return self.table.versions

    @property
    def upstream(self) -> str:
        """What it reads, in words."""
        return self.table.versions.label if self.table.versions is not None else self.table.source.name

    @property
    def upstream_log(self) -> DeltaLog:
        return DeltaLog(store_of(self.source, self.store), self.source.uri, self.upstream)

    @property
    def version(self) -> int:
        assert self.report.version is not None
        return self.report.version

    def there(self) -> DataFrame:
        return self.spark.read.format("delta").option("versionAsOf", self.version).load(self.table.uri)

    def reader(self) -> Source:
        """Its source, with the coordinates of every row."""
        if self.table.delta is None:
            return source_kind(self.table.source.kind).open(self.table, SourceContext(lambda _: self.store, self.spark))
        store, coordinates = store_of(self.source, self.store), self.table.input.coordinates
        where = self.table.isolates_where
        return DeltaReader(self.source, store, self.table.name, coordinates=coordinates, keep_raising=where)

    @contextmanager
    def reading(self, version: int) -> Iterator[None]:
        """What Spark raises within is said in Penstock's words: a file that is gone, a version that is."""
        read = [TableVersion(Readable(self.table.name, self.table.uri), self.version)]
        if self.table.versions is not None:
            read.append(TableVersion(Readable(self.upstream, self.source.uri), version))
        with explained(self.spark, None, read, self.logs):
            yield

    def begun(self, name: str, against: str, unit: str) -> Proof:
        held = f"{self.table.name} version {self.version}"
        return Proof(name, held, against, "not made", "", unit=unit, of=self.report.rows)

    def sample(self, sides: Sides, rows: int) -> KeySample:
        """`rows` are those that the table has."""
        wanted = sample_of(rows, self.version, deep=self.deep)
        return wanted if can_sample(sides) else KeySample()

    def own_file(self, message: str) -> str | None:
        """The file of the table, or of what lies beside it, that the message of an error names."""
        found = (
            own_file(place.uri, self.version if place.kind == "table" else None, message)
            for place in places(self.table)
        )
        return next((name for name in found if name is not None), None)

    def same_source(self, entry: Entry) -> bool:
        """False if the table upstream was made again: its versions are others."""
        log = self.upstream_log
        found = table_id(log, log.versions())
        return found is None or found == parse_version(entry.after[0]).table_id


@dataclass(frozen=True)
class Comparison:
    held: KeyDiff
    sample: KeySample


def compare(around: RecomputeContext, sides: Sides, rows: int) -> Comparison:
    sample = around.sample(sides, rows)
    return Comparison(hold(sides, sample), sample)


def answer(around: RecomputeContext, check: Proof, found: Comparison, content: Content, loose: Sequence[str]) -> Proof:
    """What follows from a comparison. A difference that has an excuse is no mistake, and no proof either."""
    held, unit = found.held, check.unit
    check.compared, check.differing, check.differences = held.compared, held.differing, list(held.differences)
    check.sampled = not found.sample.whole
    check.of = check.compared if found.sample.whole else max(check.of, check.compared)
    how = f"all {held.compared:,} {unit}" if found.sample.whole else f"{held.compared:,} of {check.of:,} {unit}"
    if check.sampled:
        check.remarks.append(f"one {unit.removesuffix('s')} in {found.sample.every:,}, chosen by a hash of its keys")
    if held.unsteady:
        check.remarks.append(
            f"{', '.join(loose)}: {held.unsteady:,} {unit} have other values now, which may be right: they depend on "
            "the order of rows, on the moment, or on numbers within other values"
        )
    verb = "computed again from" if check.name == "numbers" else "compared with"
    if not held.differing:
        check.outcome, check.said = "same", f"{how} {verb} {check.against}: the same"
        return check
    differ = f"{held.differing:,} differ{'s' if held.differing == 1 else ''}"
    check.outcome, check.said = "differs", f"{how} {verb} {check.against}: {differ}"
    if content.excuses:
        check.outcome = "stale"
        check.remarks += content.excuses
    check.remarks.append(f"`penstock replay {around.table.name}` rebuilds it from its source")
    return check


def refused(check: Proof, error: PenstockError) -> Proof:
    check.outcome, check.said = "unverifiable", error.message
    return check
