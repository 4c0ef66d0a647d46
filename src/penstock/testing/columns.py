"""The columns that the source of a table has, from the definitions of the project alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.engine.covered import Asked, Covered
from penstock.engine.protocol.entry import Entry
from penstock.engine.source import Move, Position, Start
from penstock.engine.stages.coordinates import FILE, ROW
from penstock.engine.store import LocalStore
from penstock.engine.table_function import table_function
from penstock.errors import UsageError
from penstock.plan.files import FilesSource
from penstock.plan.model import KafkaSource, Plan, TablePlan
from penstock.plan.stages import Lookup
from penstock.testing.given import kafka_schema, table_rows

_LINES = f"key STRING, value STRING, value_binary BINARY, {FILE} STRING, {ROW} BIGINT"
Rows = Iterable[Mapping[str, Any]]


class Given:
    """A source of which only the columns are known."""

    def __init__(self, columns: StructType) -> None:
        self._columns = columns
        self.subscription: Mapping[str, Any] = {}

    def stream(self, spark: SparkSession) -> DataFrame:
        return spark.createDataFrame([], self._columns)

    def start(self) -> Start:
        raise NotImplementedError

    def follow(self, entry: Entry) -> Move | None:
        raise NotImplementedError

    def refuse_lost(self, entry: Entry) -> None:
        raise NotImplementedError

    def ids(self, after: Position) -> Mapping[str, str]:
        raise NotImplementedError

    def covered(self, spark: SparkSession, asked: Asked) -> Covered:
        raise NotImplementedError

    def size(self, before: Position, after: Position) -> int | None:
        raise NotImplementedError

    def remarks(self, before: Position, after: Position) -> Iterable[str]:
        raise NotImplementedError


def columns_of(spark: SparkSession, plan: Plan, table: TablePlan, schemas: Mapping[str, str]) -> StructType:
    if isinstance(table.source, KafkaSource):
        return kafka_schema()
    if isinstance(table.source, FilesSource) and table.source.by_line:
        if table.source.schema is None:
            raise UsageError(f"{table.name} infers its schema from its files", hint="write `schema` to test it")
        return cast(StructType, StructType.fromDDL(_LINES))
    if table.source.table is None:
        if "source" not in schemas:
            raise UsageError(
                f"what columns has the source of {table.name}?", hint='give schemas={"source": "id BIGINT, …"}'
            )
        return cast(StructType, StructType.fromDDL(f"{schemas['source']}, {FILE} STRING, {ROW} BIGINT"))
    upstream = plan.table(table.source.table)
    assert upstream is not None
    made = _made(spark, plan, upstream, schemas)
    if table.input.coordinates == "file":
        made = StructType([*made.fields, *cast(StructType, StructType.fromDDL(f"{FILE} STRING, {ROW} BIGINT")).fields])
    return made


def with_lookups(
    spark: SparkSession, plan: Plan, table: TablePlan, given: Mapping[str, Rows], schemas: Mapping[str, str]
) -> TablePlan:
    """The table with lookups of its own, which hold the given rows."""
    if table.stages is None:
        return table
    wanted = [one.name for one in table.stages.lookups]
    if unknown := [name for name in given if name not in wanted]:
        hint = f"it has {', '.join(wanted) or 'none'}"
        raise UsageError(f"{table.name} has no lookup '{unknown[0]}'", hint=hint)
    moved = []
    for one in table.stages.lookups:
        place = f"{plan.lake}/_lookups/{table.name}/{one.name}"
        frame = table_rows(spark, given.get(one.name, ()), _columns_of_lookup(spark, plan, one, schemas))
        frame.write.format("delta").mode("overwrite").save(place)
        moved.append(replace(one, uri=place))
    return replace(table, stages=replace(table.stages, lookups=tuple(moved)))


def _columns_of_lookup(spark: SparkSession, plan: Plan, one: Lookup, schemas: Mapping[str, str]) -> StructType:
    if one.name in schemas:
        return cast(StructType, StructType.fromDDL(schemas[one.name]))
    table = plan.table(one.table) if one.table is not None else None
    if table is None:
        hint = f'give schemas={{"{one.name}": "id BIGINT, …"}}'
        raise UsageError(f"what columns has the lookup '{one.name}'?", hint=hint)
    return _made(spark, plan, table, schemas)


def _made(spark: SparkSession, plan: Plan, table: TablePlan, schemas: Mapping[str, str]) -> StructType:
    """The columns of a table of the project."""
    source = Given(columns_of(spark, plan, table, schemas))
    return table_function(spark, with_lookups(spark, plan, table, {}, schemas), LocalStore(), source).schema
