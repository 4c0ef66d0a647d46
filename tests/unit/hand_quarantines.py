"""Quarantines made without Spark: real Parquet and a real Delta log, with the columns that `tables/quarantine.py` gives
them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from arro3.core import Array, DataType, Field, Table, list_array, struct_array

from penstock.ledger.row_counts import BATCHES, READ
from penstock.plan.build import build_plan
from penstock.plan.model import Plan, TablePlan
from penstock.plan.quarantine import quarantine_of
from penstock.spec.load import load_project
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
    expect: [{name: has_id, check: order_id IS NOT NULL}]
  silver.files:
    from: {files: ./in, format: json, schema: "a BIGINT"}
"""
)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
_KAFKA = {"topic": DataType.string(), "partition": DataType.int32(), "offset": DataType.int64()}
_FILE = {"file": DataType.string(), "row": DataType.int64()}
_CHANGE = {"version": DataType.int64(), "deleted": DataType.bool()}
_TEXTS = ("key", "value", "error_reason", "error_detail", "definition")
_NUMBERS = ("generation", "batch")
_TIMES = ("kafka_timestamp", "ingestion_timestamp", "error_timestamp")


def make_plan(folder: Path) -> Plan:
    (folder / "penstock.yml").write_text(PROJECT)
    (folder / "in").mkdir(exist_ok=True)
    return build_plan(load_project(folder))


def rejected(reason: str, detail: str, *, batch: int = 1, **other: Any) -> dict[str, Any]:
    """A row; what is not said is that of any row."""
    row = {
        "key": "k",
        "key_binary": None,
        "value": "{}",
        "value_binary": None,
        "headers": [],
        "kafka_timestamp": NOON,
        "ingestion_timestamp": NOON,
        "_source": {"topic": "orders", "partition": 0, "offset": 0},
        "error_reason": reason,
        "error_detail": detail,
        "error_timestamp": NOON,
        "generation": 1,
        "batch": batch,
        "definition": "d",
    }
    return {**row, **other}


def write(table: TablePlan, *rows: dict[str, Any]) -> str:
    """One commit with these rows, of which all have coordinates of the same kind; where the quarantine lies."""
    from deltalake import write_deltalake

    uri = quarantine_of(table.name, table.uri).uri
    write_deltalake(uri, _table(rows), mode="append")
    return uri


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    columns: dict[str, Any] = {}
    for name in rejected("", ""):
        values = [row[name] for row in rows]
        if name in _TEXTS:
            columns[name] = Array(values, type=DataType.string())
        elif name in _NUMBERS:
            columns[name] = Array(values, type=DataType.int64())
        elif name in _TIMES:
            # A number is of microseconds: of a time that Python cannot hold.
            micros = [at if at is None or isinstance(at, int) else round(at.timestamp() * 1_000_000) for at in values]
            columns[name] = Array(micros, type=DataType.int64()).cast(DataType.timestamp("us", tz="UTC"))
        elif name == "headers":
            columns[name] = _headers(values)
        elif name == "_source":
            columns[name] = _struct(
                values, next(kind for kind in (_KAFKA, _FILE, _CHANGE) if set(kind) == set(values[0]))
            )
        else:
            columns[name] = Array(values, type=DataType.binary())
    return Table.from_pydict(columns)


def _struct(values: Sequence[dict[str, Any]], kinds: dict[str, Any]) -> Any:
    arrays = [Array([value[name] for value in values], type=kind) for name, kind in kinds.items()]
    return struct_array(arrays, fields=[Field(name, kind) for name, kind in kinds.items()])


def _headers(values: Sequence[Sequence[tuple[str, bytes]]]) -> Any:
    ends = [0]
    for one in values:
        ends.append(ends[-1] + len(one))
    flat = [{"key": key, "value": value} for one in values for key, value in one]
    held = _struct(flat, {"key": DataType.string(), "value": DataType.binary()})
    return list_array(Array(ends, type=DataType.int32()), held)


def read_by(plan: TablePlan, *, read: int, batch: int = 1) -> HandLog:
    """The table itself: its ledger says that so many rows were read."""
    log = HandLog(Path(plan.uri), plan.name)
    log.commit("CREATE TABLE", note=entry(0, at(0), at(0), kind="genesis", table=plan.name))
    for number in range(1, batch + 1):
        log.batch(entry(number, at(number - 1), at(number), table=plan.name))
    row_counts = Path(plan.checkpoints) / "1" / "fates" / str(batch)
    row_counts.parent.mkdir(parents=True)
    row_counts.write_text(json.dumps({READ: read, BATCHES: batch}))
    return log
