"""Whether today's definition is that of the last batch, as `plan` and `checkpoints show` say it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer import Typer
from typer.testing import CliRunner

from penstock.cli import plan as plan_verb
from penstock.operations.staleness import DefinitionDrift, definition_drift, definition_drifts
from penstock.plan.model import Plan
from tests.unit.hand_checkpoints import BRONZE, GOLD, PROJECT, SILVER, Held, entry_of, make_plan

MERGED = """
  silver.customers:
    from: {kafka: customers}
    decode: {json: value, schema: "id BIGINT NOT NULL, name STRING, at TIMESTAMP"}
    write: {merge: {keys: [id], sequence: at}}
"""


def fits(plan: Plan, name: str) -> DefinitionDrift:
    return definition_drifts(plan, plan.tables)[name]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return make_plan(tmp_path)


def changed(plan: Plan, old: str, new: str) -> Plan:
    """The project with another text in its file."""
    text = Path(plan.root, "penstock.yml").read_text()
    assert old in text
    return make_plan(Path(plan.root), text.replace(old, new))


def test_a_table_that_is_not_there_is_new(plan: Plan) -> None:
    found = fits(plan, SILVER)
    assert (found.kind, found.last_batch, found.describe) == ("new", None, "new: the first run creates the table")


def test_the_definition_of_the_last_batch_is_unchanged(plan: Plan) -> None:
    silver = Held(plan, SILVER, batches=3)
    assert fits(plan, SILVER).describe == "unchanged: that of batch 1.3"
    silver.open()
    assert fits(plan, SILVER).describe == "unchanged since generation 2 began"


def test_another_definition_is_changed_since_the_last_batch(plan: Plan) -> None:
    held = Held(plan, SILVER, batches=3)
    later = changed(plan, "amount DECIMAL(12,2)", "amount DECIMAL(14,2)")
    found = fits(later, SILVER)
    assert (found.kind, found.last_batch, found.last_definition, found.refused) == (
        "changed",
        (1, 3),
        held.table.definition,
        False,
    )
    assert found.describe.startswith("changed since batch 1.3: the next batches run by the new one; `penstock replay")
    assert "schema: strict" in found.consequence
    evolving = changed(
        later, "from: {table: bronze.orders}", "from: {table: bronze.orders}\n    write: {schema: evolve}"
    )
    assert "schema: strict" not in fits(evolving, SILVER).consequence


def test_a_rate_or_a_trigger_changes_nothing(plan: Plan) -> None:
    Held(plan, BRONZE)
    assert fits(changed(plan, "kafka: orders", "kafka: orders, max_per_trigger: 7"), BRONZE).kind == "unchanged"


def test_another_source_opens_a_generation(plan: Plan) -> None:
    Held(plan, SILVER)
    Held(plan, BRONZE)
    found = fits(changed(plan, "{table: bronze.orders}", "{kafka: orders}"), SILVER)
    assert found.kind == "another source"
    assert found.consequence == (
        "it read table bronze.orders, now topic orders: the next start opens generation 2 and begins it by `starting`"
    )
    more = fits(changed(plan, "{kafka: orders}", "{kafka: [orders, refunds]}"), BRONZE)
    assert more.kind == "another source"
    assert "topics that stay continue" in more.consequence


def test_another_function_on_spark_s_state_is_told_with_what_it_may_break(plan: Plan) -> None:
    Held(plan, GOLD)
    assert fits(plan, GOLD).kind == "unchanged"
    Path(plan.root, "streams.py").write_text("def sessions(orders):\n    return orders.where('true')\n")
    from penstock.plan.build import build_plan
    from penstock.spec.load import load_project

    found = fits(build_plan(load_project(Path(plan.root))), GOLD)
    assert (found.kind, found.refused) == ("changed", False)
    assert "state in its checkpoint is that of the old function" in found.consequence
    assert "--to starting" in found.consequence


def test_other_inputs_of_such_a_function_are_refused(plan: Plan) -> None:
    Held(plan, GOLD)
    found = fits(changed(plan, "from: {table: silver.orders}", "from: {table: bronze.orders}"), GOLD)
    assert (found.kind, found.refused) == ("another source", True)
    assert "of table silver.orders, the function reads table bronze.orders" in found.consequence


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ("{keys: [name], sequence: at}", "is merged scd1 by id, this definition merges scd1 by name, which is refused"),
        ("{keys: [id], sequence: at, history: scd2}", "this definition merges scd2 by id, which is refused"),
        ("{keys: [id], sequence: name}", ""),
    ],
)
def test_a_merged_table_keeps_its_keys_and_its_history(tmp_path: Path, new: str, said: str) -> None:
    from deltalake import DeltaTable, Field, Schema
    from deltalake.schema import PrimitiveType

    plan = make_plan(tmp_path, PROJECT + MERGED)
    table = plan.table("silver.customers")
    assert table is not None
    Path(table.uri).mkdir(parents=True)
    DeltaTable.create(
        table.uri,
        Schema([Field("id", PrimitiveType("long"))]),
        configuration={"penstock.merge": "scd1 by id"},
        raise_if_key_not_exists=False,
    )
    now = changed(plan, "{keys: [id], sequence: at}", new).table("silver.customers")
    assert now is not None
    found = definition_drift(now, entry_of(table, 3))
    assert (found.kind, found.refused) == ("changed", bool(said))
    assert said in found.consequence


def test_a_lake_that_cannot_be_read_leaves_it_unknown(plan: Plan) -> None:
    Held(plan, BRONZE)
    remote = replace(plan, lake="hdfs://name:8020/lake")
    assert {one.kind for one in definition_drifts(remote, remote.tables).values()} == {"unknown"}
    silver = plan.table(SILVER)
    assert silver is not None
    log = Path(silver.uri) / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text('{"commitInfo": {"oper')
    found = definition_drifts(plan, plan.tables)
    assert (found[BRONZE].kind, found[SILVER].kind, found[GOLD].kind) == ("unchanged", "unknown", "new")


def test_plan_says_it_per_table(plan: Plan) -> None:
    Held(plan, SILVER)
    later = changed(plan, "order_id BIGINT", "order_id BIGINT NOT NULL")

    def call(*words: str) -> Any:
        app = Typer()
        app.command()(plan_verb.command)
        done = CliRunner().invoke(app, ["-C", later.root, *words])
        assert done.exit_code == 0, done.output
        return done.stdout

    told = " ".join(call().split())
    assert "changed since batch 1.3: the next batches run by the new one" in told
    assert told.count("new: the first run creates the table") == 2
    tables = {table["name"]: table["fit"] for table in json.loads(call("--json"))["tables"]}
    assert (tables[SILVER]["kind"], tables[SILVER]["generation"], tables[SILVER]["batch"]) == ("changed", 1, 3)
    assert tables[BRONZE] == {
        "kind": "new",
        "generation": None,
        "batch": None,
        "was": None,
        "follows": "the first run creates the table",
        "refused": False,
    }
