"""Checkpoints that were damaged, deleted, put back or mixed up: the table goes on as if nothing had happened."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.copied_lakes import OTHER, Lake, make_lake
from tests.integration.run_plan import (
    TABLE,
    checkpoint,
    coordinates,
    newest,
    produce,
    run_well,
    running,
    wait_for,
    whole_chain,
)


@pytest.fixture(scope="module")
def base(spark: Any, broker: Any, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return make_lake(spark, broker, "heal", tmp_path_factory.mktemp("heal"))


@pytest.fixture
def lake(base: Lake, tmp_path: Path) -> Lake:
    return base.copied(tmp_path)


def test_a_lake_that_was_moved_goes_on_without_healing(lake: Lake) -> None:
    heard = lake.goes_on()
    assert not heard.messages
    assert heard.batches[0].batch == 4


def _gone(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        target = folder / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    return damage


def _cut(kind: str, back: int, length: int) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        file = folder / kind / str(newest(folder / kind) - back)
        file.write_text(file.read_text()[:length])

    return damage


def _cut_after_the_second_line(folder: Path) -> None:
    """All of the file but its position: it reads as a checkpoint of a query without sources."""
    file = folder / "offsets" / str(newest(folder / "offsets") - 1)
    file.write_text("\n".join([*file.read_text().split("\n")[:2], ""]))


def _emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def _planned_next(text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / "offsets" / str(newest(folder / "offsets") + 1)).write_text(text) and None


def _only_the_newest_offsets(folder: Path) -> None:
    for file in (folder / "offsets").iterdir():
        if file.name.strip(".").split(".")[0] != str(newest(folder / "offsets")):
            file.unlink()


def _another_tables(folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(folder.parent.parent / OTHER / "1", folder)


def _older_backup(folder: Path) -> None:
    """As of batch 2, committed."""
    for kind in ("offsets", "commits"):
        for file in (folder / kind).iterdir():
            if int(file.name.strip(".").split(".")[0]) > 2:
                file.unlink()


DAMAGE: dict[str, Callable[[Path], None]] = {
    "the checkpoint deleted": lambda folder: shutil.rmtree(folder),
    "the checkpoint emptied": _emptied,
    "commits deleted": _gone("commits"),
    "offsets deleted": _gone("offsets"),
    "metadata deleted": _gone("metadata"),
    "the marker deleted": _gone("penstock.json"),
    "metadata emptied": lambda folder: (folder / "metadata").write_text("") and None,
    **{f"last offsets cut to {n}": _cut("offsets", 0, n) for n in (0, 3, -1)},
    "offsets before the last emptied": _cut("offsets", 1, 0),
    "offsets before the last without a position": _cut_after_the_second_line,
    "offsets before the last deleted": _only_the_newest_offsets,
    "last commit emptied": _cut("commits", 0, 0),
    "planned offsets emptied": _planned_next(""),
    "planned offsets cut": _planned_next("v1\n{"),
    "an older backup": _older_backup,
    "another table's checkpoint": _another_tables,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_checkpoint_is_rebuilt_from_the_ledger(lake: Lake, damage: Callable[[Path], None]) -> None:
    damage(checkpoint(lake.plan))
    heard = lake.goes_on()
    assert heard.heard("checkpoint rebuilt from the ledger at batch 1.3")
    assert heard.heard("batch 3 was in the table already: skipped")


def test_a_batch_written_but_not_committed_is_skipped_as_a_retry(lake: Lake) -> None:
    (checkpoint(lake.plan) / "commits" / "3").unlink()
    (checkpoint(lake.plan) / "commits" / ".3.crc").unlink(missing_ok=True)
    heard = lake.goes_on()
    assert heard.messages == ["batch 3 was in the table already: skipped"]


def test_a_batch_planned_but_not_written_is_written_over_its_planned_range(lake: Lake) -> None:
    folder, last = checkpoint(lake.plan), whole_chain(lake.plan)[-1]
    lake.more()
    meta = (folder / "offsets" / "3").read_text().split("\n")[1]
    offsets = json.loads(last.after[0])
    planned = json.dumps({lake.topic: {p: o + 1 for p, o in offsets[lake.topic].items()}})
    (folder / "offsets" / "4").write_text("\n".join(["v1", meta, planned]))
    lake.goes_on()
    entry = next(entry for entry in whole_chain(lake.plan) if entry.batch == 4)
    assert entry.after == (planned,)


def test_a_checkpoint_that_only_spark_cannot_read_is_rebuilt(lake: Lake) -> None:
    """The same position in other words under Hadoop's old checksum: whole for us, broken for Spark."""
    file = checkpoint(lake.plan) / "offsets" / "3"
    assert file.with_name(".3.crc").exists()
    file.write_text(file.read_text().replace('":', '": '))
    lake.goes_on()


def test_damage_after_damage_is_healed_each_time(lake: Lake) -> None:
    for _ in range(3):
        shutil.rmtree(checkpoint(lake.plan))
        lake.goes_on()


def test_healing_alone_reads_and_writes_nothing(lake: Lake) -> None:
    lake.goes_on()
    entries = whole_chain(lake.plan)
    shutil.rmtree(checkpoint(lake.plan))
    heard = run_well(lake.spark, lake.plan, TABLE)
    assert [(w.rows, w.verdict.value) for w in heard.batches] == [(0, "retry")]
    assert whole_chain(lake.plan) == entries


def test_a_new_table_whose_checkpoint_was_never_made_begins_at_its_genesis(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    name = topic()
    plan = project({TABLE: {"from": {"kafka": name}}})
    run_well(spark, plan)
    shutil.rmtree(checkpoint(plan))
    produced = produce(broker.bootstrap, name, 4)
    heard = run_well(spark, plan)
    assert not heard.messages
    assert coordinates(plan) == produced
    assert [entry.batch for entry in whole_chain(plan)] == [0, 1]


def test_a_checkpoint_deleted_under_a_running_query_loses_nothing(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    name = topic()
    plan = project({TABLE: {"from": {"kafka": name}, "trigger": "1s"}})
    produced = produce(broker.bootstrap, name, 4)
    with running(spark, plan) as heard:
        wait_for(lambda: len(heard.batches) == 1)
        shutil.rmtree(checkpoint(plan))
        produced += produce(broker.bootstrap, name, 4)
        wait_for(lambda: sum(w.rows for w in heard.batches) == 8)
    produced += produce(broker.bootstrap, name, 4)
    run_well(spark, plan)
    assert coordinates(plan) == produced
    whole_chain(plan)


def _last_commit_gone(folder: Path) -> None:
    """Killed between the table's commit and Spark's."""
    (folder / "commits" / str(newest(folder / "commits"))).unlink()


@pytest.mark.parametrize("damage", [_last_commit_gone, lambda folder: shutil.rmtree(folder)], ids=["retry", "healed"])
def test_a_batch_that_read_new_partitions_is_healed_after_retention_took_their_head(
    spark: Any, broker: Any, topic: Any, project: Any, damage: Callable[[Path], None]
) -> None:
    """Spark refuses to plan a new partition that does not begin at 0; but here it has all been read."""
    from tests.integration.topics import forget_records, raise_partitions

    name = topic(partitions=1)
    plan = project({TABLE: {"from": {"kafka": name}}})
    produced = produce(broker.bootstrap, name, 4, partitions=[0])
    run_well(spark, plan)
    raise_partitions(broker.bootstrap, name, 2)
    produced += produce(broker.bootstrap, name, 4, partitions=[1])
    run_well(spark, plan)
    forget_records(broker.bootstrap, name, 1, 2)
    damage(checkpoint(plan))
    produced += produce(broker.bootstrap, name, 2, partitions=[0, 1])
    run_well(spark, plan)
    assert coordinates(plan) == produced
    whole_chain(plan)
