"""`verify` computes groups again and holds copies against what they follow: what is wrong is named, what is right is
not. One lake for all tests; each changes a table of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.functions import lit

from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import dump
from penstock.storage.stores import LocalStore
from penstock.verify.recompute import diff
from penstock.verify.recompute.run import run_checks_in, tables_to_check
from penstock.verify.report import Proof, Report
from penstock.verify.table import verify
from tests.integration.run_plan import log, make_plan, run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import TablePlan

METRICS = {"n": "count(*)", "total": "sum(amount)", "ratio": "sum(weight)", "names": "collect_list(who)"}
COLUMNS = "id BIGINT, kind STRING, who STRING, ts TIMESTAMP, amount DECIMAL(9,2), weight DOUBLE"
HOURS = {"window": {"time": "ts", "every": "1 hour"}, "metrics": {"n": "count(*)"}}
COUNTED = {"keys": ["kind"], "metrics": {"n": "count(*)"}}
GROWN = {"delta": "T", "ignore_changes": True, "starting": {"version": 0}, "max_files": 1}
FOLLOWED = {"changes": "T", "starting": {"version": 0}}
TABLES: dict[str, Any] = {
    "gold.kinds": {"from": {**GROWN, "where": "id < 1000"}, "aggregate": COUNTED},
    "gold.sums": {
        "from": {"delta": "T", "ignore_changes": True},
        "aggregate": {"keys": ["kind"], "metrics": METRICS, "emit": "complete"},
    },
    "gold.closed": {"from": GROWN, "aggregate": {**HOURS, "emit": "final", "watermark": "30 min"}},
    "gold.since": {"from": {"changes": "T", "starting": {"version": 2}}, "aggregate": COUNTED},
    "gold.live": {"from": FOLLOWED, "aggregate": COUNTED},
    "silver.copy": {"from": FOLLOWED, "write": {"merge": {"keys": ["id"]}}},
    "silver.by_kind": {"from": FOLLOWED, "write": {"merge": {"keys": ["kind"], "history": "scd2"}}},
    "audit.sales": {"from": FOLLOWED, "audit": {"keys": ["id"]}},
}


class Shop:
    """A Delta table that the test itself changes, and what the project makes of it. `sql` may name it T."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.place = spark, str(folder / "sales")
        self.sql(f"CREATE TABLE T ({COLUMNS}) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
        tables = {
            name: {**table, "from": {k: self.place if v == "T" else v for k, v in table["from"].items()}}
            for name, table in TABLES.items()
        }
        self.plan = make_plan(folder, "127.0.0.1:1", tables)

    def sql(self, text: str) -> None:
        self.spark.sql(text.replace(" T ", f" delta.`{self.place}` "))

    def add(self, *rows: tuple[int, str, int]) -> None:
        made = [
            f"({id_}, {kind}, 'who-{id_}', timestamp'2026-01-01 {minute // 60:02d}:{minute % 60:02d}:00', {id_}.25, "
            f"{id_} * 0.1D)"
            for id_, kind, minute in rows
        ]
        self.sql(f"INSERT INTO T VALUES {', '.join(made)}")

    def table(self, name: str) -> TablePlan:
        found = self.plan.table(name)
        assert found is not None
        return found

    def tamper(self, name: str, *texts: str) -> None:
        """In secret: the commit says that it is one of Penstock's own, so nothing but the rows can tell."""
        table = self.table(name)
        last = log(table).since(-1)[-1].entry
        assert last is not None
        key = "spark.databricks.delta.commitInfo.userMetadata"
        self.spark.conf.set(key, dump(replace(last, kind="carry")))
        try:
            for text in texts:
                self.spark.sql(text.replace(" G ", f" delta.`{table.uri}` "))
        finally:
            self.spark.conf.unset(key)

    def reports(self, names: Iterable[str] = TABLES, *, deep: bool = True) -> dict[str, Report]:
        tables = [self.table(name) for name in names]
        found = verify(tables, LocalStore())
        run_checks_in(self.spark, self.plan, tables_to_check(tables, found), LocalStore(), deep=deep)
        return {report.table: report for report in found}

    def check(self, name: str, *, deep: bool = True) -> Proof:
        return self.reports([name], deep=deep)[name].checks[0]

    def differences(self, name: str) -> list[str]:
        return [str(one) for one in self.check(name).differences]


def log_at(uri: str) -> list[int]:
    return DeltaLog(LocalStore(), uri, uri).versions()


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Shop:
    made = Shop(spark, tmp_path_factory.mktemp("again"))
    made.add(
        (1, "'a'", 5), (2, "'a'", 70), (3, "NULL", 70), (4, "'b'", 100), (2000, "'z'", 20)
    )  # closes the first hour
    made.add((5, "'c'", 3), (6, "NULL", 200))  # late; and what closes the second hour, but not the fourth
    made.sql("DELETE FROM T WHERE id = 2")
    made.sql("UPDATE T SET kind = 'b', weight = 7.5 WHERE id = 1")
    run_well(spark, made.plan)
    return made


def test_what_is_right_is_said_to_be(shop: Shop) -> None:
    found = shop.reports(deep=False)
    told = {name: (one.verdict, one.checks[0].outcome, one.problems) for name, one in found.items()}
    assert told == dict.fromkeys(TABLES, ("complete", "same", []))
    checks = {name: one.checks[0] for name, one in found.items()}
    assert checks["gold.kinds"].said == f"all 3 groups computed again from {shop.place} version 4: the same"
    late = "2 windows are as their source was at the close; rows that came later are in quarantine"
    assert late in checks["gold.closed"].remarks
    assert checks["gold.live"].remarks == []
    # z was there before it began, and has not changed since.
    assert (checks["gold.since"].compared, checks["gold.live"].compared) == (4, 4)
    assert checks["gold.since"].remarks == ["it began at v2: groups without a row since then may be missing"]
    ambiguous = "not compared: 1 keys of which two changes claim the same place"
    assert ambiguous in checks["silver.by_kind"].remarks


def test_a_number_that_was_changed_is_named_with_what_it_should_be(shop: Shop) -> None:
    shop.tamper(
        "gold.sums",
        "UPDATE G SET total = total + 0.01 WHERE kind = 'b'",
        "UPDATE G SET n = n + 1 WHERE kind IS NULL",
        "UPDATE G SET ratio = ratio + 1e-12, names = array('x') WHERE kind = 'c'",
    )
    check = shop.check("gold.sums")
    assert check.outcome == "differs"
    assert shop.differences("gold.sums") == [
        "kind NULL: n is 3, should be 2",
        "kind b: total is 5.51, should be 5.50",
    ]
    assert any(remark.startswith("names: 1 groups have other values now") for remark in check.remarks)


def test_groups_that_are_missing_doubled_or_too_many_are_named(shop: Shop) -> None:
    shop.tamper("gold.kinds", "DELETE FROM G WHERE kind IS NULL", "INSERT INTO G VALUES ('never', 7), ('b', 2)")
    assert shop.reports(["gold.kinds"])["gold.kinds"].verdict == "wrong"
    assert shop.differences("gold.kinds") == [
        "kind NULL: is missing",
        "kind b: is there more than once",
        "kind never: should not be there",
    ]


def test_a_sample_finds_what_is_wrong_in_it_on_either_side(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff, "ALL_UP_TO", 0)
    monkeypatch.setattr(diff, "SAMPLE_SIZE", 2)
    shop.tamper("gold.live", "UPDATE G SET n = n + 1")
    first = shop.check("gold.live", deep=False)
    others = ", ".join(f"('never-{number}', 7)" for number in range(4))
    shop.tamper("gold.live", "DELETE FROM G WHERE true", f"INSERT INTO G VALUES {others}")
    second = shop.check("gold.live", deep=False)
    assert first.sampled and second.sampled
    assert (first.differing, second.differing) == (first.compared, second.compared)
    assert 0 < first.compared <= 4 and 0 < second.compared < 8
    assert {one.kind for one in first.differences} == {"changed"}
    assert {one.kind for one in second.differences} <= {"missing", "extra"}


@pytest.mark.deep
def test_a_closed_window_is_not_what_the_source_is_now(shop: Shop) -> None:
    shop.tamper(
        "gold.closed",
        "UPDATE G SET n = 9 WHERE hour(window_start) = 1",
        "INSERT INTO G VALUES (timestamp'2026-01-01 03:00:00', timestamp'2026-01-01 04:00:00', 1)",
    )
    assert shop.differences("gold.closed") == [
        "window_start 2026-01-01 01:00:00, window_end 2026-01-01 02:00:00: n is 9, should be 3",
        "window_start 2026-01-01 03:00:00, window_end 2026-01-01 04:00:00: should not be there",
    ]


@pytest.mark.deep
def test_tombstones_of_a_copy_are_compared_with_the_deletes_that_it_follows(shop: Shop) -> None:
    check = shop.reports(["silver.copy"])["silver.copy"].checks[1]
    assert (check.name, check.outcome, check.compared) == ("tombstones", "same", 1)
    uri = f"{shop.table('silver.copy').uri}__tombstones"
    rows = shop.spark.createDataFrame(
        shop.spark.read.format("delta").load(uri).withColumn("id", lit(4).cast("bigint")).collect(),
        shop.spark.read.format("delta").load(uri).schema,
    )
    rows.write.format("delta").mode("overwrite").option("dataChange", "false").save(uri)
    report = shop.reports(["silver.copy"])["silver.copy"]
    shop.spark.sql(f"RESTORE delta.`{uri}` TO VERSION AS OF {log_at(uri)[-2]}")
    assert (report.verdict, report.checks[0].outcome) == ("wrong", "same")
    told = {str(one) for one in report.checks[1].differences}
    sequence = '{"version":3,"kind":0}'
    assert told == {f"id 4, _sequence {sequence}: should not be there", f"id 2, _sequence {sequence}: is missing"}


def test_copies_whose_feed_is_gone_are_compared_with_the_table_as_it_is(shop: Shop) -> None:
    feed = Path(shop.place) / "_change_data"
    away = feed.rename(feed.with_name("away"))
    try:
        reports = shop.reports(["silver.copy", "silver.by_kind"])
    finally:
        away.rename(feed)
    assert {one.verdict for one in reports.values()} == {"complete"}
    for copy, tombstones, *_ in (one.checks for one in reports.values()):
        assert (copy.outcome, tombstones.outcome) == ("same", "not made")
        assert "can no longer be read" in tombstones.said


@pytest.mark.deep
def test_a_copy_is_held_against_what_it_follows(shop: Shop) -> None:
    shop.tamper("silver.copy", "UPDATE G SET weight = 7.25 WHERE id = 1", "DELETE FROM G WHERE id = 3")
    assert shop.reports(["silver.copy"])["silver.copy"].verdict == "wrong"
    assert shop.differences("silver.copy") == ["id 1: weight is 7.25, should be 7.5", "id 3: is missing"]


def test_changes_that_an_audit_table_lacks_are_counted(shop: Shop) -> None:
    shop.tamper("audit.sales", "DELETE FROM G WHERE change_type = 'delete'")
    (told,) = shop.differences("audit.sales")
    assert told.endswith("change_type delete: is missing")


def test_numbers_of_another_definition_are_stale_and_not_wrong(shop: Shop) -> None:
    table = shop.table("gold.since")
    assert table.aggregate is not None
    other = replace(table, definition="other", aggregate=replace(table.aggregate, metrics={"n": "count(*) + 1"}))
    report = verify([other], LocalStore())[0]
    run_checks_in(shop.spark, shop.plan, [(other, report)], LocalStore(), deep=True)
    assert (report.verdict, report.checks[0].outcome) == ("partial", "stale")
    assert any("was made by another definition" in remark for remark in report.checks[0].remarks)


def test_a_source_that_can_no_longer_be_read_is_unverifiable(shop: Shop) -> None:
    from deltalake import DeltaTable

    gone = Path(DeltaTable(shop.place).file_uris()[0].removeprefix("file://"))
    away = gone.rename(gone.with_suffix(".away"))
    try:
        report = shop.reports(["gold.since"])["gold.since"]
    finally:
        away.rename(gone)
    assert (report.verdict, report.checks[0].outcome) == ("partial", "unverifiable")
    assert "cannot be read any more" in report.checks[0].said
