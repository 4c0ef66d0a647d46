"""Values in files at the limits of their types: every line and every row lands, or is in quarantine with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.run_plan import make_plan, rows, rows_at, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id BIGINT NOT NULL, n DECIMAL(5,2), d DATE, t TIMESTAMP, s STRING"
HUGE = "100e2147483647"


def rejected(plan: Any, table: str) -> list[tuple[str, int, str, str]]:
    found = rows_at(f"{plan.table(table).uri}__quarantine")
    return sorted(
        (row["_source"]["file"].rpartition("/")[2], row["_source"]["row"], row["error_reason"], row["error_detail"])
        for row in found
    )


def parquet(spark: SparkSession, root: Path) -> None:
    """Six rows; only the first and the last are within the years that other systems have."""
    from pyspark.sql import functions as F

    last = 253402300799999999
    day, time = "date_from_unix_date({})", "timestamp_micros({}L)"
    values = [
        (1, day.format(-719162), time.format(-62135596800000000)),
        (2, day.format(-719163), time.format(0)),
        (3, day.format(0), time.format(last + 1)),
        (4, day.format(2**31 - 1), time.format(0)),
        (5, day.format(0), time.format(2**63 - 1)),
        (6, day.format(2932896), time.format(last)),
    ]
    frame = spark.range(1).select(
        F.expr(f"explode(array({', '.join(f'struct({i}L AS id, {d} AS d, {t} AS t)' for i, d, t in values)})) AS r")
    )
    named = frame.selectExpr("r.id", "r.d", "array(named_struct('t', r.t)) AS ts")
    named.coalesce(1).write.parquet(str(root / "made"))
    (part,) = (root / "made").glob("part-*.parquet")
    part.rename(root / "parquet" / "a.parquet")


def lines() -> list[str]:
    return [
        f'{{"id": 1, "s": {HUGE}}}',
        f'{{"id": 2, "n": {HUGE}}}',
        '{"id": 3e0, "n": "1.50", "d": "2026-01-31", "t": "2026-01-31T10:00:00.5Z", "s": 12345678901234567890123.50}',
        '{"id": 4, "d": "0000-01-01"}',
        '{"id": 5, "d": "2026-1-31", "d": 1}',
    ]


def landed(spark: SparkSession, root: Path, **sources: dict[str, Any]) -> Any:
    """A table over each folder."""
    tables = {name: {"from": {"files": name, **source}} for name, source in sources.items()}
    plan = make_plan(root, "127.0.0.1:1", tables)
    run_well(spark, plan)
    assert {one.verdict for one in verify(plan.tables, LocalStore())} == {"complete"}
    return plan


def test_values_of_files_land_exactly_or_are_rejected_with_their_field(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("headed", "parquet"):
        (tmp_path / name).mkdir()
    written = ["t,n,id,more,d", f",{HUGE},1,,", ",,2,x,0000-01-01", "2026-01-31T10:00Z, 1.50 ,3e0,,2026-01-31"]
    (tmp_path / "headed/a.csv").write_text("\n".join([*written, "," * 30_000]))
    parquet(spark, tmp_path)
    headed = {"format": "csv", "schema": SCHEMA, "options": {"header": True}}
    plan = landed(spark, tmp_path, headed=headed, parquet={"format": "parquet"})
    assert [(row["id"], str(row["n"]), str(row["d"])) for row in rows(plan, "headed")] == [(3, "1.50", "2026-01-31")]
    assert [fault[:3] for fault in rejected(plan, "headed")] == [
        ("a.csv", 1, "wrong_type"),
        ("a.csv", 2, "wrong_type"),
        ("a.csv", 4, "malformed_csv"),
    ]
    assert sorted(row["id"] for row in rows(plan, "parquet")) == [1, 6]
    detail = "is not within the years 0001 to 9999"
    assert [(row, reason, text) for _, row, reason, text in rejected(plan, "parquet")] == [
        (1, "out_of_range", f"d: {detail}"),
        (2, "out_of_range", f"ts: {detail}"),
        (3, "out_of_range", f"d: {detail}"),
        (4, "out_of_range", f"ts: {detail}"),
    ]


@pytest.mark.deep
def test_values_of_lines_and_documents(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("lines", "documents", "plain", "inferred"):
        (tmp_path / name).mkdir()
    (tmp_path / "lines/a.json").write_text("\n".join(lines()))
    (tmp_path / "documents/a.json").write_text(f" [{', '.join(lines())}]\n")
    (tmp_path / "plain/a.csv").write_text(f"1,{HUGE}\n2,1e0\n{',' * 30_000}\n3,0.01e-2147483648\n")
    (tmp_path / "inferred/a.csv").write_text(f"id,n\n1,{HUGE}\n2,1e2\n")
    plan = landed(
        spark,
        tmp_path,
        lines={"format": "json", "schema": SCHEMA},
        documents={"format": "json", "schema": SCHEMA, "options": {"multiLine": True}},
        plain={"format": "csv", "schema": "id BIGINT, n DECIMAL(5,2)"},
        inferred={"format": "csv", "options": {"header": True}},
    )
    faults = [
        ("a.json", 1, "out_of_range", f"n: {HUGE} does not fit DECIMAL(5,2)"),
        ("a.json", 3, "out_of_range", 'd: "0000-01-01" does not fit DATE'),
        ("a.json", 4, "duplicate_field", "d is there twice"),
    ]
    for name in ("lines", "documents"):
        found = {row["id"]: row["s"] for row in rows(plan, name)}
        assert found == {1: HUGE, 3: "12345678901234567890123.50"}
        assert rejected(plan, name) == faults
    assert [row["id"] for row in rows(plan, "plain")] == [2]
    assert [(fault[1], fault[2], fault[3].partition(":")[0]) for fault in rejected(plan, "plain")] == [
        (0, "wrong_type", "n"),
        (2, "malformed_csv", "30001 cells, not 2"),
        (3, "wrong_type", "n"),
    ]
    assert sorted((row["id"], row["n"]) for row in rows(plan, "inferred")) == [(1, HUGE), (2, "1e2")]
