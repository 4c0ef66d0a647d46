"""Asks queries of a project's tables, in a session that can only read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.engine.identifiers import quote
from penstock.engine.merge.tombstones import DELETED, alive
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.session import logs_folder
from penstock.engine.short_session import short_session
from penstock.engine.store import HadoopStore, LocalStore
from penstock.errors import UsageError
from penstock.ops.sql.causes import explained
from penstock.ops.sql.interrupted import ended_by_ctrl_c
from penstock.ops.sql.names import Names, Readable
from penstock.ops.sql.parsed import Named, named, parse, replaced
from penstock.ops.sql.pinned import Pinned
from penstock.ops.sql.pointing import pointed
from penstock.ops.sql.readonly import active, reading_session, refuse_other_than_query, refuse_programs
from penstock.ops.sql.statement import Statement
from penstock.ops.sql.versions import Versions, zone_of
from penstock.plan.model import Plan


@dataclass(frozen=True)
class Answer:
    """Nothing is computed before rows are taken from it."""

    statement: Statement
    frame: DataFrame
    read: tuple[Pinned, ...]
    """What it reads: each table in each version once."""


class Reader:
    def __init__(self, spark: SparkSession, plan: Plan, *, tombstones: bool = False) -> None:
        """`tombstones` shows the deleted rows of merged tables too."""
        self.session = reading_session(spark)
        self.names = Names(plan)
        self._zone = zone_of(plan)
        self._store = LocalStore() if plan.local else HadoopStore(spark)
        self._tombstones = tombstones
        self._explained = partial(explained, self.session, log=str(logs_folder(plan)))

    @contextmanager
    def ask(self, statement: Statement) -> Iterator[Answer]:
        """The answer; take its rows within. Every mention of a table without a version is the same version of it.
        Raises UsageError for a query that is wrong, QueryFailed for one that cannot be computed."""
        read: list[Pinned] = []
        with ended_by_ctrl_c(self.session.sparkContext), active(self.session), self._explained(statement, read):
            plan = parse(self.session, statement.text)
            refuse_other_than_query(plan)
            tables = self._pinned(statement, named(plan, statement.written))
            read += dict.fromkeys(tables.values())
            frames = {one: self._plan_of(one) for one in read}
            plan = replaced(self.session, plan, {start: frames[one] for start, one in tables.items()})
            jvm: Any = self.session.sparkContext._jvm
            found = jvm.org.apache.spark.sql.classic.Dataset.ofRows(self.session._jsparkSession, plan)
            refuse_programs(found.queryExecution().analyzed())
            yield Answer(statement, DataFrame(found, self.session), tuple(read))

    def columns(self, table: Readable) -> tuple[int, Mapping[str, str]] | None:
        """The newest version of a table, and its columns with their types; None if it is not created yet."""
        versions = Versions(self._store, self._zone)
        if not versions.exists(table):
            return None
        pinned = Pinned(table, versions.of(table, None))
        with active(self.session):
            fields = self._frame(pinned).schema.fields
        return pinned.version, {field.name: field.dataType.simpleString() for field in fields}

    def _pinned(self, statement: Statement, found: list[Named]) -> dict[int, Pinned]:
        """By the places of the names."""
        versions = Versions(self._store, self._zone)
        behind = dict(statement.mentions)
        tables: dict[int, Pinned] = {}
        for one in found:
            mention = behind.pop(one.start, None)
            if mention is not None and one.at is not None:
                raise UsageError(
                    f"there are two versions behind one name\n{pointed(statement.written, one.start, mention.end - 1)}"
                )
            table = self.names.find(one.parts, pointed(statement.written, one.start, one.stop))
            tables[one.start] = Pinned(table, versions.of(table, mention.at if mention else one.at))
        for mention in behind.values():
            raise UsageError(
                f"a version stands behind something that is no table\n"
                f"{pointed(statement.written, mention.start, mention.end - 1)}",
                hint="write it in FROM or JOIN, and give the table another name there: FROM silver.orders@v12 AS old",
            )
        return tables

    def _frame(self, one: Pinned) -> DataFrame:
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

    def _plan_of(self, one: Pinned) -> Any:
        """Its plan under its name: `orders.id` and `silver.orders.id` are columns of silver.orders."""
        jvm: Any = self.session.sparkContext._jvm
        *above, last = one.table.name.split(".")
        name = jvm.org.apache.spark.sql.catalyst.AliasIdentifier(last, jvm.PythonUtils.toSeq(above))
        analyzed = self._frame(one)._jdf.queryExecution().analyzed()
        return jvm.org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias(name, analyzed)


@contextmanager
def open_reader(
    plan: Plan, *, tombstones: bool = False, say: Callable[[str], None] = lambda _: None
) -> Iterator[Reader]:
    """A reader with a Spark of its own, which ends with it."""
    with short_session(plan, log="sql", say=say) as spark:
        yield Reader(spark, plan, tombstones=tombstones)
