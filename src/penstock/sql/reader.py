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
from penstock.spark.session import cancel_on_interrupt, logs_folder, short_session
from penstock.spark.sql_text import quote
from penstock.sql.causes import WITHHELD, explain_errors, printable
from penstock.sql.versions import TableCatalog, TableVersion, Versions
from penstock.storage.stores import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan

_CONF = {
    # ${env:HOME} in a query would be replaced by Spark, also within a text.
    "spark.sql.variable.substitute": "false",
    # Delta refuses versions older than what VACUUM keeps, whether or not a VACUUM ever ran. A missing file is an error
    # anyway.
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
}


@dataclass(frozen=True)
class QueryResult:
    """The answer of a query; nothing is computed until its rows are read."""

    frame: DataFrame
    table_versions: tuple[TableVersion, ...]
    """The tables it reads, each version of each table once."""


class SqlReader:
    def __init__(self, spark: SparkSession, plan: Plan, *, tombstones: bool = False) -> None:
        """`tombstones` shows the deleted rows of merged tables too."""
        self.session, self._jvm = spark.newSession(), jvm_of(spark)
        self.names = TableCatalog(plan)
        self._store = open_store(plan, spark)
        self._tombstones = tombstones
        self._explained = partial(explain_errors, self.session, log=str(logs_folder(plan)))
        for name, value in _CONF.items():
            self.session.conf.set(name, value)
        # Spark evaluates some functions while it analyses a query: looking for them in its plan would be too late.
        state = java_session(self.session).sessionState()
        for name in WITHHELD:
            function = self._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
            state.functionRegistry().dropFunction(function)
            state.tableFunctionRegistry().dropFunction(function)

    @contextmanager
    def ask(self, query: str) -> Iterator[QueryResult]:
        """Answers a query; read its rows inside the block. A table that is named several times without a version is
        read in one version. Raises UsageError for a wrong query, QueryFailed for one that cannot be computed."""
        read: list[TableVersion] = []
        with cancel_on_interrupt(self.session.sparkContext), self._explained(query, read):
            session, sql = java_session(self.session), self._jvm.org.apache.spark.sql
            # Spark takes the settings of the thread's active session, not of the session whose parser is used.
            sql.classic.SparkSession.setActiveSession(session)
            parsed = session.sessionState().sqlParser().parsePlan(query)
            parsed = sql.catalyst.analysis.CTESubstitution.apply(parsed)
            _require_read_only(self.session, parsed)
            nodes = [node for node in _all_nodes(parsed) if _node_kind(node) in (_RELATION, _TIME_TRAVEL)]
            versions = Versions(self._store)
            tables = {node: self._resolve_version(node, versions) for node in sorted(nodes, key=_start_position)}
            table_plans = {pinned: self._table_plan(pinned) for pinned in tables.values()}
            read += table_plans
            plans_by_node = self._jvm.PythonUtils.toScalaMap(
                {node: table_plans[pinned] for node, pinned in tables.items()}
            )
            parsed = parsed.transformDownWithSubqueries(plans_by_node)
            run_no_command = sql.execution.CommandExecutionMode.SKIP()
            analysed = session.sessionState().executePlan(parsed, run_no_command).analyzed()
            _require_read_only(self.session, analysed, list(table_plans.values()))
            yield QueryResult(DataFrame(sql.classic.Dataset.ofRows(session, analysed), self.session), tuple(read))

    def _resolve_version(self, node: Any, versions: Versions) -> TableVersion:
        relation = _relation_of(node)
        position = printable(str(relation.origin().context().summary())).rstrip()
        if relation.isStreaming() or not relation.options().isEmpty():
            raise UsageError(f"a table is named without STREAM and options\n{position}", hint="write its name alone")
        table = self.names.find(_items(relation.multipartIdentifier()), position)
        if relation == node:
            return versions.newest(table)
        if node.version().isDefined():
            version_text = str(node.version().get())
            if not version_text.isdecimal():
                raise UsageError(
                    f"'{version_text}' is not a version\n{position}", hint=f"write {table.name} VERSION AS OF 12"
                )
            return versions.numbered(table, int(version_text))
        expression = self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(node.timestamp().get())
        moment = F.unix_millis(Column(expression).try_cast("timestamp"))
        (timestamp_ms,) = self.session.sql("VALUES (1)").select().select(moment).collect()[0]
        if timestamp_ms is None:
            examples = "'2026-05-14 09:00', or with a zone, '2026-05-14 09:00:00+02:00'"
            raise UsageError(f"what follows TIMESTAMP AS OF is not a time\n{position}", hint=f"write {examples}")
        return versions.as_of(table, int(timestamp_ms))

    def _table_plan(self, table_version: TableVersion) -> Any:
        """The plan of a table under its name: `orders.id` and `silver.orders.id` are columns of silver.orders."""
        with self._explained(None, [table_version]):
            rows = (
                self.session.read.format("delta")
                .option("versionAsOf", table_version.version)
                .load(table_version.table.uri)
            )
        if table_version.table.tombstones is not None and DELETED in rows.columns:
            # In versions written before tombstones got a table of their own, they are among the rows.
            rows = self._with_tombstones(table_version.table.tombstones, rows) if self._tombstones else alive(rows)
        catalyst = self._jvm.org.apache.spark.sql.catalyst
        *qualifiers, last_part = table_version.table.name.split(".")
        name = catalyst.AliasIdentifier(last_part, self._jvm.PythonUtils.toSeq(qualifiers))
        return catalyst.plans.logical.SubqueryAlias(name, java_frame(rows).queryExecution().analyzed())

    def _with_tombstones(self, uri: str, rows: DataFrame) -> DataFrame:
        """Adds the newest tombstones, whatever the version of the rows."""
        if not DeltaLog(self._store, uri, uri).versions():
            return rows
        deleted_rows = self.session.read.format("delta").load(uri).withColumn(DELETED, F.lit(True))
        common_columns = [name for name in rows.columns if name in deleted_rows.columns]
        return rows.unionByName(deleted_rows.select(*map(quote, common_columns)), allowMissingColumns=True)


@contextmanager
def open_reader(
    plan: Plan, *, tombstones: bool = False, say: Callable[[str], None] = lambda _: None
) -> Iterator[SqlReader]:
    """A reader with its own Spark session, which ends with the block."""
    with short_session(plan, log="sql", say=say) as spark:
        yield SqlReader(spark, plan, tombstones=tombstones)


# The plans that Spark makes of a query. Every leaf must be a known kind, so that a table named in an unforeseen way is
# refused too.


_RELATION, _TIME_TRAVEL, _TABLE = "UnresolvedRelation", "RelationTimeTravel", "LogicalRelation"
_LEAVES = (
    *(_RELATION, _TIME_TRAVEL, "UnresolvedTableValuedFunction", "UnresolvedInlineTable", "ResolvedInlineTable"),
    *("OneRowRelation", "LocalRelation", "Range", "CTERelationRef", "UnionLoopRef"),
)
_COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"


def _items(sequence: Any) -> list[Any]:
    """The items of a Scala sequence."""
    return [sequence.apply(number) for number in range(sequence.size())]


def _node_kind(node: Any) -> str:
    return str(node.getClass().getSimpleName()).removesuffix("$")


def _all_nodes(plan: Any) -> Iterator[Any]:
    """The node and all nodes below it, including subqueries."""
    waiting = [plan]
    while waiting:  # no recursion: a query may be nested deeper than Python's stack
        node = waiting.pop()
        yield node
        waiting += _items(node.children()) + _items(node.subqueries())


def _relation_of(node: Any) -> Any:
    return node.relation() if _node_kind(node) == _TIME_TRAVEL else node


def _start_position(node: Any) -> int:
    return int(_relation_of(node).origin().startIndex().get())


def _require_read_only(session: SparkSession, plan: Any, tables: Sequence[Any] = ()) -> None:
    """Checks the parsed plan, before anything in it is resolved, and the analysed one, which may read only `tables`."""
    known_relations = [leaf.relation() for table in tables for leaf in _items(table.collectLeaves())]
    for node in _all_nodes(plan):
        if reason := _refusal(session, node, known_relations):
            raise UsageError(
                f"queries only read tables of the project: {reason}", hint="write a query: SELECT … FROM …"
            )


def _refusal(session: SparkSession, node: Any, known_relations: Sequence[Any]) -> str | None:
    kind, relation = _node_kind(node), _relation_of(node)
    if kind.endswith("Statement") or is_instance_of(gateway_of(session), node, _COMMAND):
        return f"{kind} is not a query"
    if kind == "ScriptTransformation":
        return "TRANSFORM … USING runs a program"
    if _node_kind(relation) == "PlanWithUnresolvedIdentifier":
        return "IDENTIFIER(…) hides which one is meant"
    if kind == _TIME_TRAVEL and not node.subqueries().isEmpty():
        return "Spark runs a subquery in TIMESTAMP AS OF ahead of the query"
    if kind == "WithWindowDefinition":  # the only node whose subqueries Spark does not list
        subquery = jvm_of(session).org.apache.spark.sql.catalyst.trees.TreePattern.PLAN_EXPRESSION()
        windows = _items(node.windowDefinitions().values().toSeq())
        return "WINDOW has a subquery" if any(window.containsPattern(subquery) for window in windows) else None
    if not node.children().isEmpty() or kind in _LEAVES or (kind == _TABLE and node.relation() in known_relations):
        return None
    return f"{kind} is not one of them"
