"""The resolved graph as plain, frozen data. `plan` prints it and `run` runs it, so both see the same."""

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

# How the files of the tables are looked after: how often, how large they shall be, and what must be kept.


TARGET_BYTES = 256 * 1024 * 1024
"""Large enough for a scan, small enough for one task to write. Delta's own 1 GiB would have files written again and
again, in every run, until they are that large."""


@dataclass(frozen=True)
class ExternalReaderPlan:
    name: str
    table: str
    lag_ms: int


@dataclass(frozen=True)
class MaintenancePlan:
    optimize_seconds: float | None = None
    """How often the runner does it; None: it does not."""
    target_bytes: int = TARGET_BYTES
    vacuum_seconds: float | None = None
    retain_ms: int | None = None
    """None: as long as a table remembers what was removed from it, which is 7 days unless its properties say more."""
    replay_ms: int = 0
    """However little is asked for: so far back everything can be read again."""
    external: tuple[ExternalReaderPlan, ...] = ()

    @property
    def scheduled(self) -> bool:
        return self.optimize_seconds is not None or self.vacuum_seconds is not None

    def lag_ms(self, table: str) -> int:
        """How far behind somebody outside may be who reads the table."""
        return max((one.lag_ms for one in self.external if one.table == table), default=0)


def maintenance_plan(maintenance: Maintenance) -> MaintenancePlan:
    optimize, vacuum = maintenance.optimize, maintenance.vacuum
    return MaintenancePlan(
        optimize_seconds=optimize.every if optimize else None,
        target_bytes=(optimize.target_size if optimize else None) or TARGET_BYTES,
        vacuum_seconds=vacuum.every if vacuum else None,
        retain_ms=_ms(vacuum.retain) if vacuum and vacuum.retain is not None else None,
        replay_ms=_ms(vacuum.replay_window) if vacuum and vacuum.replay_window is not None else 0,
        external=tuple(
            ExternalReaderPlan(one.name, one.table, _ms(one.lag)) for one in (vacuum.external_readers if vacuum else ())
        ),
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


# The resolved graph: plain, frozen data. `plan` prints it and `run` runs it, so both see the same.
#
# Nothing here imports Spark, reads a clock or talks to a broker.


@dataclass(frozen=True)
class Setting:
    """A value that Penstock chose, and why; shown by `plan`."""

    name: str
    value: str
    why: str


EXTRA_JARS = "penstock.extra.jars"
"""Not a conf of Spark: the session puts these jars beside its own."""


@dataclass(frozen=True)
class Input:
    """What the rows of a source carry besides their data."""

    raw: Mapping[str, str]
    """Canonical name -> column, where the rows are records as they came from Kafka; else empty."""
    coordinates: Literal["kafka", "carried", "file"]
    """Where `_source` comes from: its place in the topic, the `_source` of the upstream, or file and number."""
    origin: Literal["kafka", "file"] = "kafka"
    """What `_source` says in the end, however many tables it was carried through."""
    stable: bool = True
    """The same row has the same coordinates whenever its batch is read."""


@dataclass(frozen=True)
class TriggerPlan:
    kind: Literal["interval", "available-now", "once"]
    seconds: float | None = None
    why: str = ""
    sla: float | None = None
    """Seconds that data may be old, where the interval was taken from that."""


@dataclass(frozen=True)
class StreamPlan:
    """A function on streaming DataFrames, whose state Spark keeps in the checkpoint."""

    file: str
    function: str
    digest: str
    """Of the function's file: another text may make other rows."""
    inputs: Mapping[str, DeltaSource]
    """By the names of its arguments; the first is the table's own source."""
    output: Literal["append", "complete"]


@dataclass(frozen=True)
class TablePlan:
    name: str
    source: SourcePlan
    payload: Literal["string", "binary"]
    columns: Mapping[str, str]
    """Canonical name -> the user's name of what Kafka gives, in table order; empty if the source is not Kafka."""
    trigger: TriggerPlan
    uri: str
    """Where the table lies: an absolute local path, or a URI that Hadoop reads."""
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
    """None: the record as it came."""
    aggregate: AggregatePlan | None = None
    stream: StreamPlan | None = None
    sink: SinkPlan | None = None
    """Set: its rows, or what becomes of them, are sent there, and the table itself holds one row per batch."""
    write: WritePlan = field(default_factory=WritePlan)
    upstream: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    """What `run --once` finishes before this one: what it reads as it grows, and its lookups."""
    settings: tuple[Setting, ...] = ()
    max_failed_records: int = 100
    """Records of a batch on which a transform may raise; with more of them the definition is taken to be wrong."""
    subjects: Subjects = field(default_factory=dict)
    """Where its rows say of whom they are. A place can also be in the record that it decodes."""
    forget: ForgetPlan | None = None
    """Who shall be forgotten; None if no table of the project knows of a subject."""

    @property
    def topics(self) -> TopicsSource | None:
        """Its source, if that is topics."""
        return self.source.as_topics

    @property
    def versions(self) -> VersionsSource | None:
        """Its source, if that is read by the versions of a Delta table: another table, or a list of files."""
        return self.source.as_versions

    @property
    def delta(self) -> DeltaSource | None:
        """Its source, if that is a Delta table."""
        return self.source.as_delta

    @property
    def files(self) -> FilesSource | None:
        """Its source, if that is a folder of files."""
        return self.source.as_files

    @property
    def delta_sources(self) -> tuple[DeltaSource, ...]:
        """Every Delta table that it reads as it grows; with `stream` there may be several."""
        if self.stream is not None:
            return tuple(self.stream.inputs.values())
        return (self.delta,) if self.delta is not None else ()

    @property
    def grown(self) -> str:
        """Where the columns are kept that the records of the table brought."""
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
        """It has a quarantine."""
        if self.sink is not None:
            return self.sink.follows_changes
        if self.aggregate is not None:
            return self.aggregate.emit == "final"
        return self.isolates_where or (self.stages is not None and self.stages.may_reject)

    @property
    def isolates_where(self) -> bool:
        """Rows that it reads and on which its `where` raises go to its quarantine."""
        special = self.aggregate is not None or self.stream is not None or self.sink is not None
        return not special and self.source.condition is not None

    @property
    def staged(self) -> bool:
        """Its function tells good rows from rejected ones; without stages it may be a copy of rows that meet a
        condition."""
        return self.stages is not None or self.isolates_where


@dataclass(frozen=True)
class Plan:
    name: str
    root: str
    """The project folder."""
    lake: str
    master: str
    parallelism: int
    """Tasks that run at once: decides shuffle and snapshot partitions."""
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
    """Where it is kept who shall be forgotten; None if no table knows of a subject."""

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


YOURS = "yours, from penstock.yml"


# The hash of what decides the rows of a table: tells a batch that was begun under another definition.


def hashed(decides: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(decides, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]
