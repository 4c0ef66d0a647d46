"""Rows on their way out: as text for people, as JSON for programs. Spark writes both.

Python's own types would not do: a time is of the machine's zone there, and of few years; a decimal becomes a double.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType, VariantType

Values = tuple[str | None, ...]
_COLLECTED = 10_000
"""Rows that are taken at once; more of them come partition by partition."""
_NESTED = (ArrayType, MapType, StructType, VariantType)
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def texts(frame: DataFrame, limit: int | None) -> Iterator[Values]:
    """Each value as a text, None for NULL; what is nested as JSON, bytes in hexadecimal digits. One row more than
    `limit`, if there is one: so it is seen that there are more."""
    return _rows(frame, limit, _text)


def json_values(frame: DataFrame, limit: int | None) -> Iterator[list[str]]:
    """Each value as a piece of JSON; bytes in base 64. One row more than `limit`, as above."""
    for row in _rows(frame, limit, _json):
        yield [cast(str, value)[1:-1] for value in row]


def _rows(frame: DataFrame, limit: int | None, written: Callable[[Column, DataType], Column]) -> Iterator[Values]:
    types = [field.dataType for field in frame.schema.fields]
    names = [f"c{number}" for number in range(len(types))]  # theirs may be the same, or none
    rows = frame.toDF(*names).select(
        *(written(F.col(name), of).alias(name) for name, of in zip(names, types, strict=True))
    )
    if limit is not None and limit <= _COLLECTED:
        return (tuple(row) for row in rows.take(limit + 1))
    found = rows if limit is None else rows.limit(limit + 1)
    return (tuple(row) for row in found.toLocalIterator())


def _text(value: Column, of: DataType) -> Column:
    if isinstance(of, BinaryType):
        return F.hex(value)
    return F.to_json(value, _JSON) if isinstance(of, _NESTED) else value.cast("string")


def _json(value: Column, _: DataType) -> Column:
    return F.to_json(F.array(value), _JSON)
