"""Groups of a source table, recomputed from it whenever one of their rows arrives.

There is no state that could be lost or go wrong: a group's numbers are those of a batch query over the source as of the
version up to which the batch has read. So late rows of any age, restarts and count(DISTINCT …) are all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from delta.tables import DeltaTable
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.engine.aggregate.fault import group_at_fault
from penstock.engine.aggregate.groups import END, START, computed, group_names, source_at, touched
from penstock.engine.delta.version import parse
from penstock.engine.forget.suppression import Suppression
from penstock.engine.identifiers import quote
from penstock.engine.protocol.commit import carrying
from penstock.engine.protocol.entry import Entry, Pins
from penstock.engine.protocol.fates import Fates
from penstock.engine.protocol.function import Pinned
from penstock.engine.protocol.into import Into, in_files
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.store import Store
from penstock.engine.times import micros, not_after, not_before
from penstock.plan.model import DeltaSource, TablePlan
from penstock.plan.stages import AggregatePlan

_THERE = "__there"


class Recomputed:
    def __init__(self, table: TablePlan, store: Store, suppression: Suppression) -> None:
        assert table.aggregate is not None and isinstance(table.source, DeltaSource)
        self._plan, self._source = table.aggregate, table.source
        self._table = table.name
        self._log = DeltaLog(store, table.source.uri, table.source.table or table.source.uri)
        self._suppression = suppression
        self._groups: DataFrame | None = None

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> Pinned:
        self._suppression.look()
        return Pinned()

    def write(self, batch: DataFrame, entry: Entry, into: Into, *, files: int) -> None:
        rows = source_at(batch.sparkSession, self._source, parse(entry.after[0]).read_up_to)
        rows = self._suppression.source(rows)
        try:
            self._write(batch, rows, entry, into, files)
        except Exception as error:
            found = group_at_fault(error, rows, self._groups, self._plan, self._rows_of, self._table)
            if found is None:
                raise
            raise found from error

    def _rows_of(self, rows: DataFrame, groups: DataFrame) -> DataFrame:
        return within(rows, groups, self._plan, None)

    def _write(self, batch: DataFrame, rows: DataFrame, entry: Entry, into: Into, files: int) -> None:
        session = batch.sparkSession
        suppression = self._suppression
        if into.anew or self._plan.emit == "complete" or self._changed(entry):
            into.overwrite(in_files(suppression.own(computed(rows, self._plan)), files), entry)
            return
        groups = touched(batch, self._plan).persist(StorageLevel.MEMORY_AND_DISK)
        self._groups = groups
        bounds = _bounds(groups, self._plan)
        now = suppression.own(computed(within(rows, groups, self._plan, bounds), self._plan))
        with carrying(session, entry, idempotent=into.idempotent):
            _merge(session, into.uri, groups, now, self._plan, bounds)

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> Fates:
        return {}

    @property
    def grown(self) -> bool:
        return self._suppression.grown

    def done(self) -> None:
        groups, self._groups = self._groups, None
        self._suppression.let_go()
        if groups is not None:
            groups.unpersist()

    def _changed(self, entry: Entry) -> bool:
        """Rows that were counted before are gone or replaced: nobody says which groups they were in."""
        if self._source.changes:  # the feed has the row as it was: its group is among those of the batch
            return False
        before, after = parse(entry.before[0]), parse(entry.after[0])
        for version in range(before.version, after.read_up_to + 1):
            commit = self._log.commit(version)
            if commit is not None and commit.changes:
                return True
        return False


def within(rows: DataFrame, groups: DataFrame, plan: AggregatePlan, bounds: tuple[str, str] | None) -> DataFrame:
    """The rows of the source that lie in one of the groups; files that cannot hold one are not read."""
    if plan.time is not None and bounds is not None:
        first, last = bounds
        rows = rows.where(f"{quote(plan.time)} >= {first} AND {quote(plan.time)} < {last}")
    keys = [f"found.{quote(key)} <=> wanted.{quote(key)}" for key in plan.keys]
    if plan.time is not None:
        keys.append(f"found.{quote(plan.time)} >= wanted.{START} AND found.{quote(plan.time)} < wanted.{END}")
    return rows.alias("found").join(F.broadcast(groups).alias("wanted"), F.expr(" AND ".join(keys)), "left_semi")


def _bounds(groups: DataFrame, plan: AggregatePlan) -> tuple[str, str] | None:
    """The first and the last time of the windows, as literals; None without windows, or without groups."""
    if plan.time is None:
        return None
    kind = groups.schema[START].dataType
    found = groups.agg(F.expr(micros(f"min({START})", kind)), F.expr(micros(f"max({END})", kind))).first()
    if found is None or found[0] is None:
        return None
    return not_before(int(found[0]), kind), not_after(int(found[1]), kind)


def _merge(
    session: SparkSession,
    uri: str,
    groups: DataFrame,
    now: DataFrame,
    plan: AggregatePlan,
    bounds: tuple[str, str] | None,
) -> None:
    """The groups as they are now in place of what the table says of them; those without rows go."""
    names = group_names(plan)
    wanted = groups.alias("g").join(
        now.withColumn(_THERE, F.lit(True)).alias("n"),
        F.expr(" AND ".join(f"g.{quote(name)} <=> n.{quote(name)}" for name in names)),
        "left",
    )
    source = wanted.selectExpr(
        *(f"g.{quote(name)} AS {quote(name)}" for name in names),
        *(f"n.{quote(name)} AS {quote(name)}" for name in plan.metrics),
        f"n.{_THERE} IS NOT NULL AS {_THERE}",
    )
    match = [*_target_bounds(bounds), *(f"t.{quote(name)} <=> s.{quote(name)}" for name in names)]
    values = {quote(name): f"s.{quote(name)}" for name in [*names, *plan.metrics]}
    (
        DeltaTable.forPath(session, uri)
        .alias("t")
        .merge(source.alias("s"), " AND ".join(match))
        .whenMatchedDelete(f"NOT s.{_THERE}")
        .whenMatchedUpdate(set=values)  # type: ignore[arg-type]
        .whenNotMatchedInsert(f"s.{_THERE}", values=values)  # type: ignore[arg-type]
        .execute()
    )


def _target_bounds(bounds: tuple[str, str] | None) -> Iterator[str]:
    if bounds is not None:
        yield f"t.{START} >= {bounds[0]} AND t.{END} <= {bounds[1]}"
