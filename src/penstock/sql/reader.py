"""Queries over a project's tables, in a session that can only read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType, VariantType

from penstock.errors import UsageError
from penstock.ledger.delta_log import DeltaLog
from penstock.sources.columns import DELETED, alive
from penstock.spark.jvm import java_frame, java_session, jvm_of
from penstock.spark.session import ended_by_ctrl_c, logs_folder, short_session
from penstock.spark.sql_text import quote
from penstock.sql.causes import explained
from penstock.sql.plans import named, parse, replaced
from penstock.sql.readonly import active, reading_session, refuse_other_than_query, refuse_programs
from penstock.sql.statement import pointed
from penstock.sql.versions import Names, TableVersion, Versions, zone_of
from penstock.storage.stores import HadoopStore, LocalStore

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType

    from penstock.plan.model import Plan
    from penstock.sql.plans import Named
    from penstock.sql.statement import Statement
    from penstock.sql.versions import Readable

# Asks queries of a project's tables, in a session that can only read.


@dataclass(frozen=True)
class QueryResult:
    """Nothing is computed before rows are taken from it."""

    statement: Statement
    frame: DataFrame
    read: tuple[TableVersion, ...]
    """What it reads: each table in each version once."""


class SqlReader:
    def __init__(self, spark: SparkSession, plan: Plan, *, tombstones: bool = False) -> None:
        """`tombstones` shows the deleted rows of merged tables too."""
        self.session = reading_session(spark)
        self.names = Names(plan)
        self._zone = zone_of(plan)
        self._store = LocalStore() if plan.local else HadoopStore(spark)
        self._tombstones = tombstones
        self._explained = partial(explained, self.session, log=str(logs_folder(plan)))

    @contextmanager
    def ask(self, statement: Statement) -> Iterator[QueryResult]:
        """The answer; take its rows within. Every mention of a table without a version is the same version of it.
        Raises UsageError for a query that is wrong, QueryFailed for one that cannot be computed."""
        read: list[TableVersion] = []
        with ended_by_ctrl_c(self.session.sparkContext), active(self.session), self._explained(statement, read):
            plan = parse(self.session, statement.text)
            refuse_other_than_query(plan)
            tables = self._pinned(statement, named(plan, statement.written))
            read += dict.fromkeys(tables.values())
            frames = {one: self._plan_of(one) for one in read}
            plan = replaced(self.session, plan, {start: frames[one] for start, one in tables.items()})
            jvm: Any = jvm_of(self.session)
            found = jvm.org.apache.spark.sql.classic.Dataset.ofRows(java_session(self.session), plan)
            refuse_programs(found.queryExecution().analyzed())
            yield QueryResult(statement, DataFrame(found, self.session), tuple(read))

    def columns(self, table: Readable) -> tuple[int, Mapping[str, str]] | None:
        """The newest version of a table, and its columns with their types; None if it is not created yet."""
        versions = Versions(self._store, self._zone)
        if not versions.exists(table):
            return None
        pinned = TableVersion(table, versions.of(table, None))
        with active(self.session):
            fields = self._frame(pinned).schema.fields
        return pinned.version, {field.name: field.dataType.simpleString() for field in fields}

    def _pinned(self, statement: Statement, found: list[Named]) -> dict[int, TableVersion]:
        """By the places of the names."""
        versions = Versions(self._store, self._zone)
        behind = dict(statement.mentions)
        tables: dict[int, TableVersion] = {}
        for one in found:
            mention = behind.pop(one.start, None)
            if mention is not None and one.at is not None:
                raise UsageError(
                    f"there are two versions behind one name\n{pointed(statement.written, one.start, mention.end - 1)}"
                )
            table = self.names.find(one.parts, pointed(statement.written, one.start, one.stop))
            tables[one.start] = TableVersion(table, versions.of(table, mention.at if mention else one.at))
        for mention in behind.values():
            raise UsageError(
                f"a version stands behind something that is no table\n"
                f"{pointed(statement.written, mention.start, mention.end - 1)}",
                hint="write it in FROM or JOIN, and give the table another name there: FROM silver.orders@v12 AS old",
            )
        return tables

    def _frame(self, one: TableVersion) -> DataFrame:
        with self._explained(None, [one]):
            rows = self.session.read.format("delta").option("versionAsOf", one.version).load(one.table.uri)
        if one.table.tombstones is None or DELETED not in rows.columns:
            return rows
        # Versions of before tombstones had a table of their own have them among their rows.
        return self._with_tombstones(one.table.tombstones, rows) if self._tombstones else alive(rows)

    def _with_tombstones(self, uri: str, rows: DataFrame) -> DataFrame:
        """Those of now, whatever version the rows are of."""
        if not DeltaLog(self._store, uri, uri).versions():
            return rows
        dead = self.session.read.format("delta").load(uri).withColumn(DELETED, F.lit(True))
        kept = [name for name in rows.columns if name in dead.columns]
        return rows.unionByName(dead.select(*map(quote, kept)), allowMissingColumns=True)

    def _plan_of(self, one: TableVersion) -> Any:
        """Its plan under its name: `orders.id` and `silver.orders.id` are columns of silver.orders."""
        jvm: Any = jvm_of(self.session)
        *above, last = one.table.name.split(".")
        name = jvm.org.apache.spark.sql.catalyst.AliasIdentifier(last, jvm.PythonUtils.toSeq(above))
        analyzed = java_frame(self._frame(one)).queryExecution().analyzed()
        return jvm.org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias(name, analyzed)


@contextmanager
def open_reader(
    plan: Plan, *, tombstones: bool = False, say: Callable[[str], None] = lambda _: None
) -> Iterator[SqlReader]:
    """A reader with a Spark of its own, which ends with it."""
    with short_session(plan, log="sql", say=say) as spark:
        yield SqlReader(spark, plan, tombstones=tombstones)


# Rows on their way out: as text for people, as JSON for programs. Spark writes both.
#
# Python's own types would not do: a time is of the machine's zone there, and of few years; a decimal becomes a
# double.


Values = tuple[str | None, ...]
_COLLECTED = 10_000
"""Rows that are taken at once; more of them come partition by partition."""
_NESTED = (ArrayType, MapType, StructType, VariantType)
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def texts(frame: DataFrame, limit: int | None) -> Iterator[Values]:
    """Each value as a text, None for NULL; what is nested as JSON, bytes in hexadecimal digits. One row more than
    `limit`, if there is one: so it is seen that there are more."""
    return _rows(frame, limit, _text)


def json_values(frame: DataFrame, limit: int | None) -> Iterator[list[str]]:
    """Each value as a piece of JSON; bytes in base 64. One row more than `limit`, as above."""
    for row in _rows(frame, limit, _json):
        yield [cast(str, value)[1:-1] for value in row]


def _rows(frame: DataFrame, limit: int | None, written: Callable[[Column, DataType], Column]) -> Iterator[Values]:
    types = [field.dataType for field in frame.schema.fields]
    names = [f"c{number}" for number in range(len(types))]  # theirs may be the same, or none
    rows = frame.toDF(*names).select(
        *(written(F.col(name), of).alias(name) for name, of in zip(names, types, strict=True))
    )
    if limit is not None and limit <= _COLLECTED:
        return (tuple(row) for row in rows.take(limit + 1))
    found = rows if limit is None else rows.limit(limit + 1)
    return (tuple(row) for row in found.toLocalIterator())


def _text(value: Column, of: DataType) -> Column:
    if isinstance(of, BinaryType):
        return F.hex(value)
    return F.to_json(value, _JSON) if isinstance(of, _NESTED) else value.cast("string")


def _json(value: Column, _: DataType) -> Column:
    return F.to_json(F.array(value), _JSON)
