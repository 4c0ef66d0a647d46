"""What a table reads, resolved: each kind of source is a class, which answers what the rest of Penstock asks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

from pydantic import SecretStr

from penstock.plan.subjects import SubjectHoldings
from penstock.spec.schema import Struct

DELTA_MAX_FILES = 1000
"""Delta's own limit for a batch."""
NEW_FIELDS = {
    "add": "become columns",
    "rescue": "are kept as JSON in _rescued",
    "ignore": "are left out",
    "fail": "stop the table",
}
"""What happens to fields that the schema does not name."""


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

    def describe(self) -> str:
        login = f" as {self.username}, {self.mechanism}" if self.mechanism else ""
        return f"{self.name}: {self.bootstrap} ({self.protocol}{login})"


@dataclass(frozen=True)
class StartingPlan:
    """Where reading starts in a topic that has no position yet. Resolved to offsets once, at genesis."""

    kind: Literal["earliest", "latest", "offsets", "timestamp"]
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    timestamp_ms: int | None = None

    def describe(self) -> str:
        if self.timestamp_ms is not None:
            return _iso_time(self.timestamp_ms)
        if self.offsets:
            return "; ".join(f"{topic} at {_describe_offsets(offsets)}" for topic, offsets in self.offsets.items())
        return self.kind


@dataclass(frozen=True)
class VersionStartPlan:
    """Where reading a Delta table starts. Resolved to a version once, at genesis."""

    kind: Literal["earliest", "latest", "version", "timestamp"]
    version: int | None = None
    timestamp_ms: int | None = None


class SourcePlan:
    """What a table reads. Each kind of source is a subclass; callers use these methods and never ask for the class."""

    kind: ClassVar[str]
    """The name under which the kind is registered."""
    unit: ClassVar[str]
    """What the lag of a table is counted in: `record`, `commit` or `file`."""
    starting: StartingPlan | VersionStartPlan

    @property
    def name(self) -> str:
        """What is read, in words."""
        raise NotImplementedError

    def describe(self) -> Iterator[tuple[str, str]]:
        """What `plan` shows about it: names and texts."""
        raise NotImplementedError

    def subscription(self, table: str) -> dict[str, Any]:
        """What is read, as the ledger of the table records it."""
        raise NotImplementedError

    def decides(self) -> dict[str, Any]:
        """Its part of the table's definition: what decides the rows of a batch whose positions are fixed. So neither
        where a new source starts, nor addresses, which may move."""
        raise NotImplementedError

    @property
    def batch_limit(self) -> str:
        """The setting that limits a batch, as it is written; empty if there is none."""
        return ""

    @property
    def condition(self) -> str | None:
        """`from.where`."""
        return None

    @property
    def project_table(self) -> str | None:
        """The table of the project that is read."""
        return None

    @property
    def follows_changes(self) -> bool:
        """Whether inserts, updates and deletes are read, not only added rows."""
        return False

    @property
    def as_topics(self) -> TopicsSource | None:
        """Itself if its positions are offsets of topic partitions; else None."""
        return None

    @property
    def as_versions(self) -> VersionsSource | None:
        """Itself if its positions are versions of a Delta table; else None."""
        return None

    @property
    def as_delta(self) -> DeltaSource | None:
        return None

    @property
    def as_files(self) -> FilesSource | None:
        return None


class TopicsSource(SourcePlan):
    """Topics of a log whose partitions number their records: a batch has the columns of Spark's Kafka source, and a
    position is the text that Spark's Kafka source writes, `{"orders":{"0":17}}`. Exactly one of topics and pattern is
    set."""

    unit = "record"
    leaves_gaps: ClassVar[bool] = False
    """Whether offsets can have no record: one that the table lacks has to be looked up before it counts as lost."""
    topics: tuple[str, ...]
    pattern: str | None
    starting: StartingPlan
    max_per_trigger: int | None
    min_partitions: int | None

    @property
    def cluster_name(self) -> str:
        """Tables whose sources have the same kind and the same cluster name share a client."""
        raise NotImplementedError

    @property
    def address(self) -> str:
        """Where it is, for messages."""
        raise NotImplementedError

    @property
    def reads_committed(self) -> bool:
        """If not, a position may lie beyond what a reader of committed records sees while a transaction is open."""
        return True

    @property
    def name(self) -> str:
        return f"topics {', '.join(self.topics)}" if self.topics else f"topics like {self.pattern}"

    def describe(self) -> Iterator[tuple[str, str]]:
        if self.pattern is not None:
            yield "from", f"topics that match {self.pattern}"
        else:
            yield "from", ("topic " if len(self.topics) == 1 else "topics ") + ", ".join(self.topics)
        yield "cluster", self.address
        yield "starting", self.starting.describe()

    def subscription(self, table: str) -> dict[str, Any]:
        return {"pattern": self.pattern} if self.pattern is not None else {"topics": sorted(self.topics)}

    @property
    def batch_limit(self) -> str:
        return f"max_per_trigger: {self.max_per_trigger}" if self.max_per_trigger is not None else ""

    @property
    def as_topics(self) -> TopicsSource:
        return self


@dataclass(frozen=True)
class KafkaSource(TopicsSource):
    kind = "kafka"
    leaves_gaps = True
    cluster: Cluster
    topics: tuple[str, ...]
    pattern: str | None
    starting: StartingPlan
    max_per_trigger: int | None
    min_partitions: int | None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def cluster_name(self) -> str:
        return self.cluster.name

    @property
    def address(self) -> str:
        return self.cluster.bootstrap

    @property
    def reads_committed(self) -> bool:
        return self.options.get("isolation.level") != "read_uncommitted"

    def describe(self) -> Iterator[tuple[str, str]]:
        yield from (dict(super().describe()) | {"cluster": self.cluster.describe()}).items()

    def decides(self) -> dict[str, Any]:
        return {
            "cluster": self.cluster.name,
            "topics": sorted(self.topics),
            "pattern": self.pattern,
            "isolation": self.options["isolation.level"],
        }


@dataclass(frozen=True)
class VersionsSource(SourcePlan):
    """A Delta table whose versions are the positions: one read incrementally, or the list of a folder's files."""

    uri: str
    table: str | None
    """Its name if it is a table of the project."""
    where: str | None
    starting: VersionStartPlan
    max_files: int | None
    max_bytes: int | None
    options: Mapping[str, str] = field(default_factory=dict)
    """What happens to the reader when rows of the table change, as options of Delta."""
    changes: bool = False
    """Whether its change feed is read instead of its added rows."""
    merged: bool = False
    """Whether it holds tombstones, which no reader should see."""
    holds: SubjectHoldings = field(default_factory=SubjectHoldings)
    """The subjects of its rows, if it is a table of the project that declares them."""

    @property
    def label(self) -> str:
        """Its name in the project, else its URI."""
        return self.table or self.uri

    @property
    def as_versions(self) -> VersionsSource:
        return self


@dataclass(frozen=True)
class DeltaSource(VersionsSource):
    """A Delta table that is read incrementally."""

    kind = "delta"
    unit = "commit"

    @property
    def name(self) -> str:
        return f"changes of {self.label}" if self.changes else self.label

    def describe(self) -> Iterator[tuple[str, str]]:
        where = f" where {self.where}" if self.where else ""
        changes = "changes of " if self.changes else ""
        yield "from", (f"{changes}table {self.table}" if self.table else f"the Delta table {self.uri}") + where
        yield "starting", self.describe_start()

    def describe_start(self) -> str:
        starting, later_rows = self.starting, "what changes" if self.changes else "what is added"
        if starting.timestamp_ms is not None:
            return f"the first version at or after {_iso_time(starting.timestamp_ms)}"
        if starting.version is not None:
            return f"version {starting.version}"
        if starting.kind == "latest":
            return f"latest: {later_rows} from now on"
        return f"earliest: the whole table, then {later_rows}"

    def subscription(self, table: str) -> dict[str, Any]:
        return {"table": self.label}

    def decides(self) -> dict[str, Any]:
        return {"table": self.label, "where": self.where, "options": dict(self.options)}

    @property
    def batch_limit(self) -> str:
        if self.max_bytes is not None:
            return f"max_bytes: {self.max_bytes}"
        return f"max_files: {self.max_files or DELTA_MAX_FILES}"

    @property
    def condition(self) -> str | None:
        return self.where

    @property
    def project_table(self) -> str | None:
        return self.table

    @property
    def follows_changes(self) -> bool:
        return self.changes

    @property
    def as_delta(self) -> DeltaSource:
        return self


@dataclass(frozen=True, kw_only=True)
class FilesSource(VersionsSource):
    """A folder of files. The stream reads the manifest at `uri`, a small Delta table that lists them: each of its data
    files names at most `most` files, and a batch reads one data file."""

    kind = "files"
    unit = "file"
    folder: str
    """An absolute path, or a URI that Hadoop reads."""
    root: str
    """The project folder: files below it are named relative to it, so that a project can be moved."""
    format: Literal["json", "csv", "parquet"]
    pattern: str | None
    schema: Struct | None
    """None: inferred from the first files."""
    new_fields: Literal["add", "rescue", "ignore", "fail"]
    header: bool
    documents: bool
    """Whether a JSON file is one document, an object or a list of objects, over any number of lines."""
    most: int
    reader: Mapping[str, str]
    """Options of the format."""
    stored: str
    """Where an inferred or extended schema is kept."""
    reads: str
    """Where it is recorded how each batch reads its files."""

    @property
    def by_line(self) -> bool:
        """Whether a record is a line, or a document."""
        return self.format != "parquet"

    @property
    def name(self) -> str:
        return f"files of {self.folder}"

    def describe(self) -> Iterator[tuple[str, str]]:
        pattern = f", named {self.pattern}" if self.pattern else ""
        options = "".join(f", {name} {value}" for name, value in self.reader.items())
        header = ", each with a header" if self.header else ""
        documents = ", each one document" if self.documents else ""
        yield "from", f"{self.format} files in {self.folder}{pattern}{header}{documents}{options}"
        yield "listed in", f"{self.uri}, once by path"
        latest = self.starting.kind == "latest"
        yield "starting", "latest: files that come from now on" if latest else "earliest: every file"
        inferred_schema = f"inferred once, kept in {self.stored}"
        yield "schema", self.schema.columns().replace("`", "") if self.schema else inferred_schema
        yield "new fields", NEW_FIELDS[self.new_fields]

    def subscription(self, table: str) -> dict[str, Any]:
        """The folder is left out: files of another one are listed like the rest, and read after them."""
        return {"files": table}

    def decides(self) -> dict[str, Any]:
        return {
            "files": {
                "format": self.format,
                "header": self.header,
                "documents": self.documents,
                "schema": self.schema.columns() if self.schema else None,
                "new_fields": self.new_fields,
                "options": dict(self.reader),
            }
        }

    @property
    def as_files(self) -> FilesSource:
        return self


def _iso_time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC).isoformat().replace("+00:00", "Z")


def _describe_offsets(offsets: Mapping[int, int]) -> str:
    words = {-2: "earliest", -1: "latest"}
    return ", ".join(f"{partition}: {words.get(offset, offset)}" for partition, offset in offsets.items())
