"""A bronze table made without Spark: real Parquet and a real Delta log, with the ledger that a test asks for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from penstock.ledger import position
from penstock.ledger.entry import Counts, Entry, Pins, dump
from penstock.plan.model import Plan, TablePlan, TriggerPlan
from penstock.plan.sources import Cluster, KafkaSource, StartingPlan
from penstock.spec.columns import CANONICAL

Where = tuple[str, int, int]
"""Topic, partition, offset."""


def table_plan(
    uri: str, name: str = "bronze.orders", bootstrap: str = "127.0.0.1:1", columns: Mapping[str, str] | None = None
) -> TablePlan:
    source = KafkaSource(Cluster("default", bootstrap), ("orders",), None, StartingPlan("earliest"), None, None)
    return TablePlan(
        name=name,
        source=source,
        payload="binary",
        columns=columns or {name: name for name in CANONICAL if not name.endswith("_binary")},
        trigger=TriggerPlan("interval", 30.0),
        uri=uri,
        checkpoints=f"{uri}__checkpoints",
        properties={},
        definition="d",
        origin="penstock.yml:1",
    )


def plan_of(folder: Path, *tables: TablePlan) -> Plan:
    return Plan("test", str(folder), str(folder / "lake"), "local[2]", 2, {}, (), tables)


class BronzeTable:
    """Each method makes one commit. `rows` may differ from what the entry says: that is what `verify` is for."""

    def __init__(self, plan: TablePlan, ids: Mapping[str, str] | None = None) -> None:
        self.plan = plan
        self.ids = dict(ids or {})
        self.last: Entry | None = None
        self._landed = self._total = 0

    def genesis(self, start: position.Offsets) -> BronzeTable:
        at = (position.dump(start),)
        entry = Entry("genesis", self.plan.name, "ledger-1", 1, 0, at, at, _pins(), self.ids, {"topics": ["orders"]})
        self._create(entry)
        self.last = entry
        return self

    def batch(self, after: position.Offsets, rows: Iterable[Where] | None = None, **changed: Any) -> BronzeTable:
        """Lands every offset up to `after`, or just `rows`. Partitions that are not named keep their position."""
        assert self.last is not None
        whole = _merged(position.parse(self.last.after[0]), after)
        changed.setdefault("after", (position.dump(whole),))
        entry = self._next(kind="batch", batch=self.last.batch + 1, **changed)
        landed = list(rows) if rows is not None else all_between(self.last.after[0], position.dump(whole))
        self.append(landed, dump(entry)) if landed else self.commit(dump(entry))
        self._landed = len(landed)
        self.last = entry
        return self

    def open(self, after: position.Offsets, note: str = "by hand", **changed: Any) -> BronzeTable:
        assert self.last is not None
        changed = {"generation": self.last.generation + 1, "note": note, "topics": self.ids, **changed}
        entry = self._next(kind="open", batch=0, after=(position.dump(after),), **changed)
        self.commit(dump(entry))
        self._landed = 0
        self.last = entry
        return self

    def carry(self) -> BronzeTable:
        assert self.last is not None
        self.commit(dump(self.last.carry_entry(Counts(self._landed, self._total + self._landed))))
        return self

    def append(self, rows: Iterable[Where], user_metadata: str | None = None) -> int:
        from arro3.core import Array, DataType, Table
        from deltalake import CommitProperties, write_deltalake

        found = list(rows)
        named = self.plan.columns
        data = Table.from_pydict(
            {
                named["value"]: Array([f"value of {where}" for where in found], type=DataType.string()),
                named["topic"]: Array([where[0] for where in found], type=DataType.string()),
                named["partition"]: Array([where[1] for where in found], type=DataType.int32()),
                named["offset"]: Array([where[2] for where in found], type=DataType.int64()),
            }
        )
        properties = CommitProperties(custom_metadata={"userMetadata": user_metadata} if user_metadata else None)
        write_deltalake(self.plan.uri, data, mode="append", commit_properties=properties)
        return self.version()

    def commit(self, user_metadata: str | None, operation: str = "WRITE", **parameters: Any) -> int:
        """A commit that neither adds nor removes a file."""
        info: dict[str, Any] = {"timestamp": now_ms(), "operation": operation, "operationParameters": parameters}
        if user_metadata:
            info["userMetadata"] = user_metadata
        version = self.version() + 1
        (self.log / f"{version:020d}.json").write_text(json.dumps({"commitInfo": info}) + "\n")
        return version

    def delete(self, predicate: str) -> int:
        self.table().delete(predicate)
        return self.version()

    def restore(self, version: int) -> int:
        self.table().restore(version)
        return self.version()

    def table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self.plan.uri)

    @property
    def log(self) -> Path:
        return Path(self.plan.uri) / "_delta_log"

    def version(self) -> int:
        return max(int(path.stem) for path in self.log.glob("*.json"))

    def _next(self, **changed: Any) -> Entry:
        from dataclasses import replace

        assert self.last is not None
        self._total += self._landed
        base = replace(self.last, note=None, topics=self.ids, counts=Counts(self._landed, self._total), pins=_pins())
        return replace(base, before=changed.pop("before", self.last.after), **changed)

    def _create(self, entry: Entry) -> None:
        from deltalake import CommitProperties, DeltaTable, Field, Schema

        named = self.plan.columns
        kinds = {"value": "string", "topic": "string", "partition": "integer", "offset": "long"}
        from deltalake.schema import PrimitiveType

        schema = Schema([Field(named[name], PrimitiveType(kind), nullable=True) for name, kind in kinds.items()])
        Path(self.plan.uri).mkdir(parents=True, exist_ok=True)
        DeltaTable.create(
            self.plan.uri,
            schema,
            commit_properties=CommitProperties(custom_metadata={"userMetadata": dump(entry)}),
        )


def all_between(before: str, after: str) -> list[Where]:
    return [(r.topic, r.partition, o) for r in position.ranges(before, after) for o in range(r.start, r.end)]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _pins() -> Pins:
    return Pins(now_ms(), "d")


def _merged(one: position.Offsets, other: position.Offsets) -> position.Offsets:
    return {t: {**one.get(t, {}), **other.get(t, {})} for t in {**one, **other}}
