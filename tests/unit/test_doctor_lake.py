"""What the files of a lake tell: checkpoints, layout, upstream tables, all of it together, without a broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.doctor import topics
from penstock.doctor.check import Check
from penstock.doctor.files import checkpoint, leftovers, read_step
from penstock.doctor.retention import delta_backlog, open_upstream_logs, read_upstream_facts
from penstock.doctor.table_log import RecentCommits, read_layout
from penstock.ledger.checkpoint import MARKER, heal
from penstock.ledger.entry import Entry
from penstock.plan.model import TablePlan
from penstock.plan.sources import DeltaSource, VersionStartPlan
from penstock.storage.stores import LocalStore
from tests.bronze_table import BronzeTable, now_ms, plan_of, table_plan
from tests.unit.doctor_tables import last, noted

STORE = LocalStore()


@pytest.fixture(autouse=True)
def _do_not_wait_for_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "TIMEOUT", 0.05)


@pytest.fixture
def orders(tmp_path: Path) -> BronzeTable:
    table = BronzeTable(table_plan(str(tmp_path / "lake" / "orders")), {"orders": "id-1"})
    return table.genesis({"orders": {0: 0}}).batch({"orders": {0: 100}})


def checked(table: BronzeTable, *, alive: bool = False, recent: RecentCommits | None = None, **plan: Any) -> Check:
    planned = replace(table.plan, **plan)
    step = lambda: read_step(STORE, planned, last(table))  # noqa: E731
    return checkpoint(planned, step, recent or RecentCommits(), alive=alive, local=True)


def test_a_checkpoint_that_says_what_the_ledger_says_is_fine(orders: BronzeTable) -> None:
    heal(STORE, f"{orders.plan.checkpoints}/1", last(orders))
    check = checked(orders)
    assert (check.level, check.found) == ("ok", "it says what the ledger says: batch 1.1")


def test_a_lost_checkpoint_is_only_a_note_for_it_is_made_again(orders: BronzeTable) -> None:
    check = checked(orders)
    assert (check.level, "it is missing or empty" in check.found) == ("note", True)


def test_the_checkpoint_of_another_table_is_warned_of(orders: BronzeTable) -> None:
    folder = Path(orders.plan.checkpoints) / "1"
    heal(STORE, str(folder), last(orders))
    (folder / MARKER).write_text(json.dumps({"table": "bronze.clicks", "ledger": "other", "generation": 1}))
    check = checked(orders)
    assert (check.level, "it belongs to bronze.clicks, generation 1" in check.found) == ("warn", True)


def test_a_checkpoint_ahead_of_its_table_is_red(orders: BronzeTable) -> None:
    folder = f"{orders.plan.checkpoints}/1"
    heal(STORE, folder, last(orders))
    text = STORE.read(f"{folder}/offsets/1")
    assert text is not None
    for batch in (2, 3):
        STORE.write(f"{folder}/offsets/{batch}", text.replace('"0":100', f'"0":{100 + batch}'))
        STORE.write(f"{folder}/commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')
    check = checked(orders)
    assert (check.level, "put back to an older state" in check.found) == ("red", True)


def test_a_checkpoint_is_looked_at_twice_while_its_table_runs(orders: BronzeTable) -> None:
    looks = []

    def look() -> Any:
        if looks:
            heal(STORE, f"{orders.plan.checkpoints}/1", last(orders))
        looks.append(1)
        return read_step(STORE, orders.plan, last(orders))

    assert checkpoint(orders.plan, look, RecentCommits(), alive=True, local=True).level == "ok"
    assert len(looks) == 2


def test_a_table_whose_generation_changes_all_the_time_is_warned_of(orders: BronzeTable) -> None:
    heal(STORE, f"{orders.plan.checkpoints}/1", last(orders))
    assert checked(orders, recent=RecentCommits(generations_opened=4, commits=20)).level == "warn"


def test_leftovers_are_named(tmp_path: Path, orders: BronzeTable) -> None:
    system = tmp_path / "lake" / "_penstock" / "checkpoints"
    own = replace(orders.plan, checkpoints=str(system / "bronze.orders"))
    plan = plan_of(tmp_path, own)
    assert leftovers(plan, STORE).level == "ok"
    for folder in ("bronze.renamed/1", "bronze.orders/1", "bronze.orders/1.abc.new"):
        (system / folder).mkdir(parents=True)
    check = leftovers(plan, STORE)
    assert check.level == "note"
    assert "checkpoints of 1 table that this project does not have: bronze.renamed" in check.found
    assert "1 half-made checkpoint" in check.found
    for generation in range(2, 30):
        (system / "bronze.orders" / str(generation)).mkdir()
    assert "28 checkpoints of earlier generations" in leftovers(plan, STORE).found


def test_the_layout_comes_from_the_note_beside_the_commit(orders: BronzeTable) -> None:
    noted(orders, 1, 7, 700, **{"delta.checkpointInterval": "100"})
    found = read_layout(STORE, orders.plan.uri, 1)
    assert (found.files, found.bytes, found.properties) == (7, 700, {"delta.checkpointInterval": "100"})
    assert found.since_checkpoint == 2
    assert found.log_bytes == sum(path.stat().st_size for path in orders.log.glob("*.json"))


def test_without_a_note_the_log_is_read(orders: BronzeTable) -> None:
    (orders.log / f"{1:020d}.crc").write_text("{not json")
    found = read_layout(STORE, orders.plan.uri, 1)
    assert found.files == 1
    assert found.bytes == sum(path.stat().st_size for path in Path(orders.plan.uri).glob("*.parquet"))


def test_commits_since_the_last_checkpoint_are_counted(orders: BronzeTable) -> None:
    for number in range(2, 8):
        orders.batch({"orders": {0: number * 100}})
    (orders.log / "_last_checkpoint").write_text('{"version": 4}')
    noted(orders, 7, 7, 700)
    assert read_layout(STORE, orders.plan.uri, 7).since_checkpoint == 3


@pytest.fixture
def silver(orders: BronzeTable, tmp_path: Path) -> Callable[[int], tuple[TablePlan, Entry]]:
    """A table that reads `orders` and has read it up to a version."""

    def make(version: int) -> tuple[TablePlan, Entry]:
        source = DeltaSource(orders.plan.uri, "bronze.orders", None, VersionStartPlan("earliest"), None, None)
        plan = replace(table_plan(str(tmp_path / "lake" / "silver"), "silver.orders"), source=source, columns={})
        at = {"sourceVersion": 1, "reservoirId": "x", "reservoirVersion": version, "index": -1}
        position = json.dumps({**at, "isStartingVersion": False})
        return plan, replace(last(orders), after=(position,), subscription={"table": "bronze.orders"})

    return make


def test_an_upstream_that_is_read_to_its_end_has_nothing_unread(silver: Any) -> None:
    plan, entry = silver(2)
    (reading,) = open_upstream_logs(plan, entry, STORE)
    found = read_upstream_facts(reading, entry)
    assert (found.name, found.lag, found.oldest_ms, found.lost) == ("bronze.orders", 0, None, None)
    assert (found.log_kept, found.files_kept) == (30 * 86_400, 7 * 86_400)
    assert delta_backlog([found], [reading], RecentCommits()).lag == 0


def test_unread_commits_are_as_old_as_the_first_that_brings_rows(orders: BronzeTable, silver: Any) -> None:
    orders.commit(None, "OPTIMIZE")
    before = now_ms()
    orders.batch({"orders": {0: 200}})
    plan, entry = silver(2)
    (reading,) = open_upstream_logs(plan, entry, STORE)
    found = read_upstream_facts(reading, entry)
    assert found.lag == 2
    assert found.oldest_ms is not None and before - 1000 < found.oldest_ms <= now_ms() + 1000
    backlog = delta_backlog([found], [reading], RecentCommits())
    assert (backlog.lag, backlog.unit, backlog.oldest_ms) == (2, "commit", found.oldest_ms)


def test_compaction_alone_is_nothing_to_read(orders: BronzeTable, silver: Any) -> None:
    orders.commit(None, "OPTIMIZE")
    plan, entry = silver(2)
    found = [read_upstream_facts(one, entry) for one in open_upstream_logs(plan, entry, STORE)]
    assert found[0].oldest_ms is None
    assert delta_backlog(found, [], RecentCommits()).lag == 0


def test_commits_that_the_log_no_longer_has_are_lost(orders: BronzeTable, silver: Any) -> None:
    for number in (2, 3, 4):
        orders.batch({"orders": {0: number * 100}})
    noted(orders, 4, 4, 400, **{"delta.logRetentionDuration": "interval 8 days"})
    for version in (0, 1, 2):
        (orders.log / f"{version:020d}.json").unlink()
    plan, entry = silver(1)
    (found,) = (read_upstream_facts(one, entry) for one in open_upstream_logs(plan, entry, STORE))
    assert (found.lost, found.log_kept) == ((1, 2), 8 * 86_400)
