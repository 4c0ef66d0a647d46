"""Topics as folders of text files: `orders/0.txt` is partition 0 of the topic orders, and a line is a record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from penstock.errors import Transient
from penstock.ledger.position import Offsets, TopicInfo
from penstock.plan.model import Setting
from penstock.plan.sources import StartingPlan, TopicsSource
from penstock.sources.topics import TopicsKind
from penstock.spec.base_model import SourceFrom

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class JournalFrom(SourceFrom):
    """What a user writes: `from: {journal: orders, folder: /data/journals}`."""

    journal: str = Field(min_length=1)
    folder: str = Field(min_length=1)

    kind: ClassVar[str] = "journal"
    of_topics: ClassVar[bool] = True
    shape: ClassVar[str] = "from: {journal: orders, folder: journals}"


@dataclass(frozen=True)
class JournalSource(TopicsSource):
    kind = "journal"
    folder: str
    topics: tuple[str, ...]
    pattern: str | None
    starting: StartingPlan
    max_per_trigger: int | None = None
    min_partitions: int | None = None

    @property
    def cluster_name(self) -> str:
        return self.folder

    @property
    def address(self) -> str:
        return self.folder

    def decides(self) -> dict[str, Any]:
        return {"journal": sorted(self.topics)}


class JournalClient:
    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def names(self) -> list[str]:
        if not self._folder.is_dir():
            raise Transient(f"the journals in {self._folder} cannot be reached", hint="mount the folder")
        return sorted(path.name for path in self._folder.iterdir() if path.is_dir())

    def topics(self, source: TopicsSource) -> dict[str, TopicInfo]:
        return self.describe(source.topics)

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        return {
            name: TopicInfo(f"{name}:{(self._folder / name).stat().st_ino}", tuple(sorted(self._partitions(name))))
            for name in set(names) & set(self.names())
        }

    def earliest(self, topics: Mapping[str, TopicInfo]) -> Offsets:
        return {name: dict.fromkeys(topic.partitions, 0) for name, topic in topics.items()}

    def latest(self, topics: Mapping[str, TopicInfo], *, committed: bool = True) -> Offsets:
        return {
            name: {part: len(self.lines(name, part)) for part in topic.partitions} for name, topic in topics.items()
        }

    def at_time(self, topics: Mapping[str, TopicInfo], timestamp_ms: int) -> Offsets:
        return self.latest(topics)

    def newest_times(self, topics: Mapping[str, TopicInfo]) -> dict[str, dict[int, int]]:
        return {}

    def first_times(self, source: TopicsSource, at: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        return {}

    def settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        return {}

    def lines(self, topic: str, partition: int) -> list[bytes]:
        """Those that are written to their end."""
        return (self._folder / topic / f"{partition}.txt").read_bytes().split(b"\n")[:-1]

    def _partitions(self, name: str) -> set[int]:
        return {int(path.stem) for path in (self._folder / name).glob("*.txt")}


class JournalKind(TopicsKind):
    model = JournalFrom

    def plan(
        self, written: JournalFrom, *, table: str, root: Path, lake: str
    ) -> tuple[JournalSource, tuple[Setting, ...]]:
        folder = str((root / written.folder).absolute())
        return JournalSource(folder, (written.journal,), None, StartingPlan("earliest")), ()

    def client(self, source: TopicsSource, *, timeout: float) -> JournalClient:
        return JournalClient(source.address)

    def stream(self, spark: SparkSession, source: TopicsSource, table: str) -> DataFrame:
        return self._reader(spark, spark.readStream, source).load()

    def records(self, spark: SparkSession, source: TopicsSource, table: str, first: Offsets, end: Offsets) -> DataFrame:
        reader = self._reader(spark, spark.read, source)
        return reader.option("first", json.dumps(first)).option("end", json.dumps(end)).load()

    def _reader(self, spark: SparkSession, reader: Any, source: TopicsSource) -> Any:
        from journal_kinds.spark_source import JournalData

        spark.dataSource.register(JournalData)
        return reader.format("journal").option("folder", source.address).option("topic", source.topics[0])
