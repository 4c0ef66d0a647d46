"""Checkpoints as `checkpoints list` and `checkpoints show` see them, without a JVM and without a broker."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.ledger.checkpoint import MARKER
from penstock.operations import checkpoint_state as look_module
from penstock.operations.checkpoint_state import describe_positions as placed
from penstock.operations.checkpoint_state import (
    describe_ranges,
    inspect_checkpoint,
    last_batches,
    leftovers,
    measure_checkpoint,
    operators,
    unknown_table_leftovers,
)
from penstock.operations.checkpoints import CheckpointDetails, checkpoint_details, show_document
from penstock.plan.model import Plan
from tests.unit.hand_checkpoints import BRONZE, GOLD, SILVER, STORE, Held, make_plan, version
from tests.unit.hand_ledgers import at


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return make_plan(tmp_path)


def shown(plan: Plan, name: str) -> CheckpointDetails:
    table = plan.table(name)
    assert table is not None
    found = checkpoint_details(plan, table, STORE, 5)
    json.dumps(show_document(found))
    return found


def test_one_in_step_goes_on_with_the_next_batch(plan: Plan) -> None:
    Held(plan, BRONZE)
    silver = Held(plan, SILVER, batches=2)
    found = shown(plan, SILVER)
    assert (found.inspection.in_step, found.inspection.planned, found.inspection.committed) == (True, 2, 2)
    assert (found.forecast.does, found.forecast.why) == ("go on", "with batch 3")
    assert found.query and found.open == ()
    assert found.inspection.folder == str(silver.folder)


def test_batches_that_were_cut_off_are_told_apart(plan: Plan) -> None:
    Held(plan, BRONZE)
    silver = Held(plan, SILVER, batches=2)
    (silver.folder / "commits" / "2").unlink()
    found = shown(plan, SILVER)
    assert (found.open, found.forecast.does) == ((2,), "go on")
    assert "with batch 2 once more" in found.forecast.why
    silver.checkpoint()
    silver.plan_batch(3)
    found = shown(plan, SILVER)
    assert (found.open, found.forecast.why) == ((3,), "with batch 3, which is planned and was not written")


@pytest.mark.parametrize("damage", ["metadata", MARKER, "offsets", "commits", "."])
def test_a_damaged_one_is_rebuilt_by_a_start_and_says_why(plan: Plan, damage: str) -> None:
    Held(plan, BRONZE)
    silver = Held(plan, SILVER)
    target = silver.folder / damage
    shutil.rmtree(target) if target.is_dir() else target.unlink()
    found = shown(plan, SILVER)
    assert not found.inspection.in_step
    assert found.forecast.does == "rebuild"
    assert found.forecast.why == f"the checkpoint, from the ledger at batch 1.3: {found.inspection.why}"


def test_a_broker_that_is_away_leaves_unknown_what_it_would_have_said(plan: Plan) -> None:
    Held(plan, BRONZE)
    found = shown(plan, BRONZE)
    assert found.forecast.does == "go on"
    assert "does not answer" in (found.forecast.unknown or "")


def test_what_a_start_would_refuse_is_refused_with_its_hint(plan: Plan) -> None:
    bronze = Held(plan, BRONZE)
    bronze.log.commit("DELETE", adds=1, removes=1)
    found = shown(plan, BRONZE)
    assert found.forecast.does == "refuse"
    assert "changed rows after batch 3" in found.forecast.why
    assert "checkpoints reset" in (found.forecast.hint or "")


def test_a_table_that_is_gone_is_refused_and_one_that_never_was_is_made(plan: Plan) -> None:
    silver = Held(plan, SILVER)
    assert shown(plan, BRONZE).forecast.does == "make the table"
    shutil.rmtree(silver.table.uri)
    found = shown(plan, SILVER)
    assert found.forecast.does == "refuse" and "the table is gone" in found.forecast.why


def test_an_upstream_that_is_gone_is_waited_for_and_one_made_again_is_refused(plan: Plan) -> None:
    silver = Held(plan, SILVER)
    assert shown(plan, SILVER).forecast.does == "wait"
    bronze = Held(plan, BRONZE)
    assert shown(plan, SILVER).forecast.does == "go on"
    first = bronze.log.path(0)
    first.write_text(first.read_text().replace("table-id", "another-id"))
    assert silver.entry.batch == 3
    found = shown(plan, SILVER)
    assert found.forecast.does == "refuse" and "was recreated" in found.forecast.why


def test_state_that_is_lost_is_refused_with_the_way_on(plan: Plan) -> None:
    Held(plan, SILVER)
    gold = Held(plan, GOLD)
    assert shown(plan, GOLD).forecast.does == "go on"
    (gold.folder / "metadata").unlink()
    found = shown(plan, GOLD)
    assert found.forecast.does == "refuse" and "cannot be rebuilt" in found.forecast.why
    assert "--to starting" in (found.forecast.hint or "")


def test_on_an_object_store_a_runner_opens_a_generation_of_its_own(plan: Plan) -> None:
    Held(plan, BRONZE)
    Held(plan, SILVER)
    found = shown(replace(plan, lake=f"file://{plan.lake}"), SILVER)
    assert found.forecast.does == "open a generation"
    assert found.forecast.why.startswith("without locks each runner has a generation of its own: 2")


def test_a_query_that_writes_while_it_is_looked_at_is_looked_at_again(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the ledger and that at the checkpoint batches land: the table seems to have gone back."""
    silver = Held(plan, SILVER, batches=3)
    whole, times = look_module.read_checkpoint, []

    def meanwhile(store: Any, folder: str) -> Any:
        times.append(1)
        if len(times) == 1:
            for number in (4, 5):
                silver.entry = replace(
                    silver.entry, batch=number, before=silver.entry.after, after=(silver.position(number),)
                )
                silver.log.batch(silver.entry)
            silver.checkpoint()
        return whole(store, folder)

    monkeypatch.setattr(look_module, "read_checkpoint", meanwhile)
    found = inspect_checkpoint(silver.table, STORE)
    assert (found.in_step, found.entry and found.entry.batch, len(times)) == (True, 5, 2)


def test_size_and_growth_are_those_of_the_folder(plan: Plan) -> None:
    silver = Held(plan, SILVER, batches=4)
    (silver.folder / "state" / "0").mkdir(parents=True)
    (silver.folder / "state" / "0" / "1.delta").write_text("x" * 5000)
    size = measure_checkpoint(inspect_checkpoint(silver.table, STORE), STORE)
    files = [path for path in silver.folder.rglob("*") if path.is_file()]
    assert (size.total.files, size.total.bytes) == (len(files), sum(path.stat().st_size for path in files))
    assert (size.state.bytes, size.batches) == (5000, 5)
    assert size.per_batch == (size.total.bytes - 5000) // 5
    assert size.grows_to == 100 * size.per_batch


def test_folders_of_earlier_generations_are_left_over_and_those_of_later_ones_refused(plan: Plan) -> None:
    silver = Held(plan, SILVER)
    old = silver.folder
    silver.open()
    silver.checkpoint()
    (old.parent / "2.0f0f.new").mkdir()
    Path(plan.system, "checkpoints", "gone.table", "1").mkdir(parents=True)
    found = inspect_checkpoint(silver.table, STORE)
    assert [(one.description, Path(one.folder).name) for one in leftovers(found, STORE)] == [
        ("generation 1", "1"),
        ("a heal that was cut off", "2.0f0f.new"),
    ]
    assert [(one.table, one.description) for one in unknown_table_leftovers(plan, STORE)] == [
        ("gone.table", "no table of the project")
    ]
    shutil.copytree(silver.folder, old.parent / "7")
    later = inspect_checkpoint(silver.table, STORE)
    assert later.refusal is not None and "generation 7" in later.refusal.message
    assert list(leftovers(later, STORE)) == []
    marker = {"table": SILVER, "ledger": "another", "generation": 7}
    (old.parent / "7" / MARKER).write_text(json.dumps(marker))
    assert "another table of that name" in [
        one.description for one in leftovers(inspect_checkpoint(silver.table, STORE), STORE)
    ]


def test_the_last_batches_say_what_they_read_pinned_and_made_of_it(plan: Plan) -> None:
    bronze = Held(plan, BRONZE)
    STORE.write(f"{bronze.folder}/pins/3", '{"time":5,"definition":"d","lookups":{"customers":7}}')
    STORE.write(f"{bronze.folder}/fates/3", '{"batches":1,"read":10}')
    third, second = last_batches(STORE, str(bronze.folder), 2)
    assert (third.number, third.committed, third.time_ms) == (3, True, 1_700_000_000_003)
    assert third.read == ("orders-0 [20, 30), orders-1 [2, 3)",)
    assert third.pins is not None and third.pins.lookups == {"customers": 7}
    assert third.row_counts["read"] == 10
    assert second.read == ("orders-0 [10, 20), orders-1 [1, 2)",)
    (bronze.folder / "offsets" / "2").write_text("v1\n{")
    third, second = last_batches(STORE, str(bronze.folder), 2)
    assert (third.read, second.time_ms, second.read) == ((), None, ())


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (at(0, 5), at(2, 5), "orders-0 [0, 2)"),
        (version(1, snapshot=True), version(2), "the table as of version 1"),
        (version(1, snapshot=True), version(4), "the table as of version 1, versions 2 to 3"),
        (version(5, snapshot=True), version(5, snapshot=True, index=3), "the table as of version 5 up to file 3"),
        (version(5, snapshot=True, index=3), version(6), "the table as of version 5 from file 4 on"),
        (version(2), version(3), "version 2"),
        (version(2), version(9), "versions 2 to 8"),
        (version(2), version(4, index=1), "versions 2 to 4, not all of their files"),
        (version(4, index=1), version(5), "version 4, not all of their files"),
        (version(3), version(3), "nothing"),
    ],
)
def test_what_lies_between_two_positions_is_said_in_words(before: str, after: str, said: str) -> None:
    assert describe_ranges((before,), (after,)) == (said,)


def test_a_position_is_said_in_words() -> None:
    assert placed((at(5, 9),)) == "orders-0 at 5, orders-1 at 9"
    assert (
        placed((version(3), version(7, snapshot=True, index=2))) == "version 3; the table as of version 7, after file 2"
    )
    assert placed(("{}",)) == "no partition"


def test_state_is_told_by_operator(tmp_path: Path) -> None:
    def state(path: str, text: str = "x" * 10) -> None:
        STORE.write(f"{tmp_path}/state/{path}", text)

    note = {"operatorInfo": {"operatorId": 1, "operatorName": "symmetricHashJoin"}}
    for partition in range(2):
        for number in range(1, 5 - partition):
            state(f"0/{partition}/{number}.delta")
            state(f"1/{partition}/left-keyToNumValues/{number}.delta")
    state("0/0/4.snapshot")
    state("1/_metadata/metadata", f"v1\n{json.dumps(note)}")
    groups, join = operators(STORE, str(tmp_path))
    assert (groups.partitions, groups.versions, groups.partitions_behind) == (2, (1, 4), 1)
    assert (groups.label, groups.size.files, groups.size.bytes) == ("unknown", 8, 80)
    assert (join.partitions, join.versions, join.label) == (2, (1, 4), "join of two streams")
    assert operators(STORE, str(tmp_path / "none")) == []
