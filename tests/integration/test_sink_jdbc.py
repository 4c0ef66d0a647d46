"""A database that upserts in no way of its own: Derby, which comes with Spark."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from penstock.errors import Terminal
from tests.integration.change_source import Followed, quarantined

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_are_updated_or_else_inserted(spark: SparkSession, project: Any) -> None:
    followed = Followed(spark, project, "id STRING, at TIMESTAMP, day DATE, m DECIMAL(20, 5), n INT")
    url = f"jdbc:derby:memory:{uuid.uuid4().hex};create=true"
    plan = followed.plan({"jdbc": url, "table": "c"})
    followed.sql(
        "INSERT INTO T VALUES ('a', TIMESTAMP'2026-03-29 02:30:00.123456Z', DATE'2026-03-29', 1.00001, 1), "
        "('b', NULL, NULL, NULL, NULL), ('c', NULL, NULL, NULL, 3), (repeat('x', 300), NULL, NULL, NULL, 4)"
    )
    followed.run(plan)
    followed.sql("UPDATE T SET n = 2 WHERE id = 'a'")
    followed.sql("DELETE FROM T WHERE id = 'c'")
    followed.run(plan)
    read = spark.read.format("jdbc").options(url=url, dbtable='"c"').load()
    found = {row["id"]: row for row in read.selectExpr("*", "CAST(at AS STRING) AS text").collect()}
    assert found.keys() == {"a", "b"}
    assert (found["a"]["text"], str(found["a"]["day"]), str(found["a"]["m"]), found["a"]["n"]) == (
        "2026-03-29 02:30:00.123456",
        "2026-03-29",
        "1.00001",
        2,
    )
    assert [found["b"][name] for name in ("at", "day", "m", "n")] == [None] * 4
    assert [row["key"] for row in quarantined(plan)] == ["x" * 300]
    error = followed.error(followed.plan({"jdbc": "jdbc:nobody://h/d", "table": "c"}))
    assert isinstance(error, Terminal) and "no driver" in error.message and "jars" in (error.hint or "")
