"""Which rows belong to a data subject: a condition over the columns that the project declares, and the orders.

The hashes are compared in the JVM, jar_data/java/penstock/forget, so that neither a name nor the key appears in a
plan's text. A payload that is not JSON has no paths: it is searched for the name as a separate word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
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
    from penstock.tables.suppression_list import ForgetOrder

PAYLOAD = ("key", "key_binary", "value", "value_binary")
"""The content of a record, by the canonical names of its columns: all of it is removed."""
_MARK = "__forgotten"
_STEP = re.compile(r"\.([^.\[\]'\"\s*]+)|\['([^']+)'\]|\[(\d+|\*)\]")
_HINT = "let Penstock make the session, or put {jar} onto the driver's class path: spark.driver.extraClassPath"


@dataclass(frozen=True)
class SubjectOrders:
    """The orders to search for, and the key of their hashes."""

    key: bytes = field(repr=False)
    orders: tuple[ForgetOrder, ...]

    def about(self, subject: str) -> tuple[ForgetOrder, ...]:
        return tuple(order for order in self.orders if order.subject == subject)


def rows_of(
    rows: DataFrame, subjects: Subjects, subject_match: SubjectOrders, table: str, *, partly: bool = False
) -> Column | None:
    """True for rows that hold a name in an order, false for all others; None if no order is about these subjects.
    Terminal if a place is missing in the rows, unless they have only some of the places: `partly`."""
    conditions = [
        condition
        for subject, places in subjects.items()
        if (orders := subject_match.about(subject))
        for place in places
        if (condition := _subject_condition(rows, place, subject, orders, subject_match.key, table, partly=partly))
        is not None
    ]
    return reduce(Column.__or__, conditions) if conditions else None


def is_redacted(headers: str) -> Column:
    """Whether a record with headers in that column was redacted; never NULL."""
    return F.coalesce(F.exists(F.col(quote(headers)), lambda header: header["key"] == FORGOTTEN), F.lit(False))


def redact(rows: DataFrame, columns: Mapping[str, str], condition: Column) -> DataFrame:
    """The rows, where records that meet the condition keep only their place in the topic. `columns` is canonical name
    -> column of the rows."""
    cleared = {columns[name]: F.lit(None) for name in PAYLOAD if name in columns}
    forgotten_header = F.array(F.struct(F.lit(FORGOTTEN).alias("key"), F.lit(b"").alias("value")))
    replacements = {**cleared, columns["headers"]: forgotten_header}
    marked = rows.withColumn(_MARK, condition)
    return marked.select(
        *(
            F.when(F.col(_MARK), replacements[name].cast(sql_type(data_type))).otherwise(F.col(quote(name))).alias(name)
            if name in replacements
            else F.col(quote(name))
            for name, data_type in ((column.name, column.dataType) for column in rows.schema.fields)
        )
    )


def _subject_condition(
    rows: DataFrame,
    place: SubjectColumnPlan,
    subject: str,
    orders: Sequence[ForgetOrder],
    key: bytes,
    table: str,
    *,
    partly: bool,
) -> Column | None:
    data_type = type_at(rows.schema, place.column)
    if data_type is None:
        if partly:
            return None
        raise Terminal(
            f"there is no column {place.column}, where `subjects` says that the name of a {subject} is",
            where=table,
            hint="correct it under `subjects`: a column of the table, or of the records that it decodes",
        )
    value = F.col(".".join(quote(step) for step in place.column.split(".")))
    if not isinstance(data_type, ArrayType):
        return _value_condition(rows, value, data_type, place, subject, orders, key)
    inner = data_type.elementType
    holds = F.exists(value, lambda element: _value_condition(rows, element, inner, place, subject, orders, key))
    return F.coalesce(holds, F.lit(False))


def _value_condition(
    rows: DataFrame,
    value: Column,
    data_type: DataType,
    place: SubjectColumnPlan,
    subject: str,
    orders: Sequence[ForgetOrder],
    key: bytes,
) -> Column:
    value_kind = (
        "bytes" if isinstance(data_type, BinaryType) else "number" if isinstance(data_type, NumericType) else "text"
    )
    if value_kind != "bytes" and not isinstance(data_type, StringType):
        value = value.cast("string")
    jvm_column = _subject_class(rows).named(
        java_column(value),
        value_kind,
        subject,
        key,
        [order.hash for order in orders],
        sorted({order.length for order in orders}),
        None if place.path is None else list(steps(place.path)),
    )
    return JvmColumn(jvm_column)


def steps(path: str) -> Iterator[str]:
    """The steps of a path: `$.items[*].id` gives `.items`, `[*]`, `.id`."""
    for match in _STEP.finditer(path):
        name = match[1] or match[2]
        yield f".{name}" if name else f"[{match[3]}]"


def type_at(schema: StructType, column: str) -> DataType | None:
    """The type of a column or of a struct's field; None if it does not exist."""
    data_type: DataType = schema
    for step in column.split("."):
        if not isinstance(data_type, StructType):
            return None
        matches = [candidate for candidate in data_type.fields if candidate.name.casefold() == step.casefold()]
        if not matches:
            return None
        data_type = matches[0].dataType
    return data_type


def _subject_class(rows: DataFrame) -> JavaClass:
    jvm = jvm_of(rows.sparkSession)
    subject_class = jvm.penstock.forget.Subject
    if not isinstance(subject_class, JavaClass):
        from penstock.spark.jars import own_jar

        raise SetupError("this Spark session lacks Penstock's own jar", hint=_HINT.format(jar=own_jar()))
    return subject_class


# Declared places that a table lacks: a user who orders a person forgotten would believe that they were searched.


def refuse_unknown_places(table: TablePlan, schema: StructType) -> None:
    """Terminal if a place is neither in a column of the table nor in the record that it decodes."""
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
