"""Schemas of files: as Spark reports them, as a decoder needs them, and one extended by another."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark.sql.types import ArrayType, DecimalType, MapType, NullType, StringType, StructField, StructType

from penstock.spec.columns import RESERVED_BY_SPARK
from penstock.spec.files_source import RESERVED
from penstock.spec.schema import AnyJson, Array, Column, Map, Scalar, Struct, column_key, scalar

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from penstock.spec.schema import Type

ANY_JSON = "json_text"
"""In the metadata of a STRING field: it takes any JSON value, as text. The metadata's value names the kinds found."""
MOST_ADDED = 1_000
"""How many fields, including nested ones, become columns of a table automatically. A producer that makes up names must
not make a table grow without limit."""
MOST_LEFT_OUT = 1_000
_REFUSED_BY_DELTA = frozenset(" ,;{}()\n\t=")
_MAX_NAME_LENGTH = 1_000
"""Readers of a table's schema refuse names of 50,000 characters, and some refuse far shorter ones."""


def spark_schema(schema: Struct) -> StructType:
    return cast(StructType, StructType.fromDDL(schema.columns()))


def decoder_schema(schema: StructType) -> Struct:
    """The schema for a decoder. A schema inferred from lines, or declared for them, has no other types than these."""
    return Struct(
        tuple(
            Column(
                field.name,
                AnyJson() if ANY_JSON in field.metadata else _decoder_type(field.dataType),
                not field.nullable,
            )
            for field in schema.fields
        )
    )


def _decoder_type(kind: DataType) -> Type:
    match kind:
        case StructType():
            return decoder_schema(kind)
        case ArrayType():
            return Array(_decoder_type(kind.elementType))
        case MapType():
            return Map(Scalar("STRING"), _decoder_type(kind.valueType))
        case DecimalType():
            return scalar("DECIMAL", (kind.precision, kind.scale))
    return scalar(kind.simpleString())


def can_be_column(name: str, *, nested: bool = False) -> bool:
    reserved = not nested and (column_key(name) in (*RESERVED, *RESERVED_BY_SPARK) or name.startswith("__"))
    return (
        0 < len(name) <= _MAX_NAME_LENGTH
        and not reserved
        and not any(character in _REFUSED_BY_DELTA for character in name)
    )


def usable(schema: StructType, *, nested: bool = False) -> StructType:
    """The schema without fields whose names no column can have, or which differ from an earlier one only in case."""
    fields: dict[str, StructField] = {}
    for field in schema.fields:
        if can_be_column(field.name, nested=nested) and (kind := _usable_type(field.dataType)) is not None:
            fields.setdefault(column_key(field.name), StructField(field.name, kind, field.nullable, field.metadata))
    return StructType(list(fields.values()))


def _usable_type(kind: DataType) -> DataType | None:
    """None if no field of it is left, or if its type is unknown."""
    match kind:
        case NullType():
            return None
        case StructType():
            fields = usable(kind, nested=True)
            return fields if fields.fields else None
        case ArrayType():
            element = _usable_type(kind.elementType)
            return None if element is None else ArrayType(element, kind.containsNull)
        case MapType():
            value = _usable_type(kind.valueType)
            return None if value is None else MapType(kind.keyType, value, kind.valueContainsNull)
    return kind


def merged(old: StructType, new: StructType) -> StructType:
    """`old` with the fields that only `new` has, also within objects; existing types stay. Names are compared without
    case, and new fields are nullable."""
    return _grow_schema(old, new, None)


def added(old: StructType, new: StructType) -> StructType:
    """The columns that only `new` has."""
    old_names = {column_key(field.name) for field in old.fields}
    return StructType([field for field in new.fields if column_key(field.name) not in old_names])


def bounded(old: StructType, new: StructType, room: int) -> StructType:
    """`old` with the fields that only `new` has, at most `room` of them, nested ones included; in order of their names,
    so that the same records always give the same schema."""
    return _grow_schema(old, new, [max(room, 0)])


def _grow_schema(old: StructType, new: StructType, remaining: list[int] | None) -> StructType:
    """`remaining` is how many fields may still be added, as the one element of a list; None sets no limit."""
    new_fields = {column_key(field.name): field for field in new.fields}
    fields = [
        StructField(
            field.name,
            _grow_type(field.dataType, new_fields[column_key(field.name)].dataType, remaining),
            field.nullable,
            field.metadata,
        )
        if column_key(field.name) in new_fields
        else field
        for field in old.fields
    ]
    candidates = added(old, new).fields
    for field in candidates if remaining is None else sorted(candidates, key=lambda field: field.name):
        if remaining is not None:
            if size_of(field.dataType) + 1 > remaining[0]:
                continue
            remaining[0] -= size_of(field.dataType) + 1
        fields.append(StructField(field.name, field.dataType, metadata=field.metadata))
    return StructType(fields)


def _grow_type(old: DataType, new: DataType, remaining: list[int] | None) -> DataType:
    if isinstance(old, StructType) and isinstance(new, StructType):
        return _grow_schema(old, new, remaining)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return ArrayType(_grow_type(old.elementType, new.elementType, remaining), old.containsNull)
    if isinstance(old, MapType) and isinstance(new, MapType):
        return MapType(old.keyType, _grow_type(old.valueType, new.valueType, remaining), old.valueContainsNull)
    return old


def size_of(kind: DataType) -> int:
    """The number of fields within a type."""
    if isinstance(kind, StructType):
        return sum(1 + size_of(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return size_of(kind.elementType)
    return size_of(kind.valueType) if isinstance(kind, MapType) else 0


def no_more_columns(source: str, others: str, most: int) -> str:
    """The warning when the limit is reached. `others`: what happens with other new fields."""
    return (
        f"WARNING: the {source} have brought more than {most:,} fields, or names that no column can have. "
        f"No more columns are added from now on: other new fields are {others}. "
        "If the names are values, declare the object that has them as MAP<STRING, …>"
    )


def nulls_to_json_text(schema: StructType) -> StructType:
    """For a schema that does not grow: a field without any value so far accepts any value."""
    fields = [
        StructField(field.name, StringType(), metadata={ANY_JSON: "no value"})
        if isinstance(field.dataType, NullType)
        else field
        for field in schema.fields
    ]
    return StructType(fields)


def schema_text(schema: StructType) -> str:
    return ", ".join(f"{field.name} {field.dataType.simpleString().upper()}" for field in schema.fields)


def mixed(schema: StructType, path: str = "") -> dict[str, str]:
    """Fields, at any depth, that hold values of several kinds as text; each with these kinds."""
    mixed_fields: dict[str, str] = {}
    for field in schema.fields:
        if ANY_JSON in field.metadata:
            mixed_fields[path + field.name] = field.metadata[ANY_JSON]
        kind = field.dataType
        while isinstance(kind, ArrayType):
            kind = kind.elementType
        if isinstance(kind, StructType):
            mixed_fields |= mixed(kind, f"{path}{field.name}.")
    return mixed_fields


def missing_fields(file_schema: StructType, schema: StructType, path: str = "", *, exact: bool = True) -> list[str]:
    """The paths of fields with a value that are not in the schema. `exact`: names are compared with case."""
    known = {field.name if exact else column_key(field.name): field.dataType for field in schema.fields}
    missing: list[str] = []
    for field in file_schema.fields:
        field_path, name = f"{path}{field.name}", field.name if exact else column_key(field.name)
        if isinstance(field.dataType, NullType):  # it may become a column yet
            continue
        if name not in known:
            missing.append(field_path)
            continue
        file_type, known_type = field.dataType, known[name]
        while isinstance(file_type, ArrayType) and isinstance(known_type, ArrayType):
            file_type, known_type = file_type.elementType, known_type.elementType
        if isinstance(file_type, StructType) and isinstance(known_type, StructType):
            missing += missing_fields(file_type, known_type, f"{field_path}.", exact=exact)
    return missing
