"""Queries over a project's tables: Spark's SQL with the project's names, and nothing that writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import is_instance_of
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.errors import UsageError
from penstock.ledger.delta_log import DeltaLog
from penstock.sources.columns import DELETED, alive
from penstock.spark.jvm import gateway_of, java_frame, java_session, jvm_of
from penstock.spark.session import ended_by_ctrl_c, logs_folder, short_session
from penstock.spark.sql_text import quote
from penstock.sql.causes import WITHHELD, explained, printable
from penstock.sql.versions import Names, TableVersion, Versions
from penstock.storage.stores import HadoopStore, LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan

_CONF = {
    # ${env:HOME} in a query would be replaced by Spark, also within a text.
    "spark.sql.variable.substitute": "false",
    # Delta refuses versions older than what VACUUM keeps, whether or not a VACUUM ever ran. A file that is gone is an
    # error anyway.
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
}


@dataclass(frozen=True)
class QueryResult:
    """Nothing is computed before rows are taken from it."""

    frame: DataFrame
    read: tuple[TableVersion, ...]
    """What it reads: each table in each version once."""


class SqlReader:
    def __init__(self, spark: SparkSession, plan: Plan, *, tombstones: bool = False) -> None:
        """`tombstones` shows the deleted rows of merged tables too."""
        self.session, self._jvm = spark.newSession(), jvm_of(spark)
        self.names = Names(plan)
        self._store = LocalStore() if plan.local else HadoopStore(spark)
        self._tombstones = tombstones
        self._explained = partial(explained, self.session, log=str(logs_folder(plan)))
        for name, value in _CONF.items():
            self.session.conf.set(name, value)
        # Spark evaluates some functions while it analyses a query: to look for these in its plan would be too late.
        state = java_session(self.session).sessionState()
        for name in WITHHELD:
            function = self._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
            state.functionRegistry().dropFunction(function)
            state.tableFunctionRegistry().dropFunction(function)

    @contextmanager
    def ask(self, query: str) -> Iterator[QueryResult]:
        """The answer; take its rows within. Every mention of a table without a version is the same version of it.
        Raises UsageError for a query that is wrong, QueryFailed for one that cannot be computed."""
        read: list[TableVersion] = []
        with ended_by_ctrl_c(self.session.sparkContext), self._explained(query, read):
            session, sql = java_session(self.session), self._jvm.org.apache.spark.sql
            # Spark takes the settings of the thread's active session, not of the one whose parser it is.
            sql.classic.SparkSession.setActiveSession(session)
            parsed = session.sessionState().sqlParser().parsePlan(query)
            parsed = sql.catalyst.analysis.CTESubstitution.apply(parsed)
            _refuse_all_but_queries(self.session, parsed)
            nodes = [node for node in _nodes(parsed) if _kind(node) in (_RELATION, _TIME_TRAVEL)]
            versions = Versions(self._store)
            tables = {node: self._pinned(node, versions) for node in sorted(nodes, key=_start)}
            plans = {pinned: self._plan(pinned) for pinned in tables.values()}
            read += plans
            named = self._jvm.PythonUtils.toScalaMap({node: plans[pinned] for node, pinned in tables.items()})
            parsed = parsed.transformDownWithSubqueries(named)
            run_no_command = sql.execution.CommandExecutionMode.SKIP()
            analysed = session.sessionState().executePlan(parsed, run_no_command).analyzed()
            _refuse_all_but_queries(self.session, analysed, list(plans.values()))
            yield QueryResult(DataFrame(sql.classic.Dataset.ofRows(session, analysed), self.session), tuple(read))

    def _pinned(self, node: Any, versions: Versions) -> TableVersion:
        relation = _relation(node)
        place = printable(str(relation.origin().context().summary())).rstrip()
        if relation.isStreaming() or not relation.options().isEmpty():
            raise UsageError(f"a table is named without STREAM and options\n{place}", hint="write its name alone")
        table = self.names.find(_items(relation.multipartIdentifier()), place)
        if relation == node:
            return versions.newest(table)
        if node.version().isDefined():
            number = str(node.version().get())
            if not number.isdecimal():
                raise UsageError(f"'{number}' is not a version\n{place}", hint=f"write {table.name} VERSION AS OF 12")
            return versions.numbered(table, int(number))
        expression = self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(node.timestamp().get())
        moment = F.unix_millis(Column(expression).try_cast("timestamp"))
        (timestamp_ms,) = self.session.sql("VALUES (1)").select().select(moment).collect()[0]
        if timestamp_ms is None:
            forms = "'2026-05-14 09:00', or with a zone, '2026-05-14 09:00:00+02:00'"
            raise UsageError(f"what follows TIMESTAMP AS OF is not a time\n{place}", hint=f"write {forms}")
        return versions.as_of(table, int(timestamp_ms))

    def _plan(self, pinned: TableVersion) -> Any:
        """Under the table's name: `orders.id` and `silver.orders.id` are columns of silver.orders."""
        with self._explained(None, [pinned]):
            rows = self.session.read.format("delta").option("versionAsOf", pinned.version).load(pinned.table.uri)
        if pinned.table.tombstones is not None and DELETED in rows.columns:
            # Versions from before tombstones had a table of their own have them among their rows.
            rows = self._with_tombstones(pinned.table.tombstones, rows) if self._tombstones else alive(rows)
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        *above, last = pinned.table.name.split(".")
        name = catalyst.AliasIdentifier(last, self._jvm.PythonUtils.toSeq(above))
        return catalyst.plans.logical.SubqueryAlias(name, java_frame(rows).queryExecution().analyzed())

    def _with_tombstones(self, uri: str, rows: DataFrame) -> DataFrame:
        """The newest ones, whatever version the rows are of."""
        if not DeltaLog(self._store, uri, uri).versions():
            return rows
        dead = self.session.read.format("delta").load(uri).withColumn(DELETED, F.lit(True))
        kept = [name for name in rows.columns if name in dead.columns]
        return rows.unionByName(dead.select(*map(quote, kept)), allowMissingColumns=True)


@contextmanager
def open_reader(
    plan: Plan, *, tombstones: bool = False, say: Callable[[str], None] = lambda _: None
) -> Iterator[SqlReader]:
    """A reader with a Spark of its own, which ends with it."""
    with short_session(plan, log="sql", say=say) as spark:
        yield SqlReader(spark, plan, tombstones=tombstones)


# The plans that Spark makes of a query. Each of their leaves must be known: so a table that is named in a way that
# nobody thought of is refused too.


_RELATION, _TIME_TRAVEL, _TABLE = "UnresolvedRelation", "RelationTimeTravel", "LogicalRelation"
_LEAVES = (
    *(_RELATION, _TIME_TRAVEL, "UnresolvedTableValuedFunction", "UnresolvedInlineTable", "ResolvedInlineTable"),
    *("OneRowRelation", "LocalRelation", "Range", "CTERelationRef", "UnionLoopRef"),
)
_COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"


def _items(sequence: Any) -> list[Any]:
    """Those of a Scala sequence."""
    return [sequence.apply(number) for number in range(sequence.size())]


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName()).removesuffix("$")


def _nodes(plan: Any) -> Iterator[Any]:
    """The plan and all below it, subqueries too."""
    waiting = [plan]
    while waiting:  # no recursion: a query may be nested deeper than Python's stack
        node = waiting.pop()
        yield node
        waiting += _items(node.children()) + _items(node.subqueries())


def _relation(node: Any) -> Any:
    return node.relation() if _kind(node) == _TIME_TRAVEL else node


def _start(node: Any) -> int:
    return int(_relation(node).origin().startIndex().get())


def _refuse_all_but_queries(session: SparkSession, plan: Any, tables: Sequence[Any] = ()) -> None:
    """Of the parsed plan, before anything in it is looked up, and of the analysed one, which reads only `tables`."""
    known = [leaf.relation() for table in tables for leaf in _items(table.collectLeaves())]
    for node in _nodes(plan):
        if why := _refusal(session, node, known):
            raise UsageError(f"queries only read tables of the project: {why}", hint="write a query: SELECT … FROM …")


def _refusal(session: SparkSession, node: Any, known: Sequence[Any]) -> str | None:
    kind, relation = _kind(node), _relation(node)
    if kind.endswith("Statement") or is_instance_of(gateway_of(session), node, _COMMAND):
        return f"{kind} is not a query"
    if kind == "ScriptTransformation":
        return "TRANSFORM … USING runs a program"
    if _kind(relation) == "PlanWithUnresolvedIdentifier":
        return "IDENTIFIER(…) hides which one is meant"
    if kind == _TIME_TRAVEL and not node.subqueries().isEmpty():
        return "Spark runs a subquery in TIMESTAMP AS OF ahead of the query"
    if kind == "WithWindowDefinition":  # the one node whose subqueries Spark does not show
        subquery = jvm_of(session).org.apache.spark.sql.catalyst.trees.TreePattern.PLAN_EXPRESSION()
        windows = _items(node.windowDefinitions().values().toSeq())
        return "WINDOW has a subquery" if any(window.containsPattern(subquery) for window in windows) else None
    if not node.children().isEmpty() or kind in _LEAVES or (kind == _TABLE and node.relation() in known):
        return None
    return f"{kind} is not one of them"
