"""The condition that finds the rows of somebody: values and columns of every kind, and nothing of it in a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.plan.subjects import SubjectColumnPlan
from penstock.storage.stores import LocalStore
from penstock.tables.subject_columns import SubjectOrders, rows_of
from penstock.tables.suppression_list import SuppressionList

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


SCHEMA = "customer STRUCT<id: STRING, name: STRING>, n INT"
IN_VALUE = {"json": "value", "path": "$.customer.id"}


def test_names_are_found_in_values_of_every_kind(spark: SparkSession, tmp_path: Any) -> None:
    wanted = _wanted(tmp_path, "42", "alice@example.org", "Zoë Müller", "0.5")
    rows = [
        ('{"id": 42}', True),
        ('{"id": "42"}', True),
        ('{"id": 42.00}', True),
        ('{"id": 4.2e1}', True),
        ('{"id": [7, 42]}', True),
        ('{"other": 1, "id": 7, "id": 42}', True),
        ('{"id": "alice\\u0040example.org"}', True),
        ('{"id": 0.50}', True),
        ('{"id": 420}', False),
        ('{"id": "042"}', False),
        ('{"id": null, "other": 42}', False),
        ('{"inner": {"id": 42}}', False),
        ('{"id": {"id": 42}}', False),
        ('{"id": 1e999999999}', False),
        ("42", False),
        ('{"id": 42', True),
        ('{"id": 7, "other": 42} and more', True),
        ("x,42,y", True),
        ("x,142,y", False),
        ("x42", False),
        ("42é", False),
        ("to alice@example.org.", True),
        ("malice@example.org", False),
        ('{"id": "Zo\\u00eb M\\u00fcller", ', True),
        ("Zoë Müllerin", False),
        ("", False),
        (None, False),
    ]
    frame = spark.createDataFrame([(text,) for text, _ in rows], "text STRING")
    assert _found(frame, {"customer": (SubjectColumnPlan("text", "$.id"),)}, wanted) == [held for _, held in rows]
    as_bytes = frame.selectExpr("CAST(text AS BINARY) AS text")
    assert _found(as_bytes, {"customer": (SubjectColumnPlan("text", "$.id"),)}, wanted) == [held for _, held in rows]
    latin = spark.createDataFrame([(b"an Zo\xeb M\xfcller",), (b"\xff 42",), (b"\xff42a",)], "text BINARY")
    assert _found(latin, {"customer": (SubjectColumnPlan("text"),)}, wanted) == [True, True, False]


def test_names_are_found_in_columns_of_every_type(spark: SparkSession, tmp_path: Any) -> None:
    wanted = _wanted(tmp_path, "42", "2026-01-02")
    kinds = {
        "CAST(42 AS TINYINT)": True,
        "42": True,
        "42L": True,
        "CAST(42 AS DECIMAL(9,2))": True,
        "42.0D": True,
        "42.5D": False,
        "'42'": True,
        "'42.0'": False,
        "NULL": False,
        "CAST(NULL AS BIGINT)": False,
        "array(1, 42)": True,
        "array('7')": False,
        "DATE'2026-01-02'": True,
        "named_struct('id', 42).id": True,
    }
    for expression, held in kinds.items():
        frame = spark.range(1).selectExpr(f"{expression} AS c")
        assert _found(frame, {"customer": (SubjectColumnPlan("c"),)}, wanted) == [held], expression
    nested = spark.range(1).selectExpr("named_struct('at', named_struct('id', 42)) AS c")
    assert _found(nested, {"customer": (SubjectColumnPlan("c.at.id"),)}, wanted) == [True]
    assert _found(nested, {"device": (SubjectColumnPlan("c.at.id"),)}, wanted) is None
    within = spark.range(1).selectExpr("""'{"doc": "{\\\\"items\\\\": [{\\\\"id\\\\": 42}]}"}' AS c""")
    assert _found(within, {"customer": (SubjectColumnPlan("c", "$.doc.items[*].id"),)}, wanted) == [True]
    assert _found(within, {"customer": (SubjectColumnPlan("c", "$['doc'].items[0]['id']"),)}, wanted) == [True]
    assert _found(within, {"customer": (SubjectColumnPlan("c", "$.doc.items[1].id"),)}, wanted) == [False]


def test_neither_key_nor_hash_is_in_a_plan(spark: SparkSession, tmp_path: Any) -> None:
    wanted = _wanted(tmp_path, "42")
    condition = rows_of(spark.range(1), {"customer": (SubjectColumnPlan("id"),)}, wanted, "t")
    assert condition is not None
    text = spark.range(1).where(condition)._jdf.queryExecution().toString()
    assert "penstock_forgotten" in text
    for secret in (wanted.orders[0].hash, wanted.orders[0].hash[:12], wanted.key.hex()[:12]):
        assert secret not in text and secret not in str(condition) and secret not in repr(wanted.key[:0])


def _wanted(folder: Any, *names: str) -> SubjectOrders:
    from penstock.plan.subjects import ForgetPlan

    made = SuppressionList(ForgetPlan(str(folder / "forget")), LocalStore())
    orders = tuple(made.add("customer", name) for name in names)
    return SubjectOrders(made.key, orders)


def _found(frame: Any, subjects: Any, wanted: SubjectOrders) -> list[bool] | None:
    condition = rows_of(frame, subjects, wanted, "t")
    return None if condition is None else [row[0] for row in frame.select(condition).collect()]
