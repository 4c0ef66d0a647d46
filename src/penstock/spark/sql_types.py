"""Spark types as SQL, and schemas without NOT NULL inside columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from penstock.spark.sql_text import quote

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def sql_type(kind: DataType) -> str:
    """A type for a cast: names within it quoted, and NULL allowed everywhere, because Spark refuses to cast what may be
    NULL to a type that forbids it inside a struct, a list or a map."""
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{quote(field.name)}: {sql_type(field.dataType)}' for field in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{sql_type(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{sql_type(kind.keyType)}, {sql_type(kind.valueType)}>"
    return kind.simpleString()


def nullable_within(schema: StructType) -> StructType:
    """The schema of a table without NOT NULL inside its columns: Delta takes a struct that is NULL itself to break that
    promise, and one such row would stop the table."""
    return StructType(
        [StructField(field.name, _nullable(field.dataType), field.nullable, field.metadata) for field in schema.fields]
    )


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType(
            [StructField(field.name, _nullable(field.dataType), True, field.metadata) for field in kind.fields]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    return kind
