"""The resolved graph: plain, frozen data. `plan` prints it and `run` runs it, so both see the same.

Nothing here imports Spark, reads a clock or talks to a broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import SecretStr

from penstock.plan.maintenance import MaintenancePlan
from penstock.plan.stages import AggregatePlan, Stages, WritePlan
from penstock.plan.subjects import ForgetPlan, Holds, Subjects
from penstock.plan.target import ChangeSink

EXTRA_JARS = "penstock.extra.jars"
"""Not a conf of Spark: the session puts these jars beside its own."""


@dataclass(frozen=True)
class Setting:
    """A value that Penstock chose, and why; shown by `plan`."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class Cluster:
    """One Kafka cluster. `options` are Java client properties without secrets."""

    name: str
    bootstrap: str
    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    mechanism: str | None = None
    username: str | None = None
    password: SecretStr | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: SecretStr | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Starting:
    """Where a topic that has no position yet begins. Resolved to offsets once, at genesis."""

    kind: Literal["earliest", "latest", "offsets", "timestamp"]
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    timestamp_ms: int | None = None


@dataclass(frozen=True)
class KafkaSource:
    """Exactly one of topics and pattern is set."""

    cluster: Cluster
    topics: tuple[str, ...]
    pattern: str | None
    starting: Starting
    max_per_trigger: int | None
    min_partitions: int | None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class VersionStart:
    """Where a reader of a Delta table begins. Resolved to a version once, at genesis."""

    kind: Literal["earliest", "latest", "version", "timestamp"]
    version: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True)
class DeltaSource:
    """A Delta table that is read as it grows."""

    uri: str
    table: str | None
    """Its name if it is a table of the project."""
    where: str | None
    starting: VersionStart
    max_files: int | None
    max_bytes: int | None
    options: Mapping[str, str] = field(default_factory=dict)
    """What a change of its rows does to the reader, in Delta's words."""
    changes: bool = False
    """Its change feed is read, not what is added to it."""
    merged: bool = False
    """It holds tombstones, which nobody else shall see."""
    holds: Holds = field(default_factory=Holds)
    """Of whom its rows are, if it is a table of the project that says so."""


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
class Trigger:
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
class SinkPlan:
    """Where the rows of a sink go, and what becomes key, value and headers: SQL expressions over a row."""

    cluster: Cluster
    topic: str
    key: str | None = None
    value: str | None = None
    """None: all columns as a JSON object."""
    headers: Mapping[str, str] = field(default_factory=dict)
    coordinates: tuple[tuple[str, ...], ...] | None = None
    """The columns, as paths, that say from which topic, partition and offset a row came, if they tell rows apart."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Properties of the producer, without those of the login."""

    @property
    def said(self) -> str:
        return f"topic {self.topic}"


@dataclass(frozen=True)
class TablePlan:
    name: str
    source: KafkaSource | DeltaSource
    payload: Literal["string", "binary"]
    columns: Mapping[str, str]
    """Canonical name -> the user's name of what Kafka gives, in table order; empty if the source is not Kafka."""
    trigger: Trigger
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
    sink: SinkPlan | ChangeSink | None = None
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
    def grown(self) -> str:
        """Where the columns are kept that the records of the table brought."""
        return f"{self.checkpoints.removesuffix(f'/checkpoints/{self.name}')}/schemas/{self.name}.json"

    @property
    def may_reject(self) -> bool:
        """It has a quarantine."""
        if isinstance(self.sink, ChangeSink):
            return True
        if self.aggregate is not None:
            return self.aggregate.emit == "final"
        return self.isolates_where or (self.stages is not None and self.stages.may_reject)

    @property
    def isolates_where(self) -> bool:
        """Rows that it reads and on which its `where` raises go to its quarantine."""
        special = self.aggregate is not None or self.stream is not None or self.sink is not None
        return not special and isinstance(self.source, DeltaSource) and self.source.where is not None

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
