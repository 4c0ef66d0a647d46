"""Rows of a Delta table that is not Penstock's are deleted, updated and merged: what each of the three options makes of
it, and what is said without one."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.operations.replay_plan import plan_replay
from penstock.operations.status import status_without_broker
from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.run_plan import make_plan, rows, run, run_well
from tests.integration.run_replays import replayed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.errors import PenstockError
    from penstock.plan.model import Plan

COPY = "bronze.copy"
DELETES = "DELETE FROM T WHERE id = 3"
PARTITION = "DELETE FROM T WHERE part = 1"
UPDATES = "UPDATE T SET amount = 100 WHERE id = 3"
MERGES = (
    "MERGE INTO T AS t USING (SELECT id, 0 AS part, 50 AS amount FROM range(3, 14, 5)) AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)
CHANGES = {"rows deleted": DELETES, "files deleted": PARTITION, "updated": UPDATES, "merged": MERGES}


class Foreign:
    """Ten rows in two partitions, id % 2, one file each; `sql` names it T."""

    def __init__(self, spark: SparkSession, folder: Path, *, vectors: bool) -> None:
        self.spark, self.folder, self.place = spark, folder, str(folder / "foreign")
        self.sql(
            "CREATE TABLE T (id BIGINT, part BIGINT, amount BIGINT) USING delta PARTITIONED BY (part) "
            f"TBLPROPERTIES (delta.enableDeletionVectors = {str(vectors).lower()})"
        )
        self.add(0, 10)

    def sql(self, text: str) -> None:
        text = re.sub(r"\bT\b", f"delta.`{self.place}`", text)
        self.spark.sql(text)

    def add(self, first: int, last: int) -> None:
        made = self.spark.range(first, last).selectExpr("id", "id % 2 AS part", "0L AS amount").coalesce(1)
        made.write.format("delta").mode("append").save(self.place)

    def plan(self, **options: Any) -> Plan:
        return make_plan(self.folder, "127.0.0.1:1", {COPY: {"from": {"delta": self.place, **options}}})

    def landed(self, plan: Plan) -> Counter[tuple[int, int]]:
        return Counter((row["id"], row["amount"]) for row in rows(plan, COPY))


def stopped(heard: Any) -> PenstockError:
    error: PenstockError = heard.errors[COPY]
    return error


def test_each_option_does_what_delta_says_and_the_error_offers_those_that_help(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One table, changed step by step; a reader for each option follows it as far as its option goes."""
    table = Foreign(spark, tmp_path, vectors=True)
    run_well(spark, table.plan())
    table.sql(PARTITION)  # version 2: whole files
    refused = stopped(run(spark, table.plan()))
    assert "version 2 of" in refused.message and "(DELETE) deleted 5 rows" in refused.message
    assert refused.hint is not None
    assert all(f"{option}: true" in refused.hint for option in ("ignore_deletes", "skip_change_commits"))
    assert f"checkpoints reset {COPY} --to source:3" in refused.hint
    run_well(spark, table.plan(ignore_deletes=True))
    assert table.landed(table.plan()).total() == 10, "the deleted rows stay"

    table.add(20, 22)
    table.sql(MERGES)  # version 4: updates 8, inserts 3 and 13
    refused = stopped(run(spark, table.plan(ignore_deletes=True)))
    assert "version 4 of" in refused.message and "(MERGE) updated 1 row and inserted 2 rows" in refused.message
    assert "`ignore_deletes` is set, but covers only commits that remove whole files" in refused.message
    assert refused.hint is not None and "ignore_deletes: true" not in refused.hint
    assert "its 2 new rows are not read" in refused.hint and "…" not in str(refused)

    plan = table.plan(skip_change_commits=True)
    heard = run_well(spark, plan)
    assert heard.heard("its 2 new rows are not read")
    wanted = Counter((number, 0) for number in [*range(10), 20, 21])
    assert table.landed(plan) == wanted
    note = "2 versions of"
    (one,) = status_without_broker(plan, plan.tables, LocalStore())
    assert one.lag == 0, "a commit that is skipped is nothing to wait for"
    assert (
        one.skipped_changes is not None
        and note in one.skipped_changes
        and "2 new rows in them not read" in one.skipped_changes
    )
    (report,) = verify(plan.tables, LocalStore())
    assert any(note in said for said in report.notes)
    copy = plan.table(COPY)
    assert copy is not None
    planned = plan_replay(plan, copy, LocalStore(), version=None, as_of=None, cascade=False)
    assert planned.skipped_changes is not None and note in planned.skipped_changes


@pytest.mark.deep
@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("option", ["none", "ignore_deletes", "ignore_changes", "skip_change_commits"])
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_with_every_option(
    spark: SparkSession, tmp_path: Path, change: str, option: str, vectors: bool
) -> None:
    table = Foreign(spark, tmp_path, vectors=vectors)
    plan = table.plan(**({} if option == "none" else {option: True}), starting={"version": 1}, max_files=1)
    run_well(spark, plan)
    before = table.landed(plan)
    assert before == Counter((number, 0) for number in range(10))
    table.sql(CHANGES[change])
    heard = run(spark, plan)
    whole = change == "files deleted"
    if option == "none" or (option == "ignore_deletes" and not whole):
        error = stopped(heard)
        assert "version 2 of" in error.message and ("DELETE" in error.message) == ("deleted" in change)
        assert error.hint is not None and "skip_change_commits: true" in error.hint
        assert ("ignore_deletes: true" in error.hint) == (whole and option == "none")
        assert table.landed(plan) == before
        return
    assert not heard.errors, heard.errors
    table.add(30, 32)
    run_well(spark, plan)
    after = table.landed(plan)
    new = Counter({(30, 0): 1, (31, 0): 1})
    if option != "ignore_changes" or whole:
        assert after == before + new, "nothing of the change is read"
    else:
        again = after - before - new
        changed = {
            "rows deleted": {(1, 0), (5, 0), (7, 0), (9, 0)},
            "updated": {(3, 100)},
            "merged": {(3, 50), (8, 50), (13, 50)},
        }[change]
        assert changed <= set(again), "what changed, and the rows beside it, come again"
        assert (before + new) - after == Counter(), "what was there stays"
    assert heard.heard("version 2 of") or whole
    replayed(spark, plan, COPY)
    assert table.landed(plan) == after, "a replay reads what the stream has read"
