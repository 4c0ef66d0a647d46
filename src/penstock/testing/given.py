"""Rows that a test gives, as the source of a table would bring them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, StringType, StructType

from penstock.engine.stages.coordinates import FILE, ROW, SOURCE
from penstock.errors import UsageError
from penstock.spec.finding import did_you_mean

_KAFKA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_WHEN = datetime(2026, 1, 1, tzinfo=UTC)
_COORDINATES = {"topic": "test", "partition": 0, "kafka_timestamp": _WHEN, "ingestion_timestamp": _WHEN}


def kafka_schema() -> StructType:
    return cast(StructType, StructType.fromDDL(_KAFKA))


def records(spark: SparkSession, rows: Iterable[Mapping[str, Any]], topic: str, first: int) -> DataFrame:
    """As Kafka gives them. `value` may be text, bytes, or what becomes JSON; what is left out is made up."""
    schema = kafka_schema()
    made = []
    for number, row in enumerate(rows, start=first):
        _refuse_unknown(row, schema.names)
        made.append(
            {
                "key": _bytes(row.get("key")),
                "value": _bytes(row.get("value")),
                "topic": row.get("topic", topic),
                "partition": row.get("partition", 0),
                "offset": row.get("offset", number),
                "timestamp": row.get("timestamp", _WHEN),
                "timestampType": 0,
                "headers": [{"key": k, "value": _bytes(v)} for k, v in (row.get("headers") or {}).items()] or None,
            }
        )
    return spark.createDataFrame([tuple(one[name] for name in schema.names) for one in made], schema)


def table_rows(spark: SparkSession, rows: Iterable[Mapping[str, Any]], schema: StructType, first: int = 0) -> DataFrame:
    """Rows of a table with these columns. Coordinates that are left out are made up, other columns are NULL."""
    made = [tuple(_values(row, schema, number)) for number, row in enumerate(rows, start=first)]
    return spark.createDataFrame(made, schema)


def _values(row: Mapping[str, Any], schema: StructType, number: int) -> Iterator[Any]:
    _refuse_unknown(row, schema.names)
    for column in schema.fields:
        name = column.name
        if name in row:
            value = row[name]
            text = isinstance(column.dataType, StringType) and isinstance(value, dict | list)
            binary = isinstance(column.dataType, BinaryType) and value is not None
            yield json.dumps(value) if text else _bytes(value) if binary else value
        elif name == SOURCE:
            yield _source(cast(StructType, column.dataType), number)
        elif name in ("offset", ROW):
            yield number
        elif name == FILE:
            yield "test"
        else:
            yield _COORDINATES.get(name)


def _source(kind: StructType, number: int) -> tuple[Any, ...]:
    made = {"topic": "test", "partition": 0, "offset": number, "file": "test", "row": number}
    return tuple(made[name] for name in kind.names)


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def _refuse_unknown(row: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in row:
        if name not in names:
            raise UsageError(f"the source has no column '{name}'", hint=did_you_mean(name, list(names)))
