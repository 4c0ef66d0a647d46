"""A project whose tables have a ledger and a checkpoint, both written by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.ledger.checkpoint import checkpoint_folder, heal
from penstock.ledger.entry import Entry
from penstock.ledger.position import Version
from penstock.ledger.source import subscription_of
from penstock.plan.build import build_plan
from penstock.plan.model import Plan, TablePlan
from penstock.plan.sources import KafkaSource
from penstock.spec.load import load_project
from penstock.storage.stores import LocalStore
from tests.unit.hand_ledgers import HandLog, at, entry
from tests.unit.project_file import AWAY

PROJECT = (
    AWAY
    + """\
tables:
  bronze.orders: {from: {kafka: orders}}
  silver.orders:
    from: {table: bronze.orders}
    decode: {json: value, schema: "order_id BIGINT, amount DECIMAL(12,2)"}
  gold.sessions:
    from: {table: silver.orders}
    stream: streams.py:sessions
"""
)
BRONZE, SILVER, GOLD = "bronze.orders", "silver.orders", "gold.sessions"
STORE = LocalStore()


def make_plan(folder: Path, text: str = PROJECT) -> Plan:
    (folder / "penstock.yml").write_text(text)
    (folder / "streams.py").write_text("def sessions(orders):\n    return orders\n")
    return build_plan(load_project(folder))


def version(number: int, *, snapshot: bool = False, index: int = -1) -> str:
    return str(Version("table-id", number, index, snapshot))


def position(table: TablePlan, batch: int) -> str:
    """After a batch."""
    kafka = isinstance(table.source, KafkaSource)
    return at(10 * batch, batch) if kafka else version(batch + 1, snapshot=batch == 0)


def entry_of(table: TablePlan, number: int, **other: Any) -> Entry:
    """Of a batch that ran by the definition of the plan."""
    made = entry(number, position(table, max(number - 1, 0)), position(table, number), table=table.name, **other)
    streams = {"order": ["orders"]} if table.stream is not None else {}
    pins = replace(made.pins, definition=table.definition)
    return replace(made, pins=pins, subscription={**subscription_of(table), **streams})


class Held:
    """A table that has landed some batches; its checkpoint is as Spark leaves it after the last of them."""

    def __init__(self, plan: Plan, name: str, *, batches: int = 3) -> None:
        table = plan.table(name)
        assert table is not None
        self.table: TablePlan = table
        self.log = HandLog(Path(table.uri), name)
        self.entry = entry_of(table, 0, kind="genesis")
        self.log.commit("CREATE TABLE", note=self.entry)
        for number in range(1, batches + 1):
            self.entry = entry_of(table, number)
            self.log.batch(self.entry)
        self.checkpoint()

    @property
    def folder(self) -> Path:
        return Path(checkpoint_folder(self.table.checkpoints, self.entry))

    def position(self, batch: int) -> str:
        return position(self.table, batch)

    def checkpoint(self) -> None:
        """Of all batches, each of them committed."""
        heal(STORE, str(self.folder), self.entry)
        for number in range(self.entry.batch + 1):
            self.plan_batch(number)
            STORE.write(f"{self.folder}/commits/{number}", 'v1\n{"nextBatchWatermarkMs":0}')

    def plan_batch(self, number: int) -> None:
        meta = f'{{"batchWatermarkMs":0,"batchTimestampMs":{1_700_000_000_000 + number},"conf":{{}}}}'
        STORE.write(f"{self.folder}/offsets/{number}", f"v1\n{meta}\n{self.position(number)}")

    def open(self, note: str = "by hand") -> None:
        """The next generation, at the same position."""
        self.entry = replace(self.entry, kind="open", generation=self.entry.generation + 1, batch=0, note=note)
        self.entry = replace(self.entry, before=self.entry.after)
        self.log.commit("WRITE", note=self.entry)
