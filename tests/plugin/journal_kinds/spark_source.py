"""The journal as Spark reads it: a Python data source whose offsets are written as those of Spark's Kafka source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_WHEN = datetime(2026, 1, 1, tzinfo=UTC)


class Lines(InputPartition):
    def __init__(self, topic: str, partition: int, first: int, end: int) -> None:
        self.topic, self.partition, self.first, self.end = topic, partition, first, end


def _lines(folder: str, asked: Lines) -> Iterator[tuple[Any, ...]]:
    text = (Path(folder) / asked.topic / f"{asked.partition}.txt").read_bytes().split(b"\n")[:-1]
    for offset in range(asked.first, asked.end):
        yield None, text[offset], asked.topic, asked.partition, offset, _WHEN, 0, None


def _between(first: dict[str, Any], end: dict[str, Any]) -> list[Lines]:
    return [
        Lines(topic, int(partition), int(first.get(topic, {}).get(partition, 0)), int(offset))
        for topic, partitions in end.items()
        for partition, offset in partitions.items()
    ]


class JournalStream(DataSourceStreamReader):
    def __init__(self, folder: str, topic: str) -> None:
        self._folder, self._topic = folder, topic

    def initialOffset(self) -> dict[str, Any]:
        return {self._topic: {}}

    def latestOffset(self) -> dict[str, Any]:
        files = sorted((Path(self._folder) / self._topic).glob("*.txt"), key=lambda path: int(path.stem))
        return {self._topic: {path.stem: path.read_bytes().count(b"\n") for path in files}}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[Lines]:
        return _between(start, end)

    def read(self, partition: Lines) -> Iterator[tuple[Any, ...]]:
        return _lines(self._folder, partition)

    def commit(self, end: dict[str, Any]) -> None:
        pass


class JournalBatch(DataSourceReader):
    def __init__(self, folder: str, first: dict[str, Any], end: dict[str, Any]) -> None:
        self._folder, self._first, self._end = folder, first, end

    def partitions(self) -> list[Lines]:
        return _between(self._first, self._end)

    def read(self, partition: Lines) -> Iterator[tuple[Any, ...]]:
        return _lines(self._folder, partition)


class JournalData(DataSource):
    @classmethod
    def name(cls) -> str:
        return "journal"

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> JournalStream:
        return JournalStream(self.options["folder"], self.options["topic"])

    def reader(self, schema: StructType) -> JournalBatch:
        first, end = json.loads(self.options["first"]), json.loads(self.options["end"])
        return JournalBatch(self.options["folder"], first, end)
