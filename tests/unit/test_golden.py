"""What a lake holds and what programs read keeps its names from version to version.

The `--json` documents are those of the lake that the version before has made, with its broker away. Documents of verbs
that need Spark are pinned by tests/integration/test_golden.py, those that need the broker by
tests/e2e/test_lake_made_before.py.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from penstock.cli.main import VERBS, app, main
from penstock.ledger.checkpoint import checkpoint_folder, store_pins, write_batch_file
from penstock.ledger.entry import Counts, Entry, MaintenanceNote, Pins, Watermark, dump
from penstock.ledger.entry import dump_maintenance as dump_upkeep
from penstock.ledger.pending import Replay, Rewind, rewind_document
from penstock.ledger.pending import replay_document as replay_document
from penstock.ledger.row_counts import store_row_counts
from penstock.operations.status import RunnerStatus, write_state
from penstock.plan.build import build_plan, plan_document
from penstock.plan.model import Plan
from penstock.spec.load import load_project
from penstock.storage.stores import LocalStore
from tests.bronze_table import BronzeTable
from tests.compatibility.make_lake import unpack
from tests.golden import HERE, answered, companions, golden, shape
from tests.unit.project_file import AWAY

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


@pytest.fixture
def _no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPAT_KAFKA", "127.0.0.1:1")
    monkeypatch.setattr("penstock.operations.status.BROKER_TIMEOUT", 0.05)
    monkeypatch.setattr("penstock.doctor.topics.TIMEOUT", 0.05)


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
    store_row_counts(store, folder, 4, ENTRY.counts.row_counts)
    write_batch_file(store, folder, "files", 4, {"a": 1})
    found = {str(file.relative_to(tmp_path)): json.loads(file.read_text()) for file in tmp_path.rglob("*/4")}
    found["folder of a generation"] = checkpoint_folder("lake/_penstock/checkpoints/silver.orders", ENTRY)
    golden("checkpoint", found)


@pytest.mark.parametrize("name", sorted(PROJECTS))
def test_definition_hashes_and_keys_of_the_plan(name: str, _environment: None) -> None:
    plan = _plan(PROJECTS[name])
    found: dict[str, Any] = {"definitions": {table.name: table.definition for table in plan.tables}}
    document = {**plan_document(plan), "conf": {}}  # Spark's own names
    golden(f"plan-{name}", {**found, "document": shape(json.loads(json.dumps(document)), maps=())})


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project that the version before has run. Nothing may be changed in it."""
    return unpack(tmp_path_factory.mktemp("lake"))


CALLS = {
    "plan": ["plan"],
    "status": ["status"],
    "history": ["history TABLE --limit 0"],
    "verify-without-broker": ["verify --no-recompute"],
    "doctor": ["doctor"],
    "checkpoints-list": ["checkpoints list"],
    "checkpoints-show": ["checkpoints show TABLE --last 100"],
    "checkpoints-reset": ["checkpoints reset bronze.copy --to earliest --dry-run"],
    "checkpoints-heal-in-step": ["checkpoints heal silver.orders"],
    "dlq-list": ["dlq list"],
    "dlq-show": ["dlq show silver.orders", "dlq show bronze.csv_files", "dlq show silver.current"],
    "optimize-dry-run": ["optimize --full --dry-run"],
    "vacuum-dry-run": ["vacuum --retain 3650days --dry-run"],
    "jars-list": ["jars list"],
    "forget-list-of-nobody": ["forget --list"],
}


@pytest.mark.parametrize("name", CALLS)
def test_documents_of_a_lake(name: str, lake: Path, _no_broker: None) -> None:
    tables = [table.name for table in _plan(lake).tables]
    calls = [call.replace("TABLE", table) for call in CALLS[name] for table in tables[: None if "TABLE" in call else 1]]
    golden(f"documents/{name}", shape(*[answered(lake, call) for call in calls]))


def test_columns_beside_tables_of_the_version_before(lake: Path) -> None:
    """tests/integration/test_golden.py compares those that this version makes with the same file."""
    golden("companions", companions(lake))


def test_document_of_a_checkpoint_that_is_healed(tmp_path: Path, _no_broker: None) -> None:
    folder = unpack(tmp_path)
    for commit in (folder / "lake/_penstock/checkpoints/silver.orders/1/commits").iterdir():
        commit.unlink()
    healed = answered(folder, "checkpoints heal silver.orders --yes")
    assert healed["done"]
    golden("documents/checkpoints-heal", shape(healed))


@pytest.fixture
def bronze(tmp_path: Path) -> BronzeTable:
    """A table of a project in the test's folder, at its start."""
    (tmp_path / "penstock.yml").write_text(f"{AWAY}tables: {{bronze.orders: {{from: {{kafka: orders}}}}}}\n")
    (table,) = _plan(tmp_path).tables
    return BronzeTable(table).genesis({"orders": {0: 0}})


@pytest.mark.parametrize("call", ["status", "verify", "history bronze.orders", "checkpoints show bronze.orders"])
def test_documents_of_a_table_in_trouble(call: str, bronze: BronzeTable, tmp_path: Path, _no_broker: None) -> None:
    """Records 0 and 9 are missing, 5 is there twice, one was never read, another program has deleted rows."""
    offsets = [*range(1, 9), 5, 12]
    bronze.batch({"orders": {0: 10}}, rows=[("orders", 0, offset) for offset in offsets])
    bronze.delete("offset = 3")
    state = RunnerStatus("failed", "the disk is full", "make room")
    write_state(LocalStore(), _plan(tmp_path).system, "bronze.orders", state)
    verb = call.removesuffix(" bronze.orders").replace(" ", "-")
    golden(f"documents/{verb}-in-trouble", shape(answered(tmp_path, call)))


@pytest.mark.parametrize(
    ("verb", "pending"),
    [("replay", replay_document(Replay(1, ("{}",)))), ("rewind", rewind_document(Rewind(0, 1, ("{}",))))],
)
def test_documents_of_what_is_aborted(verb: str, pending: dict[str, Any], bronze: BronzeTable, tmp_path: Path) -> None:
    bronze.open({"orders": {0: 0}}, pending=pending)
    golden(f"documents/{verb}-abort", shape(answered(tmp_path, f"{verb} bronze.orders --abort --dry-run")))


def test_documents_of_a_new_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    golden("documents/init", shape(answered(Path(), f"init {tmp_path / 'new'}")))
    golden("documents/validate", shape(answered(tmp_path / "new", "validate")))
    file = tmp_path / "new" / "penstock.yml"
    file.write_text(file.read_text().replace("tables:", "tabels:"))
    golden("documents/validate-problems", shape(answered(tmp_path / "new", "validate")))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    golden("documents/kafka-status-without-broker", shape(answered(Path(), "kafka status")))


def test_document_of_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["penstock", "-C", str(tmp_path), "status", "--json"])
    with pytest.raises(SystemExit):
        main()
    golden("documents/error", shape(json.loads(capsys.readouterr().out)))


def test_every_verb_with_json_is_pinned() -> None:
    pinned = [file.stem for file in (HERE / "documents").glob("*.json")]
    root: Any = get_command(app)
    commands = {verb: root.get_command(None, verb) for verb in VERBS}
    for verb, group in list(commands.items()):
        commands |= {f"{verb}-{name}": command for name, command in getattr(group, "commands", {}).items()}
    answering = [
        verb for verb, command in commands.items() if any("--json" in option.opts for option in command.params)
    ]
    assert len(answering) > 20
    assert [verb for verb in answering if not any(f"{name}-".startswith(f"{verb}-") for name in pinned)] == []
