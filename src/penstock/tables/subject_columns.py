"""Which rows belong to a data subject: a condition over the columns that the project declares."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from py4j.java_gateway import JavaClass
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn
from pyspark.sql.types import ArrayType, BinaryType, NumericType, StringType, StructType

from penstock.errors import SetupError, Terminal
from penstock.plan.subjects import FORGOTTEN
from penstock.spark.jvm import java_column, jvm_of
from penstock.spark.sql_text import quote
from penstock.spark.sql_types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from penstock.plan.model import TablePlan
    from penstock.plan.subjects import SubjectColumnPlan, Subjects
    from penstock.tables.suppression_list import Order

# Rows of somebody: a condition over the rows of a table, made of where the table holds names and of the orders.
#
# The hashes are compared in the JVM, jar_data/java/penstock/forget: neither a name nor the key gets into a plan's
# text. What is no JSON has no path: such a payload is searched for the name as a word of its own.


PAYLOAD = ("key", "key_binary", "value", "value_binary")
"""What a record says, by the canonical names of its columns: all of that goes."""
_STEP = re.compile(r"\.([^.\[\]'\"\s*]+)|\['([^']+)'\]|\[(\d+|\*)\]")
_HINT = "let Penstock make the session, or put {jar} onto the driver's class path: spark.driver.extraClassPath"


@dataclass(frozen=True)
class SubjectMatch:
    """Whom to look for: orders, and the key of their hashes."""

    key: bytes = field(repr=False)
    orders: tuple[Order, ...]

    def of(self, subject: str) -> tuple[Order, ...]:
        return tuple(order for order in self.orders if order.subject == subject)


def rows_of(
    rows: DataFrame, subjects: Subjects, wanted: SubjectMatch, table: str, *, partly: bool = False
) -> Column | None:
    """True for the rows that hold a name that is wanted, false for all others; None if no order is about a subject of
    theirs. Terminal where a place is not in the rows, unless they are known to have some of the places only."""
    found = [
        condition
        for subject, places in subjects.items()
        if (orders := wanted.of(subject))
        for place in places
        if (condition := _named(rows, place, subject, orders, wanted.key, table, partly=partly)) is not None
    ]
    return reduce(Column.__or__, found) if found else None


def is_redacted(headers: str) -> Column:
    """Of a record whose headers are in that column; never NULL."""
    return F.coalesce(F.exists(F.col(quote(headers)), lambda one: one["key"] == FORGOTTEN), F.lit(False))


def redacted(rows: DataFrame, columns: Mapping[str, str], condition: Column) -> DataFrame:
    """Records that meet the condition keep their place in the topic and nothing else. `columns` is canonical name ->
    column of the rows."""
    gone = {columns[name]: F.lit(None) for name in PAYLOAD if name in columns}
    mark = F.array(F.struct(F.lit(FORGOTTEN).alias("key"), F.lit(b"").alias("value")))
    now = {**gone, columns["headers"]: mark}
    marked = rows.withColumn(_MARK, condition)
    return marked.select(
        *(
            F.when(F.col(_MARK), now[name].cast(sql_type(kind))).otherwise(F.col(quote(name))).alias(name)
            if name in now
            else F.col(quote(name))
            for name, kind in ((one.name, one.dataType) for one in rows.schema.fields)
        )
    )


_MARK = "__forgotten"


def _named(
    rows: DataFrame,
    place: SubjectColumnPlan,
    subject: str,
    orders: Iterable[Order],
    key: bytes,
    table: str,
    *,
    partly: bool,
) -> Column | None:
    kind = type_at(rows.schema, place.column)
    if kind is None:
        if partly:
            return None
        raise Terminal(
            f"there is no column {place.column}, where `subjects` says that the name of a {subject} is",
            where=table,
            hint="correct it under `subjects`: a column of the table, or of the records that it decodes",
        )
    value = F.col(".".join(quote(step) for step in place.column.split(".")))
    if isinstance(kind, ArrayType):
        return F.coalesce(
            F.exists(value, lambda one: _one(rows, one, kind.elementType, place, subject, orders, key)), F.lit(False)
        )
    return _one(rows, value, kind, place, subject, orders, key)


def _one(
    rows: DataFrame,
    value: Column,
    kind: DataType,
    place: SubjectColumnPlan,
    subject: str,
    orders: Iterable[Order],
    key: bytes,
) -> Column:
    said = "bytes" if isinstance(kind, BinaryType) else "number" if isinstance(kind, NumericType) else "text"
    if said != "bytes" and not isinstance(kind, StringType):
        value = value.cast("string")
    orders = tuple(orders)
    made = _own_class(rows).named(
        java_column(value),
        said,
        subject,
        key,
        [order.hash for order in orders],
        sorted({order.length for order in orders}),
        None if place.path is None else list(steps(place.path)),
    )
    return JvmColumn(made)


def steps(path: str) -> Iterator[str]:
    """`$.items[*].id` as `.items`, `[*]`, `.id`."""
    for match in _STEP.finditer(path):
        name = match[1] or match[2]
        yield f".{name}" if name else f"[{match[3]}]"


def type_at(schema: StructType, column: str) -> DataType | None:
    """The type of a column, or of a field of a struct; None if there is none."""
    kind: DataType = schema
    for step in column.split("."):
        if not isinstance(kind, StructType):
            return None
        found = [one for one in kind.fields if one.name.casefold() == step.casefold()]
        if not found:
            return None
        kind = found[0].dataType
    return kind


def _own_class(rows: DataFrame) -> JavaClass:
    jvm = jvm_of(rows.sparkSession)
    found = jvm.penstock.forget.Subject
    if not isinstance(found, JavaClass):
        from penstock.spark.jars import own_jar

        raise SetupError("this Spark session lacks Penstock's own jar", hint=_HINT.format(jar=own_jar()))
    return found


# Places that a table names and does not have: whoever asks to forget somebody would believe that it was searched.


def refuse_unknown_places(table: TablePlan, schema: StructType) -> None:
    """Terminal. A place is in a column of the table, or in the record that it decodes."""
    raw = {name.casefold() for name in table.input.raw.values()}
    decodes = table.delta is None
    for subject, places in table.subjects.items():
        for place in places:
            if type_at(schema, place.column) is None and not (decodes and place.column.casefold() in raw):
                known = ", ".join(field.name for field in schema.fields)
                raise Terminal(
                    f"there is no column {place.column}, where `subjects` says that it holds a {subject}",
                    where=table.name,
                    hint=f"correct it in the project file; the table has {known}",
                )
