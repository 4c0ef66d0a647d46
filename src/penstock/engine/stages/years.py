"""Dates and times of rows that were not decoded, such as those of Parquet files: other readers of the table cannot hold
those outside of the years 0001 to 9999, or take them for something else."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, DateType, MapType, StructType, TimestampNTZType, TimestampType

from penstock.engine.identifiers import quote
from penstock.engine.stages.decode import literal

MARK = "outside_years:"
"""Before the name of a column, where the names of expectations stand."""
DETAIL = "is not within the years 0001 to 9999"
_FIRST, _LAST = "-62135596800000000L", "253402300799999999L"
"""Microseconds."""


def outside_years(schema: StructType) -> dict[str, str]:
    """Column -> a condition, true or false: whether it holds such a value, at any depth."""
    found = {field.name: _outside(field.dataType, quote(field.name), 0) for field in schema.fields}
    return {name: f"coalesce({condition}, false)" for name, condition in found.items() if condition is not None}


def marks(conditions: dict[str, str]) -> str:
    """The columns of a row that hold one, each behind MARK."""
    named = ", ".join(f"IF({condition}, {literal(MARK + name)}, '')" for name, condition in conditions.items())
    return f"array_remove(array({named}), '')"


def _outside(kind: DataType, value: str, depth: int) -> str | None:
    """None if no value of the type is a date or a time."""
    one = f"x{depth}"
    match kind:
        case DateType():
            return f"({value} < DATE'0001-01-01' OR {value} > DATE'9999-12-31')"
        case TimestampType():
            return f"(unix_micros({value}) NOT BETWEEN {_FIRST} AND {_LAST})"
        case TimestampNTZType():
            first, last = "TIMESTAMP_NTZ'0001-01-01 00:00:00'", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'"
            return f"({value} < {first} OR {value} > {last})"
        case StructType():
            inner = [_outside(field.dataType, f"{value}.{quote(field.name)}", depth) for field in kind.fields]
            parts = [f"coalesce({part}, false)" for part in inner if part is not None]
            return f"({' OR '.join(parts)})" if parts else None
        case ArrayType():
            part = _outside(kind.elementType, one, depth + 1)
            return None if part is None else f"exists({value}, {one} -> coalesce({part}, false))"
        case MapType():
            sides = {"map_keys": kind.keyType, "map_values": kind.valueType}
            found = {side: _outside(inner, one, depth + 1) for side, inner in sides.items()}
            parts = [
                f"exists({side}({value}), {one} -> coalesce({part}, false))" for side, part in found.items() if part
            ]
            return f"({' OR '.join(parts)})" if parts else None
    return None
