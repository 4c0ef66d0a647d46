"""Schemas of files: as Spark tells them, as a decoder wants them, and one grown by another."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, cast

from pyspark.sql.types import ArrayType, DecimalType, MapType, NullType, StringType, StructField, StructType

from penstock.spec.columns import RESERVED_BY_SPARK
from penstock.spec.files_source import RESERVED
from penstock.spec.schema import AnyJson, Array, Column, Map, Scalar, Struct, column_key, scalar

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from penstock.spec.schema import Type

ANY_JSON = "json_text"
"""In the metadata of a STRING: it takes any JSON value, as its text. Its value says which kinds were found."""
MOST_ADDED = 1_000
"""Fields, those within objects too, that become columns of one table by themselves. A producer that makes up names must
not make a table without end."""
MOST_LEFT_OUT = 1_000
_REFUSED_BY_DELTA = frozenset(" ,;{}()\n\t=")
_LONGEST_NAME = 1_000
"""What reads a table's schema refuses names of 50,000 characters, and some readers far shorter ones."""


def spark_schema(schema: Struct) -> StructType:
    return cast(StructType, StructType.fromDDL(schema.columns()))


def decoder_schema(schema: StructType) -> Struct:
    """Of what was inferred from lines, or was given as such a schema: it has no other types."""
    return Struct(
        tuple(
            Column(field.name, AnyJson() if ANY_JSON in field.metadata else _type(field.dataType), not field.nullable)
            for field in schema.fields
        )
    )


def _type(kind: DataType) -> Type:
    match kind:
        case StructType():
            return decoder_schema(kind)
        case ArrayType():
            return Array(_type(kind.elementType))
        case MapType():
            return Map(Scalar("STRING"), _type(kind.valueType))
        case DecimalType():
            return scalar("DECIMAL", (kind.precision, kind.scale))
    return scalar(kind.simpleString())


def can_be_column(name: str, *, nested: bool = False) -> bool:
    own = not nested and (column_key(name) in (*RESERVED, *RESERVED_BY_SPARK) or name.startswith("__"))
    return 0 < len(name) <= _LONGEST_NAME and not own and not any(sign in _REFUSED_BY_DELTA for sign in name)


def usable(schema: StructType, *, nested: bool = False) -> StructType:
    """Without the fields that no column can be called by, or that are there twice but for capitals."""
    fields: dict[str, StructField] = {}
    for field in schema.fields:
        if can_be_column(field.name, nested=nested) and (kind := _usable(field.dataType)) is not None:
            fields.setdefault(column_key(field.name), StructField(field.name, kind, field.nullable, field.metadata))
    return StructType(list(fields.values()))


def _usable(kind: DataType) -> DataType | None:
    """None if nothing is left of it, or if nothing is known of it."""
    match kind:
        case NullType():
            return None
        case StructType():
            made = usable(kind, nested=True)
            return made if made.fields else None
        case ArrayType():
            element = _usable(kind.elementType)
            return None if element is None else ArrayType(element, kind.containsNull)
        case MapType():
            value = _usable(kind.valueType)
            return None if value is None else MapType(kind.keyType, value, kind.valueContainsNull)
    return kind


def merged(old: StructType, new: StructType) -> StructType:
    """`old` with the fields that only `new` has, also within objects; a type that is there stays. Capitals make no
    difference, and what is new may be missing."""
    theirs = {column_key(field.name): field for field in new.fields}
    fields = [
        StructField(
            field.name,
            _merged(field.dataType, theirs[column_key(field.name)].dataType)
            if column_key(field.name) in theirs
            else field.dataType,
            field.nullable,
            field.metadata,
        )
        for field in old.fields
    ]
    mine = {column_key(field.name) for field in old.fields}
    fields += [
        StructField(field.name, field.dataType, metadata=field.metadata)
        for field in new.fields
        if column_key(field.name) not in mine
    ]
    return StructType(fields)


def _merged(old: DataType, new: DataType) -> DataType:
    if isinstance(old, StructType) and isinstance(new, StructType):
        return merged(old, new)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return ArrayType(_merged(old.elementType, new.elementType), old.containsNull)
    if isinstance(old, MapType) and isinstance(new, MapType):
        return MapType(old.keyType, _merged(old.valueType, new.valueType), old.valueContainsNull)
    return old


def added(old: StructType, new: StructType) -> StructType:
    """The columns that only `new` has."""
    mine = {column_key(field.name) for field in old.fields}
    return StructType([field for field in new.fields if column_key(field.name) not in mine])


def bounded(old: StructType, new: StructType, room: int) -> StructType:
    """`old` with what only `new` has, at most `room` fields more, those of objects counted; by name, so that the same
    records always give the same."""
    left = [max(room, 0)]
    return _grown_by(old, new, left)


def _grown_by(old: StructType, new: StructType, left: list[int]) -> StructType:
    theirs = {column_key(field.name): field for field in new.fields}
    fields = [
        StructField(
            field.name,
            _wider(field.dataType, theirs[column_key(field.name)].dataType, left),
            field.nullable,
            field.metadata,
        )
        if column_key(field.name) in theirs
        else field
        for field in old.fields
    ]
    mine = {column_key(field.name) for field in old.fields}
    for field in sorted(new.fields, key=lambda field: field.name):
        if column_key(field.name) not in mine and size_of(field.dataType) + 1 <= left[0]:
            left[0] -= size_of(field.dataType) + 1
            fields.append(StructField(field.name, field.dataType, metadata=field.metadata))
    return StructType(fields)


def _wider(old: DataType, new: DataType, left: list[int]) -> DataType:
    if isinstance(old, StructType) and isinstance(new, StructType):
        return _grown_by(old, new, left)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return ArrayType(_wider(old.elementType, new.elementType, left), old.containsNull)
    if isinstance(old, MapType) and isinstance(new, MapType):
        return MapType(old.keyType, _wider(old.valueType, new.valueType, left), old.valueContainsNull)
    return old


def size_of(kind: DataType) -> int:
    """How many fields there are within a type."""
    if isinstance(kind, StructType):
        return sum(1 + size_of(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return size_of(kind.elementType)
    return size_of(kind.valueType) if isinstance(kind, MapType) else 0


def no_more_columns(source: str, others: str, most: int) -> str:
    """What a person is told when the bound is reached. `others`: what becomes of other new fields."""
    return (
        f"WARNING: the {source} have brought more than {most:,} fields, or names that no column can have. "
        f"No more columns are added from now on: other new fields are {others}. "
        "If the names are values, declare the object that has them as MAP<STRING, …>"
    )


def without(schema: StructType, names: Collection[str]) -> StructType:
    return StructType([field for field in schema.fields if field.name not in names])


def any_for_nothing(schema: StructType) -> StructType:
    """A field of which no value was seen takes whatever comes: for a schema that does not grow."""
    fields = [
        StructField(field.name, StringType(), metadata={ANY_JSON: "no value"})
        if isinstance(field.dataType, NullType)
        else field
        for field in schema.fields
    ]
    return StructType(fields)


def told(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString().upper()}" for field in schema.fields)


def mixed(schema: StructType, path: str = "") -> dict[str, str]:
    """Fields that hold the text of several kinds of values, at any depth, each with the kinds."""
    found: dict[str, str] = {}
    for field in schema.fields:
        if ANY_JSON in field.metadata:
            found[path + field.name] = field.metadata[ANY_JSON]
        kind = field.dataType
        while isinstance(kind, ArrayType):
            kind = kind.elementType
        if isinstance(kind, StructType):
            found |= mixed(kind, f"{path}{field.name}.")
    return found


def lacking(found: StructType, schema: StructType, path: str = "", *, exact: bool = True) -> list[str]:
    """The paths of fields with a value that the schema has no place for. `exact`: capitals make a difference."""
    known = {field.name if exact else column_key(field.name): field.dataType for field in schema.fields}
    missing: list[str] = []
    for field in found.fields:
        here, name = f"{path}{field.name}", field.name if exact else column_key(field.name)
        if isinstance(field.dataType, NullType):  # it may become a column yet
            continue
        if name not in known:
            missing.append(here)
            continue
        theirs, mine = field.dataType, known[name]
        while isinstance(theirs, ArrayType) and isinstance(mine, ArrayType):
            theirs, mine = theirs.elementType, mine.elementType
        if isinstance(theirs, StructType) and isinstance(mine, StructType):
            missing += lacking(theirs, mine, f"{here}.", exact=exact)
    return missing
