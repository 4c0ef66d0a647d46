"""The resolved graph as plain, frozen data. `plan` prints it and `run` runs it, so both see the same.

Nothing here imports Spark, reads a clock or talks to a broker.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import SecretStr

from penstock.plan.sources import DeltaSource, FilesSource, SourcePlan, TopicsSource, VersionsSource
from penstock.plan.stages import AggregatePlan, Stages, WritePlan
from penstock.plan.subjects import ForgetPlan, Subjects
from penstock.plan.targets import SinkPlan
from penstock.spec.maintenance import Maintenance

TARGET_BYTES = 256 * 1024 * 1024
"""Large enough for a scan, small enough for one task to write. With Delta's own 1 GiB, files would be rewritten
in every run until they are that large."""


@dataclass(frozen=True)
class ExternalReaderPlan:
    name: str
    table: str
    lag_ms: int


@dataclass(frozen=True)
class MaintenancePlan:
    """How often the files of tables are maintained, how large they should be, and what must be kept."""

    optimize_seconds: float | None = None
    """How often the runner optimizes; None: never."""
    target_bytes: int = TARGET_BYTES
    vacuum_seconds: float | None = None
    retain_ms: int | None = None
    """None: as long as the table itself retains removed files, which is 7 days unless its properties say more."""
    replay_ms: int = 0
    """Everything can be read again this far back, even if a shorter retention is set."""
    external: tuple[ExternalReaderPlan, ...] = ()

    @property
    def scheduled(self) -> bool:
        return self.optimize_seconds is not None or self.vacuum_seconds is not None

    def lag_ms(self, table: str) -> int:
        """How far behind an external reader of the table may be."""
        return max((reader.lag_ms for reader in self.external if reader.table == table), default=0)


def maintenance_plan(maintenance: Maintenance) -> MaintenancePlan:
    optimize, vacuum = maintenance.optimize, maintenance.vacuum
    return MaintenancePlan(
        optimize_seconds=optimize.every if optimize else None,
        target_bytes=(optimize.target_size if optimize else None) or TARGET_BYTES,
        vacuum_seconds=vacuum.every if vacuum else None,
        retain_ms=_ms(vacuum.retain) if vacuum and vacuum.retain is not None else None,
        replay_ms=_ms(vacuum.replay_window) if vacuum and vacuum.replay_window is not None else 0,
        external=tuple(
            ExternalReaderPlan(reader.name, reader.table, _ms(reader.lag))
            for reader in (vacuum.external_readers if vacuum else ())
        ),
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


@dataclass(frozen=True)
class Setting:
    """A value that Penstock chose, and why; shown by `plan`."""

    name: str
    value: str
    why: str


EXTRA_JARS = "penstock.extra.jars"
"""Not a Spark conf: the session adds these jars to its own."""


@dataclass(frozen=True)
class Input:
    """What the rows of a source carry besides their data."""

    raw: Mapping[str, str]
    """Canonical name -> column, if the rows are raw records: from Kafka, or lines of files; else empty."""
    coordinates: Literal["kafka", "carried", "file"]
    """Where `_source` comes from: the position in the topic, the upstream table's `_source`, or file and number."""
    origin: Literal["kafka", "file"] = "kafka"
    """What `_source` refers to in the end, however many tables it was carried through."""
    stable: bool = True
    """A row has the same coordinates every time its batch is read."""


@dataclass(frozen=True)
class TriggerPlan:
    kind: Literal["interval", "available-now", "once"]
    seconds: float | None = None
    why: str = ""
    sla: float | None = None
    """Seconds that data may be old, if the interval was derived from an SLA."""


@dataclass(frozen=True)
class StreamPlan:
    """A function on streaming DataFrames, whose state Spark keeps in the checkpoint."""

    file: str
    function: str
    digest: str
    """Hash of the function's file: a changed file may produce other rows."""
    inputs: Mapping[str, DeltaSource]
    """By argument name; the first is the table's own source."""
    output: Literal["append", "complete"]


@dataclass(frozen=True)
class TablePlan:
    name: str
    source: SourcePlan
    payload: Literal["string", "binary"]
    columns: Mapping[str, str]
    """Canonical name -> the user's name of each Kafka column, in table order; empty if the source is not Kafka."""
    trigger: TriggerPlan
    uri: str
    """Where the table is: an absolute local path, or a URI that Hadoop reads."""
    checkpoints: str
    """Parent of the checkpoints, one folder per generation."""
    properties: Mapping[str, str]
    """Delta table properties given at creation."""
    definition: str
    """Hash of what decides the rows: source, columns, stages. Not of rates and triggers."""
    origin: str
    """file:line of the definition."""
    input: Input = Input({}, "kafka")
    stages: Stages | None = None
    """None: records are kept as they are."""
    aggregate: AggregatePlan | None = None
    stream: StreamPlan | None = None
    sink: SinkPlan | None = None
    """If set, its rows or their changes are sent there, and the table itself holds one row per batch."""
    write: WritePlan = field(default_factory=WritePlan)
    upstream: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    """What `run --once` finishes before this one: the tables it reads incrementally, and its lookups."""
    settings: tuple[Setting, ...] = ()
    max_failed_records: int = 100
    """How many records of a batch a transform may fail on; with more, the definition itself is considered wrong."""
    subjects: Subjects = field(default_factory=dict)
    """Where its rows identify their subjects. A place can also be in the record that it decodes."""
    forget: ForgetPlan | None = None
    """Where forgotten subjects are recorded; None if no table of the project declares subjects."""

    @property
    def topics(self) -> TopicsSource | None:
        """Its source, if it reads topics."""
        return self.source.as_topics

    @property
    def versions(self) -> VersionsSource | None:
        """Its source, if its positions are versions of a Delta table: another table, or a list of files."""
        return self.source.as_versions

    @property
    def delta(self) -> DeltaSource | None:
        """Its source, if it is a Delta table."""
        return self.source.as_delta

    @property
    def files(self) -> FilesSource | None:
        """Its source, if it is a folder of files."""
        return self.source.as_files

    @property
    def delta_sources(self) -> tuple[DeltaSource, ...]:
        """Every Delta table that it reads incrementally; with `stream` there may be several."""
        if self.stream is not None:
            return tuple(self.stream.inputs.values())
        return (self.delta,) if self.delta is not None else ()

    @property
    def added_columns_path(self) -> str:
        """Where the columns are kept that new fields of the records have added."""
        return f"{self.checkpoints.removesuffix(f'/checkpoints/{self.name}')}/schemas/{self.name}.json"

    @property
    def kind(self) -> Literal["landing", "staged", "files", "aggregate", "windows", "stream", "sink"]:
        """The name of its kind of table."""
        if self.stream is not None:
            return "stream"
        if self.sink is not None:
            return "sink"
        if self.files is not None:
            return "files"
        if self.aggregate is not None:
            return "windows" if self.aggregate.emit == "final" else "aggregate"
        return "staged" if self.staged else "landing"

    @property
    def may_reject(self) -> bool:
        """Whether it has a quarantine."""
        if self.sink is not None:
            return self.sink.follows_changes
        if self.aggregate is not None:
            return self.aggregate.emit == "final"
        return self.isolates_where or (self.stages is not None and self.stages.may_reject)

    @property
    def isolates_where(self) -> bool:
        """Whether rows on which its `where` raises an error go to its quarantine."""
        special = self.aggregate is not None or self.stream is not None or self.sink is not None
        return not special and self.source.condition is not None

    @property
    def staged(self) -> bool:
        """Whether its batch function separates good rows from rejected ones; without stages it may be a copy of rows
        that meet a condition."""
        return self.stages is not None or self.isolates_where


@dataclass(frozen=True)
class Plan:
    name: str
    root: str
    """The project folder."""
    lake: str
    master: str
    parallelism: int
    """Tasks that run at once: decides the number of shuffle and snapshot partitions."""
    conf: Mapping[str, str]
    """Every Spark conf, Penstock's choices with the user's on top."""
    settings: tuple[Setting, ...]
    """Session-wide choices and their reasons."""
    tables: tuple[TablePlan, ...]
    """Upstream before downstream."""
    secret_conf: Mapping[str, SecretStr] = field(default_factory=dict)
    """Confs given by reference (`${env:…}`, `${file:…}`): handed to the session, never printed."""
    maintenance: MaintenancePlan = field(default_factory=MaintenancePlan)
    forget: ForgetPlan | None = None
    """Where forgotten subjects are recorded; None if no table declares subjects."""

    @property
    def local(self) -> bool:
        """A lake on a local folder: Delta needs our locks there."""
        return "://" not in self.lake

    @property
    def system(self) -> str:
        """Where Penstock keeps its own files in the lake."""
        return f"{self.lake}/_penstock"

    def table(self, name: str) -> TablePlan | None:
        return next((table for table in self.tables if table.name == name), None)


USER_SETTING = "yours, from penstock.yml"


def definition_hash(definition: Mapping[str, Any]) -> str:
    """The hash of what decides the rows of a table: it detects a batch that was started under another definition."""
    return hashlib.sha256(json.dumps(definition, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]
