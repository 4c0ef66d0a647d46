"""Types of Spark's, as far as two values of them can be compared and shown."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
    VariantType,
)

_NESTED = (ArrayType, MapType, StructType, VariantType)
_NUMBERS = (DoubleType, FloatType)
TOLERANCE = {"double": "1e-9D", "float": "1e-6D"}
"""A sum of them depends on the order of its parts: so much, relative to the larger one or to 1, is no difference."""


def holds(kind: DataType, *wanted: type[DataType]) -> bool:
    if isinstance(kind, wanted):
        return True
    if isinstance(kind, StructType):
        return any(holds(field.dataType, *wanted) for field in kind.fields)
    if isinstance(kind, MapType):
        return holds(kind.keyType, *wanted) or holds(kind.valueType, *wanted)
    return isinstance(kind, ArrayType) and holds(kind.elementType, *wanted)


def unsteady(kind: DataType) -> bool:
    """Two values that mean the same may differ: a map has no order, a number within another value no tolerance."""
    return holds(kind, MapType, VariantType) or (isinstance(kind, _NESTED) and holds(kind, *_NUMBERS))


def equal(one: str, other: str, kind: DataType) -> str:
    """An expression that is never NULL. NULL is equal to NULL, and NaN to NaN."""
    if isinstance(kind, _NUMBERS):
        apart = f"abs(CAST({one} AS DOUBLE) - CAST({other} AS DOUBLE))"
        bound = f"{TOLERANCE[kind.simpleString()]} * greatest(abs({one}), abs({other}), 1D)"
        # NaN is larger than anything, and within an infinite bound lies everything.
        near = f"NOT isnan({apart}) AND {apart} < double('Infinity') AND {apart} <= {bound}"
        return f"({one} <=> {other} OR coalesce({near}, false))"
    if holds(kind, MapType, VariantType):  # Spark compares none
        return f"(to_json(struct({one})) <=> to_json(struct({other})))"
    return f"({one} <=> {other})"


def shown(value: str, kind: DataType) -> str:
    """As text, by Spark: Python would turn times into those of the machine."""
    if isinstance(kind, BinaryType):
        return f"concat('0x', hex({value}))"
    return f"to_json({value})" if isinstance(kind, _NESTED) else f"CAST({value} AS STRING)"
