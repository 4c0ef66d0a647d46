"""Compares a table's columns with those of its definition, and decides which columns have statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NumericType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.errors import TableChanged
from penstock.spark.sql_text import quote
from penstock.spark.sql_types import nullable_within
from penstock.spec.subjects import STATISTICS
from penstock.spec.table_kinds import MERGE_COLUMNS, VALID
from penstock.tables.merge.row_exchange import Exchange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from penstock.plan.model import TablePlan

# Statistics without personal data: the table's log has the least and greatest value of its columns in every file, in
# plain text, and no commit removes them again. So columns that identify a data subject get no statistics.


_INDEXED_COUNT = "delta.dataSkippingNumIndexedCols"
_MAX_INDEXED = 32
"""The number of columns that Delta keeps statistics for by default."""
_STATISTICS_TYPES = (NumericType, StringType, DateType, TimestampType, TimestampNTZType)


def with_statistics(table: TablePlan, schema: StructType) -> Mapping[str, str]:
    """The properties of a new table."""
    if not table.subjects or STATISTICS in table.properties:
        return table.properties
    return {**table.properties, **statistics_of(table, schema)}


def settle_statistics(spark: SparkSession, table: TablePlan, schema: StructType) -> str | None:
    """Takes subject columns out of an existing table's statistics, under its commit lock; a note if it did anything."""
    if not table.subjects:
        return None
    exchange = Exchange(spark.newSession(), table.uri)
    column_list, column_count = exchange.setting(STATISTICS), exchange.setting(_INDEXED_COUNT)
    hidden = _subject_columns(table)
    is_limited = column_count == "0" if column_list is None else not _overlaps(column_list, hidden)
    if is_limited:
        return None
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in statistics_of(table, schema).items())
    spark.sql(f"ALTER TABLE delta.{quote(table.uri)} SET TBLPROPERTIES ({properties})")
    return f"no statistics any more of {', '.join(sorted(hidden))}: the log would keep names in clear"


def statistics_of(table: TablePlan, schema: StructType) -> dict[str, str]:
    """The property that limits a table's statistics to columns that identify no data subject."""
    hidden = _subject_columns(table)
    # Delta keeps no statistics of partition columns and refuses them here.
    partition_columns = {name.casefold() for name in table.write.partition_by}
    paths = [
        path for path in _paths(schema) if not _is_hidden(path, hidden) and path[0].casefold() not in partition_columns
    ]
    if not paths:
        return {_INDEXED_COUNT: "0"}
    return {STATISTICS: ",".join(".".join(map(quote, path)) for path in paths[:_MAX_INDEXED])}


def _paths(schema: StructType, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in schema.fields:
        path = (*above, field.name)
        if isinstance(field.dataType, StructType):
            yield from _paths(field.dataType, path)
        elif isinstance(field.dataType, _STATISTICS_TYPES):
            yield path


def _is_hidden(path: tuple[str, ...], hidden: set[str]) -> bool:
    steps = [step.casefold() for step in path]
    return any(".".join(steps[:depth]) in hidden for depth in range(1, len(steps) + 1))


def _subject_columns(table: TablePlan) -> set[str]:
    return {place.column.casefold() for places in table.subjects.values() for place in places}


def _overlaps(column_list: str, hidden: set[str]) -> bool:
    """Whether a list of columns names a hidden column, a struct that contains one, or a field below one."""
    listed = [name.replace("`", "").strip().casefold() for name in column_list.split(",")]
    pairs = ((listed_name, hidden_name) for listed_name in listed for hidden_name in hidden)
    return any(
        f"{listed_name}.".startswith(f"{hidden_name}.") or f"{hidden_name}.".startswith(f"{listed_name}.")
        for listed_name, hidden_name in pairs
    )


# Schema changes: columns stay, are added or widened, or a person has to decide.


_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 20}
_WIDER: dict[type[DataType], tuple[type[DataType], ...]] = {
    ByteType: (ShortType, IntegerType, LongType, DoubleType),
    ShortType: (IntegerType, LongType, DoubleType),
    IntegerType: (LongType, DoubleType),
    FloatType: (DoubleType,),
    DateType: (TimestampNTZType,),
}
"""Type changes that Delta makes without rewriting files and without losing digits."""


@dataclass(frozen=True)
class Differences:
    """Column path, such as `address.street`, to the types as SQL text."""

    new: dict[str, str]
    removed: dict[str, str]
    wider: dict[str, tuple[str, str]]
    other: dict[str, tuple[str, str]]
    """Changes where old values do not fit the new type, or that Delta cannot make in place."""

    def __bool__(self) -> bool:
        return bool(self.new or self.removed or self.wider or self.other)


def settle_columns(spark: SparkSession, table: TablePlan, expected: StructType) -> str | None:
    """Adapts the table's columns under its commit lock. `strict` refuses any difference; `evolve` adds and widens
    columns, and returns a note. A column that the definition no longer makes stays, and is NULL in new rows."""
    actual = spark.read.format("delta").load(table.uri).schema
    diff = differences(actual, expected)
    landed = table.stages is None and table.aggregate is None
    if not diff or (landed and not (diff.new or diff.wider or diff.other)):
        return None
    if table.write.schema == "strict" or diff.other or _changes_table_kind(table, diff):
        raise _table_changed(table, actual, expected, diff)
    if not (diff.new or diff.wider):
        return None
    evolve_columns(spark, table.uri, expected, diff)
    notes = [f"new {name} {type_text}" for name, type_text in diff.new.items()]
    notes += [f"{name} {old} is {new} now" for name, (old, new) in diff.wider.items()]
    return f"columns evolved: {', '.join(notes)}"


def evolve_columns(spark: SparkSession, uri: str, expected: StructType, diff: Differences) -> None:
    """Adds the new columns and widens the wider ones in place: no file is written."""
    if diff.wider:
        widening = "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
        spark.sql(f"ALTER TABLE delta.{quote(uri)} {widening}")
    empty = spark.createDataFrame([], nullable_within(expected))
    empty.write.format("delta").mode("append").option("mergeSchema", "true").save(uri)


def _changes_table_kind(table: TablePlan, diff: Differences) -> bool:
    """Whether the table would switch between appended, merged and merged with history. That is refused: appended rows
    have no sequence, and tombstones would become rows again."""
    merge = table.write.merge
    if merge is None:
        return {*MERGE_COLUMNS} <= {*diff.removed}
    return not {*MERGE_COLUMNS, *(VALID if merge.history == "scd2" else ())}.isdisjoint(diff.new)


def differences(actual: StructType, expected: StructType) -> Differences:
    """How the columns differ, ignoring nullability and letter case."""
    diff = Differences({}, {}, {}, {})
    _compare_structs("", actual, expected, diff)
    return diff


def _compare_structs(path: str, actual: StructType, expected: StructType, diff: Differences) -> None:
    old = {field.name.lower(): field for field in actual.fields}
    new = {field.name.lower(): field for field in expected.fields}
    for key, field in new.items():
        name = f"{path}{field.name}"
        if key not in old:
            diff.new[name] = _type_text(field.dataType)
        else:
            _compare_types(name, old[key].dataType, field.dataType, diff)
    for key, field in old.items():
        if key not in new:
            diff.removed[f"{path}{field.name}"] = _type_text(field.dataType)


def _compare_types(name: str, old: DataType, new: DataType, diff: Differences) -> None:
    if isinstance(old, StructType) and isinstance(new, StructType):
        _compare_structs(f"{name}.", old, new, diff)
    elif isinstance(old, ArrayType) and isinstance(new, ArrayType):
        _compare_types(f"{name}.element", old.elementType, new.elementType, diff)
    elif isinstance(old, MapType) and isinstance(new, MapType):
        _compare_types(f"{name}.key", old.keyType, new.keyType, diff)
        _compare_types(f"{name}.value", old.valueType, new.valueType, diff)
    elif old != new:
        (diff.wider if is_wider_type(old, new) else diff.other)[name] = (_type_text(old), _type_text(new))


def is_wider_type(old: DataType, new: DataType) -> bool:
    """Whether every value of the old type is also a value of the new one."""
    if isinstance(new, DecimalType):
        if isinstance(old, DecimalType):
            return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
        digits = _DIGITS.get(type(old))
        return digits is not None and new.precision - new.scale >= digits
    return type(new) in _WIDER.get(type(old), ())


def _table_changed(table: TablePlan, actual: StructType, expected: StructType, diff: Differences) -> TableChanged:
    lines = [
        "its definition makes other columns than the table has",
        f"  the table has:        {_list_columns(actual)}",
        f"  the definition makes: {_list_columns(expected)}",
        *(f"  {line}" for line in _difference_lines(diff)),
    ]
    revert = "write the definition as it was"
    alternative = "`write: {schema: evolve}` adds columns and widens types"
    if diff.other or _changes_table_kind(table, diff):
        alternative = "make a new table of another name: this cannot be changed in place"
    return TableChanged("\n".join(lines), where=table.name, hint=f"{revert}; or {alternative}")


def _difference_lines(diff: Differences) -> Iterator[str]:
    if diff.new:
        yield "new: " + ", ".join(f"{name} {type_text}" for name, type_text in diff.new.items())
    if diff.removed:
        yield "no longer made: " + ", ".join(f"{name} {type_text}" for name, type_text in diff.removed.items())
    for name, (old, new) in {**diff.wider, **diff.other}.items():
        yield f"another type: {name} was {old}, would be {new}"


def _list_columns(schema: StructType) -> str:
    return ", ".join(f"{field.name} {_type_text(field.dataType)}" for field in schema.fields)


def _type_text(data_type: DataType) -> str:
    return data_type.simpleString().upper()
