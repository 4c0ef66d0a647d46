"""The first commit of a table, and its first batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.run_plan import (
    TABLE,
    checkpoint,
    commits,
    coordinates,
    produce,
    rows,
    run_well,
    transaction,
    whole_chain,
)


def test_a_table_is_made_by_one_commit_with_its_entry_and_its_settings(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(partitions=2)
    plan = project({TABLE: {"from": {"kafka": name}}})
    heard = run_well(spark, plan)
    assert not heard.batches  # an empty topic: the table is there, and no batch
    (commit,) = commits(plan)
    assert (commit.version, commit.rows) == (0, 0)
    entry = commit.entry
    assert entry is not None
    assert (entry.kind, entry.generation, entry.batch) == ("genesis", 1, 0)
    assert json.loads(entry.after[0]) == {name: {"0": 0, "1": 0}}
    assert entry.before == entry.after
    assert set(entry.topics) == {name}
    actions = [json.loads(line) for line in _log_text(plan, 0).splitlines()]
    assert next(a for a in actions if "commitInfo" in a)["commitInfo"]["inCommitTimestamp"] > 0
    configuration = next(a for a in actions if "metaData" in a)["metaData"]["configuration"]
    assert configuration["delta.enableInCommitTimestamps"] == "true"


def test_an_empty_topic_of_many_partitions_makes_no_batch(spark: Any, topic: Any, project: Any) -> None:
    """Spark compares positions as text: written in another order than its own, ours would look like new data."""
    plan = project({TABLE: {"from": {"kafka": topic(partitions=40)}}})
    assert not run_well(spark, plan).batches
    assert not run_well(spark, plan).batches


def test_the_first_batch_is_1_and_its_file_has_statistics_of_the_searched_columns_only(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(partitions=2)
    produced = produce(broker.bootstrap, name, 10)
    plan = project({TABLE: {"from": {"kafka": name}}})
    heard = run_well(spark, plan)
    assert [written.batch for written in heard.batches] == [1]
    assert coordinates(plan) == produced
    actions = [json.loads(line) for line in _log_text(plan, 1).splitlines()]
    stats = json.loads(next(a for a in actions if "add" in a)["add"]["stats"])
    searched = {"partition", "offset", "kafka_timestamp", "ingestion_timestamp"}
    assert set(stats["minValues"]) == searched
    assert set(stats["maxValues"]) == searched
    assert stats["numRecords"] == 10


def test_a_batch_without_rows_commits_its_entry_and_the_stream_goes_on(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    name = topic(partitions=1)
    plan = project({TABLE: {"from": {"kafka": name}}})
    run_well(spark, plan)
    with transaction(broker.bootstrap, f"tx-{name}") as producer:
        for number in range(5):
            producer.produce(name, value=str(number), partition=0)
        producer.flush(10)
        producer.abort_transaction(30)
    heard = run_well(spark, plan)
    assert [(w.batch, w.rows) for w in heard.batches] == [(1, 0)]
    produced = produce(broker.bootstrap, name, 3, partitions=[0])
    heard = run_well(spark, plan)
    assert [(w.batch, w.rows) for w in heard.batches] == [(2, 3)]
    assert coordinates(plan) == produced
    entries = whole_chain(plan)
    assert [entry.batch for entry in entries] == [0, 1, 2]
    assert entries[-1].counts.rows == 0


def test_a_batch_without_rows_is_healed_like_any_other(spark: Any, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=1)
    plan = project({TABLE: {"from": {"kafka": name}}})
    with transaction(broker.bootstrap, f"tx-{name}") as producer:
        producer.produce(name, value="aborted", partition=0)
        producer.flush(10)
        producer.abort_transaction(30)
    run_well(spark, plan)
    _remove(checkpoint(plan))
    produced = produce(broker.bootstrap, name, 3, partitions=[0])
    run_well(spark, plan)
    assert coordinates(plan) == produced
    assert [entry.batch for entry in whole_chain(plan)] == [0, 1, 2]


def test_counts_of_the_batch_before_are_in_every_entry(spark: Any, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=2)
    plan = project({TABLE: {"from": {"kafka": name}}})
    for count in (4, 6, 2):
        produce(broker.bootstrap, name, count)
        run_well(spark, plan)
    counts = [(entry.counts.rows, entry.counts.total) for entry in whole_chain(plan)]
    assert counts == [(0, 0), (0, 0), (4, 4), (6, 10)]


def test_every_row_of_a_batch_has_the_batch_time_of_its_entry(
    spark: Any, broker: Any, topic: Callable[..., str], project: Any
) -> None:
    name = topic(partitions=2)
    produce(broker.bootstrap, name, 10)
    plan = project({TABLE: {"from": {"kafka": name}}})
    run_well(spark, plan)
    times = {row["ingestion_timestamp"].timestamp() for row in rows(plan)}
    assert times == {whole_chain(plan)[-1].pins.time_ms / 1000}


def _log_text(plan: Any, version: int) -> str:
    return (Path(plan.tables[0].uri) / "_delta_log" / f"{version:020d}.json").read_text()


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder)
