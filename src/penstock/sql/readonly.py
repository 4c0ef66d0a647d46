"""Only queries, and only over the project's tables. Whatever else a statement of Spark's can do is refused.

A query is made of a known set of parts; a statement with any other part is refused, so that one that nobody thought of
is refused too. Functions that run code or open files are not there at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError
from penstock.spark.jvm import java_session, jvm_of
from penstock.sql.plans import kind, nodes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTS = frozenset(
    (
        *("Project", "Filter", "Aggregate", "UnresolvedHaving", "Window", "WithWindowDefinition", "Distinct", "Sort"),
        *("GlobalLimit", "LocalLimit", "Offset", "Sample", "Repartition", "RepartitionByExpression", "PipeOperator"),
        *("Join", "LateralJoin", "Generate", "Pivot", "Unpivot", "Union", "Intersect", "Except", "UnresolvedHint"),
        *("SubqueryAlias", "UnresolvedSubqueryColumnAliases", "UnresolvedTVFAliases"),
        *("WithCTE", "CTERelationDef", "CTERelationRef"),
        *("UnresolvedRelation", "RelationTimeTravel", "UnresolvedTableValuedFunction"),
        *("OneRowRelation", "LocalRelation", "UnresolvedInlineTable"),
    )
)
_PROGRAM = "TRANSFORM … USING runs a program"
_REFUSED = {
    "ScriptTransformation": _PROGRAM,
    "PlanWithUnresolvedIdentifier": "IDENTIFIER(…) hides which table is meant: write its name",
    "InsertIntoStatement": "INSERT writes",
    "InsertIntoDir": "INSERT OVERWRITE DIRECTORY writes",
}
_RUNS = ("reflect", "java_method", "try_reflect")
_OPENS = (
    # By an option or an argument, these open a file or an address that the query names. An XML text that a row holds
    # can name one too, as the place of its grammar.
    *("from_avro", "to_avro", "schema_of_avro", "from_protobuf", "to_protobuf", "from_xml", "schema_of_xml"),
    *("xpath", "xpath_boolean", "xpath_double", "xpath_float", "xpath_int", "xpath_long", "xpath_number"),
    *("xpath_short", "xpath_string", "table_changes", "table_changes_by_path"),
)
WITHHELD = dict.fromkeys(_RUNS, "it can run any code") | dict.fromkeys(_OPENS, "it can open any file")
"""Functions that are not there, and why."""
_CONFS = {
    # ${env:HOME} in a query would be replaced by Spark, also where it stands in a text.
    "spark.sql.variable.substitute": "false",
    # parquet.`/some/file` is a table to Spark.
    "spark.sql.runSQLOnFiles": "false",
    # Delta refuses versions older than what VACUUM keeps, whether or not a VACUUM ever ran. A file that is gone is an
    # error anyway.
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
}


def reading_session(spark: SparkSession) -> SparkSession:
    """A session beside the given one, with settings and functions of its own."""
    session = spark.newSession()
    jvm = jvm_of(session)
    for name, value in _CONFS.items():
        session.conf.set(name, value)
    state = java_session(session).sessionState()
    for name in WITHHELD:
        function = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
        state.functionRegistry().dropFunction(function)
        state.tableFunctionRegistry().dropFunction(function)
    return session


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """Spark takes the settings of the thread's active session, not of the one whose parser or plan it is."""
    jvm = jvm_of(session)
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(java_session(session))
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def refuse_other_than_query(plan: Any) -> None:
    """Of a plan as it was parsed: nothing has been looked up or run yet."""
    for node in nodes(plan):
        part = kind(node).removesuffix("$")
        if part not in _PARTS:
            why = _REFUSED.get(part, f"{part} is no part of a query")
            raise UsageError(f"tables are only read: {why}", hint="write a query: SELECT … FROM a table of the project")


def refuse_programs(plan: Any) -> None:
    """Of a plan with all names resolved: a named WINDOW can hide a subquery from the parsed one."""
    if any(kind(node) == "ScriptTransformation" for node in nodes(plan)):
        raise UsageError(f"tables are only read: {_PROGRAM}", hint="compute it by functions of SQL")
