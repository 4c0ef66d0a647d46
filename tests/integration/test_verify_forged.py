"""Forged lakes: whatever was taken, added, exchanged or changed, in a table's log or behind it, is found and named."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import lit

from penstock.verify.report import Report
from tests.integration.forger import Forger, Lake, changed, twice, without

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Forgery = Callable[[Forger], None]
ALWAYS, DEEP = False, True
"""Whether it takes --deep to find it."""
MERGED = ("silver.m", "silver.h", "silver.p", "silver.copy")


FEW_TABLES = ("bronze.t", "silver.t", "silver.m", "silver.h", "gold.t")


def made(spark: SparkSession, broker: Any, folder: Path, *names: str) -> Lake:
    topic = f"t-{uuid.uuid4().hex[:10]}"
    broker.create_topic(topic, 2, {})
    lake = Lake(spark, folder, broker.bootstrap, topic, names)
    lake.land(0, 40)
    lake.land(40, 30)
    return lake


@pytest.fixture(scope="module")
def honest(spark: SparkSession, broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return made(spark, broker, tmp_path_factory.mktemp("honest"), *FEW_TABLES)


@pytest.fixture(scope="module")
def whole(spark: SparkSession, broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return made(spark, broker, tmp_path_factory.mktemp("whole"))


def found(lake: Lake, folder: Path, name: str, forgery: Forgery, *, deep: bool) -> tuple[Report, str]:
    """What `verify` says of the table after it was forged, and all its words."""
    copy = lake.copy(folder)
    forgery(Forger(copy, name))
    table = name.removesuffix("__quarantine").removesuffix("__tombstones")
    report = copy.reports(table, deep=deep)[table]
    checks = [
        f"{one.name}: {one.said} {'; '.join(map(str, one.differences))}"
        for one in report.checks
        if one.outcome == "differs"
    ]
    spans = [
        f"{what} {one.topic}-{one.partition} {spans}"
        for one in report.partitions
        for what, spans in (("lost", list(one.lost)), ("doubled", one.doubled), ("unexpected", list(one.unexpected)))
        if spans
    ]
    broken = report.chain.broken if report.chain is not None else []
    return report, " | ".join([*report.problems, *broken, *spans, *checks])


def complete(lake: Lake) -> dict[str, Report]:
    reports = lake.reports(deep=True)
    told = {name: (one.verdict, one.problems, one.unproven) for name, one in reports.items()}
    differences = {name: [str(d) for check in one.checks for d in check.differences] for name, one in reports.items()}
    assert told == dict.fromkeys(told, ("complete", [], [])), differences
    return reports


def test_an_honest_lake_is_complete_by_all_that_is_compared(honest: Lake) -> None:
    reports = complete(honest)
    checks = {name: [(one.name, one.outcome) for one in report.checks] for name, report in reports.items()}
    assert checks["bronze.t"] == [("contents", "same"), ("pages", "same")]
    pages = [("pages", "same"), ("pages", "same")]
    rejected = ("quarantine", "same")
    assert checks["silver.t"] == [("contents", "same"), ("duplicates", "same"), rejected, *pages]
    assert checks["silver.m"] == [("merge", "same"), ("tombstones", "same"), rejected, ("pages", "same"), *pages]
    assert checks["gold.t"] == [("numbers", "same"), ("pages", "same")]
    assert reports["silver.h"].checks[0].compared > 25, "every version of a key, not the last alone"


FEW: list[tuple[str, Forgery, bool, str]] = [
    ("silver.m", lambda f: f.exchange(without("id = 7")), ALWAYS, "id 7: is missing"),
    ("silver.h", lambda f: f.exchange(twice), ALWAYS, "is there more than once"),
    ("silver.m__tombstones", lambda f: f.as_compaction(without("id = 16")), ALWAYS, "id 16, _sequence 66: is missing"),
    ("silver.t", lambda f: swap_duplicate(f), DEEP, "id 7, record"),
    ("bronze.t", lambda f: f.spoil_a_page(), DEEP, "value is "),
    ("gold.t", lambda f: f.lose_a_file(), ALWAYS, ".parquet ("),
    ("silver.t", lambda f: f.exchange(without("id = 7")), ALWAYS, "(version "),
    ("silver.t__quarantine", lambda f: f.exchange(lambda rows: rows.where("_source.offset <> 31")), ALWAYS, "batch 1."),
    ("silver.t", lambda f: f.as_compaction(without("id = 7")), ALWAYS, "changes no row"),
    ("silver.t__quarantine", lambda f: f.exchange(changed("value", "'{}'")), DEEP, "is not as its source has it"),
    ("silver.m", lambda f: f.exchange(invented), ALWAYS, "id 4711: should not be there"),
    ("bronze.t", lambda f: f.lose_an_add(), ALWAYS, "(batch 1.2) says that it wrote 30 rows, its files have 0"),
]


@pytest.mark.parametrize(("name", "forgery", "deep", "named"), FEW, ids=lambda one: one if isinstance(one, str) else "")
def test_what_was_forged_is_found_and_named(
    honest: Lake, tmp_path: Path, name: str, forgery: Forgery, deep: bool, named: str
) -> None:
    report, said = found(honest, tmp_path, name, forgery, deep=deep)
    assert report.verdict == "wrong", (report.verdict, said)
    assert named in said, said
    assert not report.ok(allow_behind=True, allow_partial=True)


def invented(rows: Any) -> Any:
    """A row that no change has made."""
    return rows.union(rows.limit(1).withColumn("id", lit(4711).cast("bigint")))


def rewritten(column: str, value: str) -> Callable[[Any], Any]:
    def change(rows: Any) -> Any:
        kind = rows.schema[column].dataType.simpleString()
        return rows.selectExpr(*(f"CAST({value} AS {kind}) AS {n}" if n == column else n for n in rows.columns))

    return change


def swap_duplicate(forger: Forger) -> None:
    """A kept row becomes the record that was rightly left out as its duplicate, wherever that lies."""
    kept = forger.rows().where("id = 7").first()
    assert kept is not None
    bronze = Forger(forger.lake, "bronze.t").rows().collect()
    same = [
        one for one in bronze if (said := json.loads(one.value))["id"] == 7 and said["n"] < 60 and said["n"] % 10 != 3
    ]
    other = next(one for one in same if (one.partition, one.offset) != (kept._source.partition, kept._source.offset))
    n, city = json.loads(other.value)["n"], json.loads(other.value).get("city")
    place = f"named_struct('topic', '{other.topic}', 'partition', {other.partition}, 'offset', {other.offset}L)"
    values = {"n": str(n), "city": f"'{city}'" if city else "CAST(NULL AS STRING)", "_source": place}
    values["op"] = f"'{json.loads(other.value)['op']}'"

    def change(rows: Any) -> Any:
        return rows.selectExpr(*(f"IF(id = 7, {values[c]}, {c}) AS {c}" if c in values else c for c in rows.columns))

    forger.exchange(change)


def _all() -> list[tuple[str, Forgery, bool]]:
    """Every kind of table by every kind of forgery that it knows."""
    made: list[tuple[str, Forgery, bool]] = []
    every = ("bronze.t", "silver.t", "silver.sql", *MERGED, "audit.m", "gold.t", "files.t")
    dead = [f"{name}__tombstones" for name in ("silver.m", "silver.h", "silver.p", "silver.copy")]
    for name in (*every, "silver.t__quarantine", *dead):
        made += [(name, lambda f: f.lose_a_file(), ALWAYS), (name, lambda f: f.cut_a_file(), ALWAYS)]
        made += [(name, lambda f: f.spoil_a_page(), DEEP)]
    key = {"gold.t": "city = 'city-1'", "silver.t__quarantine": "_source.offset = 31"}
    for name in (*every, "silver.t__quarantine"):
        condition = key.get(name, "offset = 5" if name == "bronze.t" else "id = 7")
        if name == "audit.m":
            condition = "version = 2"
        made += [(name, lambda f, c=condition: f.exchange(without(c)), ALWAYS)]  # type: ignore[misc]
        made += [(name, lambda f: f.exchange(twice), ALWAYS)]
        made += [(name, lambda f, c=condition: f.as_compaction(without(c)), ALWAYS)]  # type: ignore[misc]
    for name in every:
        condition = key.get(name, "offset = 5" if name == "bronze.t" else "id = 7")
        if name == "audit.m":
            condition = "version = 2"
        made += [(name, lambda f, c=condition: f.as_penstock(f"DELETE FROM T WHERE {c}"), ALWAYS)]  # type: ignore[misc]
        made += [
            (name, lambda f, c=condition: f.as_penstock(f"DELETE FROM T WHERE {c}", kind="batch"), ALWAYS)  # type: ignore[misc]
        ]
        made += [(name, lambda f: f.as_penstock("INSERT INTO T SELECT * FROM T LIMIT 1"), ALWAYS)]
    values = {
        "bronze.t": changed("value", "'{}'"),
        "silver.t": changed("city", "'elsewhere'"),
        "silver.sql": changed("twice", "-1"),
        "silver.m": changed("city", "'elsewhere'"),
        "silver.h": changed("city", "'elsewhere'"),
        "silver.p": changed("city", "'elsewhere'"),
        "silver.copy": changed("city", "'elsewhere'"),
        "gold.t": changed("rows", "rows + 1"),
        "files.t": changed("city", "'elsewhere'"),
    }
    for name, change in values.items():
        deep = DEEP if name in ("bronze.t", "silver.t", "silver.sql", "files.t") else ALWAYS
        made += [(name, lambda f, c=change: f.exchange(c), deep)]  # type: ignore[misc]
        made += [(name, lambda f, c=change: f.as_compaction(c), deep)]  # type: ignore[misc]
    for name in dead:
        later = "999"
        if name.startswith("silver.copy"):
            later = "named_struct('version', 999L, 'kind', 0)"
        made += [
            (name, lambda f: f.as_compaction(without("id = 16")), ALWAYS),
            (name, lambda f, v=later: f.as_compaction(changed("_sequence", v)), ALWAYS),  # type: ignore[misc]
            (name, lambda f, v=later: f.exchange(changed("_sequence", v)), ALWAYS),  # type: ignore[misc]
            (name, lambda f: f.exchange(changed("id", "-1")), ALWAYS),
        ]
    made += [("silver.h__tombstones", lambda f: f.exchange(without("_sequence IN (0, 44)")), ALWAYS)]
    other = "IF({}, {}, 'forged')"
    made += [
        ("silver.past", lambda f: f.as_compaction(rewritten("city", other.format("is_current", "city"))), ALWAYS),
        ("silver.past", lambda f: f.as_compaction(rewritten("valid_to", "NULL")), ALWAYS),
        ("silver.past__tombstones", lambda f: f.as_compaction(without("id = 16")), ALWAYS),
        ("silver.p", lambda f: f.as_compaction(rewritten("_since", "NULL")), ALWAYS),
        ("files.q__quarantine", lambda f: f.exchange(changed("value", "'{}'")), DEEP),
        ("files.q__quarantine", lambda f: f.exchange(without("_source.row = 13")), ALWAYS),
        ("gold.seen", lambda f: f.exchange(without("id = 7")), DEEP),
        ("gold.seen", lambda f: f.as_compaction(without("id = 7")), ALWAYS),
    ]
    made += [(name, lambda f: f.lose_an_add(), ALWAYS) for name in (*every, "silver.t__quarantine", "gold.seen")]
    made += [(name, lambda f: f.miscount(), ALWAYS) for name in ("bronze.t", "silver.t", "files.t")]
    return made


@pytest.mark.deep
def test_an_honest_lake_with_every_kind_of_table_is_complete(whole: Lake) -> None:
    assert complete(whole)["files.t"].checks[0].compared == 70


@pytest.mark.deep
@pytest.mark.parametrize("number", range(len(_all())))
def test_every_forgery_of_every_table_is_found(whole: Lake, tmp_path: Path, number: int) -> None:
    name, forgery, deep = _all()[number]
    report, said = found(whole, tmp_path, name, forgery, deep=deep)
    assert report.verdict == "wrong", (name, report.verdict, said, report.unproven)
    assert said, name
