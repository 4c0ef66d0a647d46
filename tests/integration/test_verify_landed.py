"""`verify`, `status` and `history` over tables that the runner landed, and that people touched with Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.ledger.generations import open_generation
from penstock.ledger.head import position_at, read_head
from penstock.operations.history import history
from penstock.operations.status import status
from penstock.storage.stores import open_store
from penstock.verify.report import Report
from penstock.verify.table import verify
from tests.integration.run_plan import TABLE, log, produce, run_well, running, transaction, wait_for


def checked(plan: Any) -> Report:
    (report,) = verify(plan.tables, open_store(plan))
    return report


def sql(spark: Any, plan: Any, statement: str) -> None:
    spark.sql(statement.replace("TABLE_HERE", f"delta.`{plan.tables[0].uri}`"))


@pytest.fixture
def landed(spark: Any, broker: Any, topic: Any, project: Any) -> Callable[..., Any]:
    """A plan whose one table holds 40 records of 2 partitions, in 4 batches."""

    def make(**table: Any) -> Any:
        name = topic(partitions=2)
        plan = project({TABLE: {"from": {"kafka": name, "max_per_trigger": 10}, **table}})
        produce(broker.bootstrap, name, 40)
        run_well(spark, plan)
        return plan

    return make


def test_what_the_runner_landed_is_complete(landed: Any) -> None:
    plan = landed()
    report = checked(plan)
    assert report.verdict == "complete", report
    assert (report.rows, report.behind) == (40, 0)
    assert report.chain is not None
    assert (report.chain.from_genesis, report.chain.batches) == (True, 4)


def test_renamed_columns_and_binary_payload_change_nothing(landed: Any) -> None:
    plan = landed(columns={"offset": "kafka_offset", "partition": "order", "topic": "Source"}, payload="binary")
    assert checked(plan).verdict == "complete"


def test_rows_hidden_by_a_deletion_vector_are_missing(spark: Any, landed: Any) -> None:
    plan = landed()
    sql(spark, plan, "ALTER TABLE TABLE_HERE SET TBLPROPERTIES (delta.enableDeletionVectors = true)")
    sql(spark, plan, "DELETE FROM TABLE_HERE WHERE partition = 1 AND offset IN (3, 4, 17)")
    report = checked(plan)
    assert report.verdict == "wrong"
    assert [list(one.lost) for one in report.partitions] == [[], [(3, 5), (17, 18)]]
    assert "awaits a decision" in report.problems[0]
    assert any(path.name.startswith("deletion_vector") for path in _files(plan))


def test_optimize_changes_nothing(spark: Any, landed: Any) -> None:
    plan = landed()
    sql(spark, plan, "OPTIMIZE TABLE_HERE")
    assert checked(plan).verdict == "complete"


def test_a_row_inserted_by_hand_is_named(spark: Any, landed: Any) -> None:
    plan = landed()
    sql(spark, plan, "INSERT INTO TABLE_HERE SELECT * FROM TABLE_HERE WHERE partition = 0 AND offset = 5")
    report = checked(plan)
    assert report.verdict == "wrong"
    assert [[(d.start, d.end, d.times) for d in one.doubled] for one in report.partitions] == [[(5, 6, 2)], []]
    assert "added 1 rows that are not in the ledger" in report.notes[0]


def test_a_restore_is_seen_and_a_reset_to_its_version_makes_it_whole(spark: Any, landed: Any) -> None:
    plan = landed()
    sql(spark, plan, "RESTORE TABLE TABLE_HERE TO VERSION AS OF 2")
    report = checked(plan)
    assert report.verdict == "wrong"
    assert sum(one.lost.size for one in report.partitions) == 20
    (shown,) = status(plan, plan.tables, open_store(plan))
    assert [commit.operation for commit in shown.foreign] == ["RESTORE"]
    _go_on_from(spark, plan, 2)
    run_well(spark, plan)
    report = checked(plan)
    assert report.verdict == "complete", report
    assert report.rows == 40


def test_transactions_that_were_landed_are_complete(spark: Any, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=2)
    plan = project({TABLE: {"from": {"kafka": name}}})
    for number in range(4):
        with transaction(broker.bootstrap, f"verify-{name}") as producer:
            for record in range(5):
                producer.produce(name, f"{number}-{record}", partition=record % 2)
            producer.flush(30)
            producer.abort_transaction(30) if number == 2 else producer.commit_transaction(30)
    run_well(spark, plan)
    report = checked(plan)
    assert report.verdict == "complete", report
    assert report.rows == 15
    assert sum(one.empty.size for one in report.partitions) == 4 * 2 + 5


def test_a_table_is_verified_and_shown_while_it_runs(spark: Any, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=2)
    plan = project({TABLE: {"from": {"kafka": name}, "trigger": "1s"}})
    produce(broker.bootstrap, name, 30)
    with running(spark, plan) as heard:
        wait_for(lambda: len(heard.batches) > 0)
        produce(broker.bootstrap, name, 30)
        assert checked(plan).ok(allow_behind=True)
        (shown,) = status(plan, plan.tables, open_store(plan))
        assert shown.state == "running"
        assert shown.process is not None
        wait_for(lambda: sum(batch.rows for batch in heard.batches) == 60)
        (shown,) = status(plan, plan.tables, open_store(plan))
        assert (shown.rows, shown.lag) == (60, 0)
    lines = history(plan.tables[0], open_store(plan))
    assert [line.kind for line in lines][-2:] == ["batch", "genesis"]
    assert sum(line.rows for line in lines) == 60


def _go_on_from(spark: Any, plan: Any, version: int) -> None:
    """What `checkpoints reset --to version:N` commits."""
    table = plan.tables[0]
    tail, then = read_head(log(table)), position_at(log(table), version)
    assert tail is not None and then is not None
    open_generation(
        spark,
        log(table),
        tail,
        table.uri,
        after=then.after,
        topics=tail.entry.topics,
        subscription=tail.entry.subscription,
        definition=table.definition,
        note=f"reset --to version:{version}",
    )


def _files(plan: Any) -> list[Any]:
    from pathlib import Path

    return list(Path(plan.tables[0].uri).rglob("*"))
