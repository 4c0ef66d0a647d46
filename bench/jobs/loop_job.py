"""Contender c: a Python loop of confluent-kafka and deltalake, exactly once by offsets in the commit.

Each commit carries one `txn` action per partition whose version is the next offset; a restart goes on from there. The
columns are those of the other contenders. Arrow columns are built with arro3, which deltalake brings along.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from arro3.core import Array, DataType, Field, Schema, Table, list_array, struct_array
from confluent_kafka import Message
from deltalake import ColumnProperties, CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake

from bench.jobs.assigned import Assigned
from bench.jobs.job import JobFile, now

HEADER = DataType.struct([Field("key", DataType.utf8()), Field("value", DataType.binary())])
HEADERS = DataType.list(Field("element", HEADER))
MOMENT = DataType.timestamp("us", tz="UTC")
SCHEMA = Schema(
    [
        Field("key", DataType.utf8()),
        Field("value", DataType.utf8()),
        Field("headers", HEADERS),
        Field("topic", DataType.utf8()),
        Field("partition", DataType.int32()),
        Field("offset", DataType.int64()),
        Field("kafka_timestamp", MOMENT),
        Field("ingestion_timestamp", MOMENT),
    ]
)


NO_HEADERS = list_array(
    Array([0, 0], type=DataType.int32()),
    struct_array(
        [Array([], type=DataType.utf8()), Array([], type=DataType.binary())],
        fields=[Field("key", DataType.utf8()), Field("value", DataType.binary())],
    ),
    type=HEADERS,
    mask=Array([True], type=DataType.bool()),
)
# Values hardly repeat: building a dictionary of them first makes each file a third slower to write.
FILES = WriterProperties(compression="SNAPPY", default_column_properties=ColumnProperties(dictionary_enabled=False))


def _texts(values: Sequence[bytes | None]) -> Array:
    """Bytes that librdkafka gave, checked to be UTF-8 by the cast: faster than decoding each in Python."""
    return Array(values, type=DataType.binary()).cast(DataType.utf8())


def _constant(value: Array, rows: int) -> Array:
    return value.take(Array([0] * rows, type=DataType.int32()))


def _headers(messages: Sequence[Message]) -> Array:
    each: list[Any] = [message.headers() for message in messages]
    if not any(each):
        return _constant(NO_HEADERS, len(messages))
    flat = [header for headers in each if headers for header in headers]
    ends = [0]
    for headers in each:
        ends.append(ends[-1] + len(headers or ()))
    names = Array([name for name, _ in flat], type=DataType.utf8())
    values = Array([value for _, value in flat], type=DataType.binary())
    return list_array(
        Array(ends, type=DataType.int32()),
        struct_array([names, values], fields=[Field("key", DataType.utf8()), Field("value", DataType.binary())]),
        type=HEADERS,
        mask=Array([headers is None for headers in each], type=DataType.bool()),
    )


def _table(messages: Sequence[Message], topic: Array) -> Table:
    rows = len(messages)
    moments = Array([message.timestamp()[1] for message in messages], type=DataType.int64())
    return Table.from_arrays(
        [
            _texts([message.key() for message in messages]),
            _texts([message.value() for message in messages]),
            _headers(messages),
            _constant(topic, rows),
            Array([message.partition() for message in messages], type=DataType.int32()),
            Array([message.offset() for message in messages], type=DataType.int64()),
            moments.cast(DataType.timestamp("ms", tz="UTC")).cast(MOMENT),
            _constant(Array([int(now() * 1_000_000)], type=DataType.int64()).cast(MOMENT), rows),
        ],
        schema=SCHEMA,
    )


def main() -> None:
    job = JobFile.read(sys.argv[1])
    table = DeltaTable.create(job.table, SCHEMA, mode="ignore", configuration=dict(job.properties or {}))
    consumer = Assigned(
        job.bootstrap, job.topic, lambda p: table.transaction_version(f"{job.topic}-{p}"), far_ahead=job.far_ahead
    )
    topic = Array([job.topic], type=DataType.utf8())
    job.mark(first=now())
    while consumer.left:
        messages = consumer.take(job.per_batch)
        last: dict[Any, Any] = {message.partition(): message.offset() for message in messages}
        offsets = [Transaction(f"{job.topic}-{partition}", offset + 1) for partition, offset in last.items()]
        write_deltalake(
            table,
            _table(messages, topic),
            mode="append",
            writer_properties=FILES,
            commit_properties=CommitProperties(app_transactions=offsets),
        )
    consumer.close()


if __name__ == "__main__":
    main()
