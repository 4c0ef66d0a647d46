"""Which group of an aggregate makes it fail, and in which metric: a sum that overflows, an expression that raises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.engine.aggregate.groups import computed, group_names, touched
from penstock.engine.isolation.failure import Failure, data_failure
from penstock.engine.isolation.numbered import NUMBER, Numbered
from penstock.engine.isolation.search import first_failing
from penstock.errors import RowRaised
from penstock.plan.stages import AggregatePlan

Within = Callable[[DataFrame, DataFrame], DataFrame]
"""Of rows, those that lie in some groups."""


def group_at_fault(
    error: Exception, rows: DataFrame, groups: DataFrame | None, plan: AggregatePlan, within: Within, table: str
) -> RowRaised | None:
    """None if the data are not to blame. Without `groups` all that the rows have are looked at."""
    failure = data_failure(error)
    if failure is None:
        return None
    try:
        return _found(failure, rows, groups, plan, within, table)
    except Exception:  # it is told without the group then
        return _told(failure, "", table)


def _found(
    failure: Failure, rows: DataFrame, groups: DataFrame | None, plan: AggregatePlan, within: Within, table: str
) -> RowRaised:
    some = groups if groups is not None else touched(rows, plan)
    kept = some.withColumn(NUMBER, F.monotonically_increasing_id()).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        numbered = Numbered(kept)

        def probe(first: int, end: int, metrics: Mapping[str, str] = plan.metrics) -> Failure | None:
            made = computed(within(rows, numbered.between(first, end)), replace(plan, metrics=metrics))
            return _raised(made)

        if (without := probe(0, 0)) is not None:
            return _told(without, "", table)
        number = first_failing(numbered.count, probe)
        if number is None:
            return _told(failure, "", table)
        shown = numbered.between(number, number + 1).selectExpr(
            *(f"CAST(`{name}` AS STRING) AS `{name}`" for name in group_names(plan))
        )
        row = shown.first()
        assert row is not None
        group = ", ".join(f"{name} = {value}" for name, value in row.asDict().items()) or "of all rows"
        for name, expression in plan.metrics.items():
            if (raised := probe(number, number + 1, {name: expression})) is not None:
                return _told(raised, f"in the group {group}, {name}: {expression}: ", table)
        return _told(failure, f"in the group {group}: ", table)
    finally:
        kept.unpersist()


def _raised(made: DataFrame) -> Failure | None:
    try:
        made.write.format("noop").mode("overwrite").save()
    except Exception as error:
        failure = data_failure(error)
        if failure is None:
            raise
        return failure
    return None


def _told(failure: Failure, where: str, table: str) -> RowRaised:
    return RowRaised(
        f"an expression of the aggregate raises: {where}{failure.full}",
        where=table,
        hint="nothing was written. An aggregate sets no rows aside: correct the rows that it reads, or the expression: "
        "sum(CAST(amount AS DECIMAL(38,2))), try_sum, try_cast, try_divide",
    )
