"""What a check that needs Spark has at hand, and the shape of its answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.delta.reader import DeltaReader
from penstock.engine.delta.start import table_id
from penstock.engine.delta.version import parse
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.store import Store
from penstock.engine.stores import store_of
from penstock.engine.upkeep.places import places
from penstock.errors import PenstockError
from penstock.ops.sql.causes import explained
from penstock.ops.sql.names import Readable
from penstock.ops.sql.pinned import Pinned
from penstock.ops.verify.again.content import Content
from penstock.ops.verify.again.held import Held, Sides, can_sample, hold
from penstock.ops.verify.again.sample import Sample, sample_of
from penstock.ops.verify.check import Check
from penstock.ops.verify.data_files import own_file
from penstock.ops.verify.report import Report
from penstock.plan.model import DeltaSource, TablePlan


@dataclass(frozen=True)
class Around:
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
    def source(self) -> DeltaSource:
        assert isinstance(self.table.source, DeltaSource)
        return self.table.source

    @property
    def upstream(self) -> str:
        return self.source.table or self.source.uri

    @property
    def upstream_log(self) -> DeltaLog:
        return DeltaLog(store_of(self.source, self.store), self.source.uri, self.upstream)

    @property
    def version(self) -> int:
        assert self.report.version is not None
        return self.report.version

    def there(self) -> DataFrame:
        return self.spark.read.format("delta").option("versionAsOf", self.version).load(self.table.uri)

    def reader(self) -> DeltaReader:
        store, coordinates = store_of(self.source, self.store), self.table.input.coordinates
        where = self.table.isolates_where
        return DeltaReader(self.source, store, self.table.name, coordinates=coordinates, keep_raising=where)

    @contextmanager
    def reading(self, version: int) -> Iterator[None]:
        """What Spark raises within is said in Penstock's words: a file that is gone, a version that is."""
        read = [Pinned(Readable(self.table.name, self.table.uri), self.version)]
        if isinstance(self.table.source, DeltaSource):
            read.append(Pinned(Readable(self.upstream, self.source.uri), version))
        with explained(self.spark, None, read, self.logs):
            yield

    def begun(self, name: str, against: str, unit: str) -> Check:
        held = f"{self.table.name}@v{self.version}"
        return Check(name, held, against, "not made", "", unit=unit, of=self.report.rows)

    def sample(self, sides: Sides, rows: int) -> Sample:
        """`rows` are those that the table has."""
        wanted = sample_of(rows, self.version, deep=self.deep)
        return wanted if can_sample(sides) else Sample()

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
        return found is None or found == parse(entry.after[0]).table_id


@dataclass(frozen=True)
class Comparison:
    held: Held
    sample: Sample


def compare(around: Around, sides: Sides, rows: int) -> Comparison:
    sample = around.sample(sides, rows)
    return Comparison(hold(sides, sample), sample)


def answer(around: Around, check: Check, found: Comparison, content: Content, loose: Sequence[str]) -> Check:
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


def refused(check: Check, error: PenstockError) -> Check:
    check.outcome, check.said = "unverifiable", error.message
    return check
