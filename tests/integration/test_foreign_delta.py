"""A Delta table that is not Penstock's, by its path: copied, or through stages; and what others do to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.run_plan import rows, rows_at, run, run_well

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

COPY, SILVER = "bronze.copy", "silver.t"


def tables(place: Path, **options: Any) -> dict[str, Any]:
    source = {"delta": str(place), **options}
    return {
        COPY: {"from": source},
        SILVER: {
            "from": source,
            "sql": "SELECT id, amount, amount * 2 AS twice, _source FROM input",
            "expect": [{"name": "positive", "check": "twice > 0"}],
        },
    }


def add(spark: SparkSession, place: Path, first: int, last: int) -> None:
    made = spark.range(first, last).selectExpr("id", "CAST(id % 5 AS DOUBLE) AS amount")
    made.coalesce(2).write.format("delta").mode("append").save(str(place))


@pytest.mark.deep
def test_it_is_copied_and_judged_row_by_row(spark: SparkSession, broker: Any, project: Any, tmp_path: Path) -> None:
    place = tmp_path / "foreign"
    add(spark, place, 0, 30)
    add(spark, place, 0, 5)  # rows that look like others
    plan = project(tables(place, max_files=1))
    run_well(spark, plan)
    add(spark, place, 30, 40)
    run_well(spark, plan)
    wanted = sorted([*range(40), *range(5)])
    assert sorted(row["id"] for row in rows(plan, COPY)) == wanted
    assert set(rows(plan, COPY)[0]) == {"id", "amount"}
    assert sorted(row["id"] for row in rows(plan, SILVER)) == [number for number in wanted if number % 5]
    silver = plan.table(SILVER)
    assert silver is not None
    kept = rows_at(f"{silver.uri}__quarantine")
    assert sorted(row["value"] for row in kept) == sorted(
        f'{{"id":{number},"amount":0.0}}' for number in wanted if number % 5 == 0
    )
    assert len({str(row["_source"]) for row in [*kept, *rows(plan, SILVER)]}) == len(wanted), "each has its own"
    reports = verify(plan.tables, LocalStore())
    assert [report.verdict for report in reports] == ["complete", "complete"], [report.problems for report in reports]


def test_changes_of_others_stop_it_unless_they_are_to_be_passed_over(
    spark: SparkSession, broker: Any, project: Any, tmp_path: Path
) -> None:
    place = tmp_path / "foreign"
    add(spark, place, 0, 10)
    plan = project(tables(place))
    run_well(spark, plan)
    spark.sql(f"DELETE FROM delta.`{place}` WHERE id = 3")
    add(spark, place, 10, 12)
    heard = run(spark, plan)
    assert set(heard.errors) == {COPY, SILVER}
    assert heard.errors[COPY].hint is not None and "ignore_" in heard.errors[COPY].hint
    assert len(rows(plan, COPY)) == 10
    plan = project(tables(place, ignore_changes=True))
    run_well(spark, plan)
    found = sorted(row["id"] for row in rows(plan, COPY))
    assert set(found) == set(range(12)) and found[-2:] == [10, 11]
