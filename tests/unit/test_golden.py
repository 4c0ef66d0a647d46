"""What a lake holds and what programs read keeps its names from version to version."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.ledger.checkpoint import folder_of, store_pins, write_batch_file
from penstock.ledger.entry import Counts, Entry, MaintenanceNote, Pins, Watermark, dump
from penstock.ledger.entry import dump_maintenance as dump_upkeep
from penstock.ledger.row_counts import store_row_counts
from penstock.plan.build import build_plan, plan_document
from penstock.plan.model import Plan
from penstock.spec.load import load_project
from penstock.storage.stores import LocalStore
from tests.golden import golden, keys

ROOT = Path(__file__).parents[2]
PROJECTS = {file.parent.name: file.parent for file in (ROOT / "examples").glob("*/penstock.yml")}
PROJECTS["compatibility"] = ROOT / "tests" / "compatibility" / "project"
ENTRY = Entry(
    kind="batch",
    table="silver.orders",
    ledger="abc",
    generation=3,
    batch=7,
    before=('{"orders":{"0":1}}',),
    after=('{"orders":{"0":5}}',),
    pins=Pins(
        1_700_000_000_000,
        "0123",
        {"silver.names": 4},
        Watermark(closed=1, now=2, reached=3, local=True),
        (("orders", 0, 2),),
        (("orders", 0, 1),),
    ),
    topics={"orders": "id"},
    subscription={"topics": ["orders"]},
    counts=Counts(4, 9, {"batches": 1, "read": 4, "unmet:positive": 1}),
    note="by hand",
    parked={"old": {"id": "x", "offsets": {"0": 12}}},
    seen=11,
    sent=2,
    changed={"inserted": 1},
    horizon="h",
    began=('{"orders":{"0":0}}',),
    base=6,
    filled=(2, 10),
    started_ms=1_700_000_000_001,
    pending={"replay": {}},
    id="ghi",
)


@pytest.fixture
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COMPAT_KAFKA", "KAFKA_BOOTSTRAP"):
        monkeypatch.setenv(name, "127.0.0.1:9092")
    monkeypatch.setattr("os.cpu_count", lambda: 2)


def _plan(folder: Path) -> Plan:
    return build_plan(load_project(folder))


def test_a_ledger_entry_with_everything_in_it() -> None:
    bare = replace(ENTRY, counts=Counts(), note=None, parked={}, seen=None, sent=None, changed={}, horizon=None)
    bare = replace(bare, began=(), base=None, filled=None, started_ms=None, pending={}, id="", pins=Pins(1, "0123"))
    found = {"whole": json.loads(dump(ENTRY)), "bare": json.loads(dump(bare))}
    note = MaintenanceNote("optimize", "silver.orders", "penstock optimize", "3 files became 1", "host", 12)
    golden("ledger", {**found, "maintenance": json.loads(dump_upkeep(note))})


def test_the_files_of_a_checkpoint(tmp_path: Path) -> None:
    store, folder = LocalStore(), str(tmp_path / "1")
    store_pins(store, folder, 4, ENTRY.pins)
    store_row_counts(store, folder, 4, ENTRY.counts.fates)
    write_batch_file(store, folder, "files", 4, {"a": 1})
    found = {str(file.relative_to(tmp_path)): json.loads(file.read_text()) for file in tmp_path.rglob("*/4")}
    found["folder of a generation"] = folder_of("lake/_penstock/checkpoints/silver.orders", ENTRY)
    golden("checkpoint", found)


@pytest.mark.parametrize("name", sorted(PROJECTS))
def test_definition_hashes_and_keys_of_the_plan(name: str, _environment: None) -> None:
    plan = _plan(PROJECTS[name])
    found: dict[str, Any] = {"definitions": {table.name: table.definition for table in plan.tables}}
    document = {**plan_document(plan), "conf": {}}  # Spark's own names
    golden(f"plan-{name}", {**found, "document": keys(json.loads(json.dumps(document)))})
