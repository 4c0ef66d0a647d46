"""What of a row is sent: its columns, and its key as text; each an SQL expression over the row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructField, StructType, VariantType

from penstock.engine.changes.net import CHANGE, TIME, VERSION
from penstock.engine.identifiers import quote
from penstock.engine.stages.coordinates import SOURCE
from penstock.errors import Terminal
from penstock.plan.target import ChangeSink
from penstock.spec.finding import did_you_mean

_OURS = (CHANGE, VERSION, TIME, SOURCE)
"""Columns that are Penstock's or Delta's: sent only if they are named."""
TIMES = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
_JSON = f"map('timestampFormat', \"{TIMES}\", 'timestampNTZFormat', \"{TIMES.removesuffix('XXX')}\")"
"""Spark's own way of writing a time in JSON ends with its milliseconds."""
NESTED = (ArrayType, MapType, StructType, VariantType)


@dataclass(frozen=True)
class Shape:
    keys: tuple[StructField, ...]
    columns: tuple[StructField, ...]
    """Those that are sent."""
    own: tuple[StructField, ...] = ()
    """All that the table has."""

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.keys)

    @property
    def key(self) -> str:
        """Text that no other key has: one column as it is, several as a JSON object."""
        if len(self.keys) > 1:
            return to_json(self.keys)
        name = quote(self.keys[0].name)
        return f"base64({name})" if isinstance(self.keys[0].dataType, BinaryType) else f"CAST({name} AS STRING)"

    @property
    def value(self) -> str:
        return to_json(self.columns)


def to_json(fields: Sequence[StructField]) -> str:
    return as_json(f"struct({', '.join(quote(field.name) for field in fields)})")


def as_json(nested: str) -> str:
    """`nested` is an expression that gives a struct, an array, a map or a variant."""
    return f"to_json({nested}, {_JSON})"


def shape(schema: StructType, sink: ChangeSink, where: str) -> Shape:
    """`schema` is that of the changes. Terminal if a column that the sink names is not there, or cannot be a key."""
    own = [field for field in schema.fields if field.name not in _OURS]
    keys = [_named(name, schema, "keys", where) for name in sink.keys]
    columns = [_named(name, schema, "columns", where) for name in sink.columns] or own
    for field in keys:
        if isinstance(field.dataType, NESTED):
            raise Terminal(
                f"`keys`: {field.name} is {field.dataType.simpleString()}, which cannot name a row",
                where=where,
                hint="name columns of text, numbers or times",
            )
    return Shape(tuple(keys), tuple(columns), tuple(own))


def _named(name: str, schema: StructType, key: str, where: str) -> StructField:
    found = [field for field in schema.fields if field.name.casefold() == name.casefold()]
    exact = [field for field in found if field.name == name] or found
    if not exact:
        known = [field.name for field in schema.fields if field.name not in _OURS]
        raise Terminal(f"`{key}`: the table has no column {name}", where=where, hint=did_you_mean(name, known))
    return exact[0]


def is_nested(kind: DataType) -> bool:
    return isinstance(kind, NESTED)
