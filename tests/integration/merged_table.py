"""A merged table that is given its batches one by one, without a stream: a test decides what lies in its files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.integration.change_histories import SCHEMA, Change
from tests.integration.run_plan import log, make_plan, rows_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.plan.model import TablePlan
    from penstock.tables.merge.merge import TableMerge

_TYPES = f"{SCHEMA}, _source STRUCT<topic: STRING, partition: INT, offset: BIGINT>"
MERGE = {"sequence": "seq", "delete_when": "op = 'd'", "columns": {"except": ["op"]}}


def merged_plan(
    folder: Path,
    keys: Sequence[str] = ("k",),
    history: str = "scd1",
    merge: dict[str, Any] | None = None,
    **write: Any,
) -> TablePlan:
    merge = {**MERGE, "keys": list(keys), "history": history, **(merge or {})}
    tables = {
        "silver.t": {
            "from": {"kafka": "none"},
            "decode": {"json": "value", "schema": SCHEMA},
            "write": {"merge": merge, **write},
        }
    }
    folder.mkdir(exist_ok=True)
    return make_plan(folder, "127.0.0.1:1", tables).tables[0]


class Merged:
    """`select` are the columns of a change; `_source` is added."""

    def __init__(self, spark: SparkSession, table: TablePlan, select: Sequence[str]) -> None:
        from penstock.ledger.create import genesis
        from penstock.tables.merge.merge import table_schema

        self._spark, self.table, self.select = spark, table, list(select)
        self._entry = genesis(
            spark,
            log(table),
            table=table.name,
            uri=table.uri,
            schema=table_schema(table, self._rows([])),
            partition_by=table.write.partition_by,
            cluster_by=table.write.cluster_by,
            properties=table.properties,
            position=("0",),
            definition=table.definition,
            topics={},
            subscription={},
        ).entry
        self._merging = self._opened()
        self.sent: list[Change] = []

    def _opened(self) -> TableMerge:
        from penstock.storage.stores import LocalStore
        from penstock.tables.merge.merge import TableMerge, table_schema
        from penstock.tables.merge.tombstones import TombstoneTable

        self.tombstones = TombstoneTable(self._spark, LocalStore(), self.table, idempotent=False)
        self.tombstones.create(self._entry, table_schema(self.table, self._rows([])))
        return TableMerge(self.table, self.tombstones)

    def _rows(self, changes: Iterable[Change]) -> DataFrame:
        made = [(c.id, c.part, c.name, c.city, c.seq, c.op, ("t", *c.place)) for c in changes]
        return self._spark.createDataFrame(made, _TYPES).selectExpr(*self.select, "_source")

    def write(self, changes: Sequence[Change]) -> dict[str, int]:
        """One batch. The places of the changes are where they stand in all that was sent, unless they have some."""
        first = len(self.sent)
        placed = [
            c if c.place != (0, 0) else replace(c, place=(0, first + number)) for number, c in enumerate(changes, 1)
        ]
        self.sent += placed
        self.frame(self._rows(placed))
        commit = log(self.table).since(-1)[-1]
        return dict(commit.entry.changed) if commit.entry is not None else {}

    def frame(self, rows: DataFrame) -> None:
        """One batch of rows that have all the columns already."""
        from penstock.ledger.write_target import DeltaTableTarget

        self._entry = replace(self._entry, kind="batch", batch=self._entry.batch + 1)
        session = rows.sparkSession
        assert session is self._spark
        try:
            self._merging.write(rows, self._entry, DeltaTableTarget(self.table.uri), files=1, rejects=lambda: 0)
        finally:
            self._merging.release()

    def evolved(self, table: TablePlan, select: Sequence[str]) -> None:
        """The same table under another definition."""
        from penstock.tables.columns import settle_columns
        from penstock.tables.merge.merge import table_schema

        self.table, self.select = table, list(select)
        self._merging = self._opened()
        settle_columns(self._spark, table, table_schema(table, self._rows([])))

    def alive(self) -> list[dict[str, Any]]:
        found = rows_at(self.table.uri)
        assert not any(row["_deleted"] for row in found), "a reader would see deleted rows"
        return found

    def living(self) -> dict[tuple[int, str], dict[str, Any]]:
        found = self.alive()
        made = {(row["id"], row["part"]): {key: row[key] for key in ("name", "city", "seq")} for row in found}
        assert len(made) == len(found), f"{len(found)} living rows of {len(made)} keys"
        return made

    def history(self) -> list[tuple[Any, ...]]:
        columns = ("id", "part", "name", "city", "valid_from", "valid_to", "is_current")
        return [tuple(row[column] for column in columns) for row in self.alive()]
