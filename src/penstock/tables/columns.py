"""A table's columns against those that its definition makes now, and which of them have statistics."""

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
from penstock.spec.table_kinds import OWN, VALID
from penstock.tables.merge.row_exchange import Exchange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import (
        DataType,
    )

    from penstock.plan.model import TablePlan

# Statistics without names: the log of a table has the least and the greatest value of its columns in every file, in
# clear, and no commit takes them back. So columns that say of whom a row is are left out of them.


_NONE = "delta.dataSkippingNumIndexedCols"
_MOST = 32
"""Columns of which Delta itself keeps statistics."""
_KINDS = (NumericType, StringType, DateType, TimestampType, TimestampNTZType)


def with_statistics(table: TablePlan, schema: StructType) -> Mapping[str, str]:
    """The properties that a new table is given."""
    if not table.subjects or STATISTICS in table.properties:
        return table.properties
    return {**table.properties, **statistics_of(table, schema)}


def settle_statistics(spark: SparkSession, table: TablePlan, schema: StructType) -> str | None:
    """Of a table that is there: called under its commit lock. Says what was done, if anything was."""
    if not table.subjects:
        return None
    now = Exchange(spark.newSession(), table.uri)
    stated, none = now.setting(STATISTICS), now.setting(_NONE)
    if (none == "0" and stated is None) or (stated is not None and not _names(stated, _hidden(table))):
        return None
    chosen = ", ".join(f"'{name}' = '{value}'" for name, value in statistics_of(table, schema).items())
    spark.sql(f"ALTER TABLE delta.{quote(table.uri)} SET TBLPROPERTIES ({chosen})")
    return f"no statistics any more of {', '.join(sorted(_hidden(table)))}: the log would keep names in clear"


def statistics_of(table: TablePlan, schema: StructType) -> dict[str, str]:
    """The property of a table with these columns that has statistics of none that names somebody."""
    hidden = _hidden(table)
    left_out = {name.casefold() for name in table.write.partition_by}  # Delta has none of these, and refuses them here
    found = [path for path in _paths(schema) if not _within(path, hidden) and path[0].casefold() not in left_out]
    if not found:
        return {_NONE: "0"}
    return {STATISTICS: ",".join(".".join(map(quote, path)) for path in found[:_MOST])}


def _paths(schema: StructType, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in schema.fields:
        path = (*above, field.name)
        if isinstance(field.dataType, StructType):
            yield from _paths(field.dataType, path)
        elif isinstance(field.dataType, _KINDS):
            yield path


def _within(path: tuple[str, ...], hidden: set[str]) -> bool:
    steps = [step.casefold() for step in path]
    return any(".".join(steps[:depth]) in hidden for depth in range(1, len(steps) + 1))


def _hidden(table: TablePlan) -> set[str]:
    return {place.column.casefold() for places in table.subjects.values() for place in places}


def _names(stated: str, hidden: set[str]) -> bool:
    """Whether a list of columns has one of those, one that it lies in, or one below it."""
    listed = [name.replace("`", "").strip().casefold() for name in stated.split(",")]
    pairs = ((one, other) for one in listed for other in hidden)
    return any(f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.") for one, other in pairs)


# A table's columns against those that its definition makes now: they stay, they grow, or a person decides.


_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 20}
_WIDER: dict[type[DataType], tuple[type[DataType], ...]] = {
    ByteType: (ShortType, IntegerType, LongType, DoubleType),
    ShortType: (IntegerType, LongType, DoubleType),
    IntegerType: (LongType, DoubleType),
    FloatType: (DoubleType,),
    DateType: (TimestampNTZType,),
}
"""What Delta can do without rewriting a file, and without losing a digit."""


@dataclass(frozen=True)
class Differences:
    """By the path of the column, `address.street`; texts are types as SQL writes them."""

    new: dict[str, str]
    gone: dict[str, str]
    wider: dict[str, tuple[str, str]]
    other: dict[str, tuple[str, str]]
    """Values of the old type do not fit the new one, or Delta cannot change it in place."""

    def __bool__(self) -> bool:
        return bool(self.new or self.gone or self.wider or self.other)


def settle_columns(spark: SparkSession, table: TablePlan, wanted: StructType) -> str | None:
    """Called under the table's commit lock. `strict` refuses any difference; `evolve` adds what is new and widens what
    can be widened, and says so. A column that the definition no longer makes stays, and is NULL from now on."""
    there = spark.read.format("delta").load(table.uri).schema
    found = differences(there, wanted)
    landed = table.stages is None and table.aggregate is None
    if not found or (landed and not (found.new or found.wider or found.other)):
        return None
    if table.write.schema == "strict" or found.other or _of_another_kind(table, found):
        raise _refused(table, there, wanted, found)
    if not (found.new or found.wider):
        return None
    evolve_columns(spark, table.uri, wanted, found)
    said = [f"new {name} {kind}" for name, kind in found.new.items()]
    said += [f"{name} {old} is {new} now" for name, (old, new) in found.wider.items()]
    return f"columns evolved: {', '.join(said)}"


def evolve_columns(spark: SparkSession, uri: str, wanted: StructType, found: Differences) -> None:
    """Adds the columns that are new and widens those that are wider, in place: no file is written."""
    if found.wider:
        widening = "SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')"
        spark.sql(f"ALTER TABLE delta.{quote(uri)} {widening}")
    nothing = spark.createDataFrame([], nullable_within(wanted))
    nothing.write.format("delta").mode("append").option("mergeSchema", "true").save(uri)


def _of_another_kind(table: TablePlan, found: Differences) -> bool:
    """Rows that were appended have no sequence, and tombstones would become rows again."""
    merge = table.write.merge
    if merge is None:
        return {*OWN} <= {*found.gone}
    return not {*OWN, *(VALID if merge.history == "scd2" else ())}.isdisjoint(found.new)


def differences(there: StructType, wanted: StructType) -> Differences:
    """Whether NULL is allowed is not looked at, nor are capitals."""
    found = Differences({}, {}, {}, {})
    _compare("", there, wanted, found)
    return found


def _compare(path: str, there: StructType, wanted: StructType, found: Differences) -> None:
    old = {field.name.lower(): field for field in there.fields}
    new = {field.name.lower(): field for field in wanted.fields}
    for key, field in new.items():
        name = f"{path}{field.name}"
        if key not in old:
            found.new[name] = _text(field.dataType)
        else:
            _types(name, old[key].dataType, field.dataType, found)
    for key, field in old.items():
        if key not in new:
            found.gone[f"{path}{field.name}"] = _text(field.dataType)


def _types(name: str, old: DataType, new: DataType, found: Differences) -> None:
    if isinstance(old, StructType) and isinstance(new, StructType):
        _compare(f"{name}.", old, new, found)
    elif isinstance(old, ArrayType) and isinstance(new, ArrayType):
        _types(f"{name}.element", old.elementType, new.elementType, found)
    elif isinstance(old, MapType) and isinstance(new, MapType):
        _types(f"{name}.key", old.keyType, new.keyType, found)
        _types(f"{name}.value", old.valueType, new.valueType, found)
    elif old != new:
        (found.wider if widens(old, new) else found.other)[name] = (_text(old), _text(new))


def widens(old: DataType, new: DataType) -> bool:
    """Every value of the old type is a value of the new one."""
    if isinstance(new, DecimalType):
        if isinstance(old, DecimalType):
            return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
        digits = _DIGITS.get(type(old))
        return digits is not None and new.precision - new.scale >= digits
    return type(new) in _WIDER.get(type(old), ())


def _refused(table: TablePlan, there: StructType, wanted: StructType, found: Differences) -> TableChanged:
    lines = [
        "its definition makes other columns than the table has",
        f"  the table has:        {_columns(there)}",
        f"  the definition makes: {_columns(wanted)}",
        *(f"  {line}" for line in _told(found)),
    ]
    back = "write the definition as it was"
    on = "`write: {schema: evolve}` adds columns and widens types"
    if found.other or _of_another_kind(table, found):
        on = "make a new table of another name: this cannot be changed in place"
    return TableChanged("\n".join(lines), where=table.name, hint=f"{back}; or {on}")


def _told(found: Differences) -> Iterator[str]:
    if found.new:
        yield "new: " + ", ".join(f"{name} {kind}" for name, kind in found.new.items())
    if found.gone:
        yield "no longer made: " + ", ".join(f"{name} {kind}" for name, kind in found.gone.items())
    for name, (old, new) in {**found.wider, **found.other}.items():
        yield f"another type: {name} was {old}, would be {new}"


def _columns(schema: StructType) -> str:
    return ", ".join(f"{field.name} {_text(field.dataType)}" for field in schema.fields)


def _text(kind: DataType) -> str:
    return kind.simpleString().upper()
