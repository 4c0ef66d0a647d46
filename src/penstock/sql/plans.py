"""A query as Spark's own parser understands it: its parts, the tables that it names, and those put in their place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.java_gateway import ensure_callback_server_started

from penstock.errors import UsageError
from penstock.spark.jvm import gateway_of, java_session, jvm_of
from penstock.sql.statement import pointed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RELATION, _TRAVEL = "UnresolvedRelation", "RelationTimeTravel"


@dataclass(frozen=True)
class Named:
    """A table that a query names."""

    parts: tuple[str, ...]
    at: str | None
    """The version that stands there in SQL: `VERSION AS OF 12`, `TIMESTAMP AS OF '2026-05-14'`."""
    start: int
    stop: int


def parse(session: SparkSession, text: str) -> Any:
    """The plan, in which names that WITH gives to queries are no tables any more. Raises what Spark raises."""
    jvm = jvm_of(session)
    plan = java_session(session).sessionState().sqlParser().parsePlan(text)
    return jvm.org.apache.spark.sql.catalyst.analysis.CTESubstitution.apply(plan)


def nodes(plan: Any) -> Iterator[Any]:
    """The plan and all below it, subqueries too."""
    waiting = [plan]
    while waiting:  # no recursion: a query may be nested deeper than Python's stack
        node = waiting.pop()
        yield node
        for below in (node.children(), node.subqueries()):
            waiting += [below.apply(number) for number in range(below.size())]


def kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def named(plan: Any, text: str) -> list[Named]:
    """The tables in the order in which they are written. Raises UsageError where one is named in a way of its own."""
    found = []
    for node in nodes(plan):
        if kind(node) == _RELATION:
            found.append(_named(node, None, text))
        elif kind(node) == _TRAVEL:
            found.append(_named(node.relation(), _travel(node, text), text))
    return sorted(found, key=lambda one: one.start)


def replaced(session: SparkSession, plan: Any, tables: Mapping[int, Any]) -> Any:
    """The plan with other plans in the place of the tables that it names, by where their names begin."""
    ensure_callback_server_started(gateway_of(session))  # type: ignore[no-untyped-call]
    return plan.transformDownWithSubqueries(_Replacing(tables))


class _Replacing:
    """A partial function of Scala's, by its names, that is defined everywhere."""

    def __init__(self, tables: Mapping[int, Any]) -> None:
        self._tables = tables

    def isDefinedAt(self, node: Any) -> bool:
        return True

    def apply(self, node: Any) -> Any:
        if kind(node) not in (_RELATION, _TRAVEL):
            return node
        relation = node.relation() if kind(node) == _TRAVEL else node
        return self._tables.get(_place(relation)[0], node)

    def applyOrElse(self, node: Any, _: Any) -> Any:
        return self.apply(node)

    class Java:
        implements: ClassVar[list[str]] = ["scala.PartialFunction"]


def _named(relation: Any, at: str | None, text: str) -> Named:
    parts = relation.multipartIdentifier()
    start, stop = _place(relation)
    if relation.isStreaming() or not relation.options().isEmpty():
        raise UsageError(
            f"a table is named without options here\n{pointed(text, start, stop)}",
            hint="write its name alone, or with a version: silver.orders@v12",
        )
    return Named(tuple(str(parts.apply(number)) for number in range(parts.size())), at, start, stop)


def _travel(node: Any, text: str) -> str:
    if node.version().isDefined():
        return str(node.version().get())
    time = node.timestamp().get()
    if kind(time) == "Literal" and time.dataType().typeName() == "string":
        return str(time.value().toString())
    raise UsageError(
        f"the time is not written as a text\n{pointed(text, *_place(node.relation()))}",
        hint='write silver.orders@"2026-05-14 09:00"',
    )


def _place(node: Any) -> tuple[int, int]:
    origin = node.origin()
    return int(origin.startIndex().get()), int(origin.stopIndex().get())
