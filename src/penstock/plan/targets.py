"""Where sinks send, resolved: each kind of target is a class, which answers what the rest of Penstock asks of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from penstock.plan.sources import Cluster
from penstock.spec.quantity import duration_text

POSTGRES = "jdbc:postgresql:"
_URL_OPTION = re.compile(r"(?:[?&;]|:(?=\w+=))(\w+)(?:=([^&;]*))?(?=[&;]|$)")
_TLS_MODES = {"require", "verify-ca", "verify-full", "required", "verify_ca", "verify_identity", "trust"}
_CLEAR_MODES = {"disable", "disabled"}


class TargetPlan:
    """A system that changes of rows are sent to. Each kind of target is a subclass."""

    kind: ClassVar[str]
    """The name under which the kind is registered."""

    @property
    def address(self) -> str | None:
        """None for a topic: its cluster has the address."""
        return None

    @property
    def name(self) -> str:
        """Where the rows go, in words."""
        raise NotImplementedError

    @property
    def promise(self) -> str:
        """How often a change arrives, in words."""
        raise NotImplementedError

    def describe(self, keys: str, columns: str) -> Iterator[tuple[str, str]]:
        """What `plan` shows about it; `keys` and `columns` say what is sent."""
        yield "keys", keys
        yield "columns", columns

    def decides(self) -> dict[str, Any]:
        """Its part of the definition of the sink: not the address, which may move."""
        raise NotImplementedError

    @property
    def has_secret(self) -> bool:
        return False

    @property
    def encrypted(self) -> bool | None:
        """None: the server decides."""
        return None

    @property
    def encrypt_by(self) -> str:
        """What to write in `to`, so that the connection is encrypted."""
        return "what its driver calls TLS"

    @property
    def jars(self) -> tuple[str, ...]:
        """Sets of jars that a run loads for it."""
        return ()

    @property
    def topic_sent_to(self) -> tuple[Cluster, str] | None:
        """For Kafka: the cluster and the topic."""
        return None


class ServerTarget(TargetPlan):
    """A server with an address of its own."""

    url: str
    user: str | None
    password: SecretStr | None

    @property
    def address(self) -> str:
        return self.url

    def describe(self, keys: str, columns: str) -> Iterator[tuple[str, str]]:
        if self.user is not None:
            yield "as", self.user
        yield from super().describe(keys, columns)

    @property
    def has_secret(self) -> bool:
        return self.password is not None


@dataclass(frozen=True)
class KafkaTarget(TargetPlan):
    kind = "kafka"
    promise = "each change at least once, those of one key in their order; the header penstock-id is the same each time"
    cluster: Cluster
    topic: str
    value: str | None = None
    """An SQL expression over a row; None: its columns as a JSON object."""
    headers: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    """Properties of the producer, without those for the login."""

    @property
    def name(self) -> str:
        return f"topic {self.topic}"

    def describe(self, keys: str, columns: str) -> Iterator[tuple[str, str]]:
        yield "cluster", self.cluster.describe()
        yield "keys", keys
        yield "value", self.value or f"columns as a JSON object: {columns}; of a delete none (a tombstone)"
        yield from _describe_headers(self.headers)

    def decides(self) -> dict[str, Any]:
        return _record_definition(self.cluster, self.topic, self.value, self.headers)

    @property
    def topic_sent_to(self) -> tuple[Cluster, str]:
        return self.cluster, self.topic


@dataclass(frozen=True)
class JdbcTarget(ServerTarget):
    kind = "jdbc"
    promise = "exactly once: the position is kept in the database, in the same transaction as the rows"
    url: str
    table: str
    user: str | None = None
    password: SecretStr | None = None
    create: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    """Properties of the driver."""

    @property
    def name(self) -> str:
        return f"table {self.table} of {self.url}"

    def describe(self, keys: str, columns: str) -> Iterator[tuple[str, str]]:
        yield from super().describe(keys, columns)
        yield "if missing", "the table is made" if self.create else "the sink stops"

    def decides(self) -> dict[str, Any]:
        return {"database table": self.table}

    @property
    def encrypted(self) -> bool | None:
        """By the names that drivers give their options. If an option is given twice, in the address and beside it, the
        driver decides which counts: then each must demand TLS."""
        if modes := self._option_values("sslmode"):  # it counts more than those below
            return True if modes <= _TLS_MODES else False if modes <= _CLEAR_MODES else None
        if self._option_values("usessl") == {"false"}:
            return False
        switches = self._option_values("ssl", "usessl", "sslconnection")
        return True if switches and switches <= {"true", ""} else None

    def _option_values(self, *names: str) -> set[str]:
        """In lower case. The driver of PostgreSQL knows the names in lower case only, others in any."""
        options = [*_URL_OPTION.findall(self.url), *self.options.items()]
        exact = self.url.startswith(POSTGRES)
        return {unquote(value).lower() for name, value in options if (name if exact else name.lower()) in names}

    @property
    def encrypt_by(self) -> str:
        return "options: {sslmode: verify-full}" if self.url.startswith(POSTGRES) else super().encrypt_by

    @property
    def jars(self) -> tuple[str, ...]:
        return ("postgres",) if self.url.startswith(POSTGRES) else ()


@dataclass(frozen=True)
class SearchTarget(ServerTarget):
    kind = "search"
    promise = "each change at least once; its version is that of the commit, so that a repeat changes nothing"
    encrypt_by = "https://…"
    url: str
    index: str
    user: str | None = None
    password: SecretStr | None = None
    api_key: SecretStr | None = None

    @property
    def name(self) -> str:
        return f"index {self.index} of {self.url}"

    def decides(self) -> dict[str, Any]:
        return {"index": self.index}

    @property
    def has_secret(self) -> bool:
        return self.api_key is not None or super().has_secret

    @property
    def encrypted(self) -> bool:
        return urlsplit(self.url).scheme == "https"


@dataclass(frozen=True)
class RedisTarget(ServerTarget):
    kind = "redis"
    promise = "each change at least once, those of one key in their order; a repeat changes nothing"
    encrypt_by = "rediss://…"
    url: str
    prefix: str
    form: Literal["json", "hash"] = "json"
    ttl_ms: int | None = None
    user: str | None = None
    password: SecretStr | None = None

    @property
    def name(self) -> str:
        return f"keys {self.prefix}… of {self.url}"

    def describe(self, keys: str, columns: str) -> Iterator[tuple[str, str]]:
        yield from super().describe(keys, columns)
        ttl = f", expires after {duration_text(self.ttl_ms / 1000)}" if self.ttl_ms is not None else ""
        yield "value", {"json": "a JSON object", "hash": "a hash, a field per column"}[self.form] + ttl

    def decides(self) -> dict[str, Any]:
        return {"prefix": self.prefix, "as": self.form}

    @property
    def encrypted(self) -> bool:
        return urlsplit(self.url).scheme == "rediss"


class SinkPlan:
    """What a sink sends: rows as they are added, or the changes of rows."""

    follows_changes: ClassVar[bool]

    @property
    def key_columns(self) -> tuple[str, ...]:
        """If changes are sent: the columns that identify a row."""
        return ()

    @property
    def sent_columns(self) -> tuple[str, ...]:
        """If changes are sent: the columns of a row; empty: all but those that Penstock itself adds."""
        return ()

    @property
    def name(self) -> str:
        """Where it sends, in words."""
        raise NotImplementedError

    def describe(self) -> Iterator[tuple[str, str]]:
        """What `plan` shows about it."""
        raise NotImplementedError

    def decides(self) -> dict[str, Any]:
        """Its part of the definition of the sink."""
        raise NotImplementedError

    @property
    def topic_sent_to(self) -> tuple[Cluster, str] | None:
        raise NotImplementedError

    @property
    def system(self) -> TargetPlan | None:
        """The target, if changes are sent; else None."""
        return None


@dataclass(frozen=True)
class RowSink(SinkPlan):
    """Sends rows to a topic; key, value and headers are SQL expressions over a row."""

    follows_changes = False
    cluster: Cluster
    topic: str
    key: str | None = None
    value: str | None = None
    """None: all columns as a JSON object."""
    headers: Mapping[str, str] = field(default_factory=dict)
    coordinates: tuple[tuple[str, ...], ...] | None = None
    """The columns, as paths, of a row's topic, partition and offset, if these identify the row."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Properties of the producer, without those for the login."""

    @property
    def name(self) -> str:
        return f"topic {self.topic}"

    def describe(self) -> Iterator[tuple[str, str]]:
        yield "to", self.name
        yield "cluster", self.cluster.describe()
        yield "key", self.key or "none"
        yield "value", self.value or "all columns but _source, as a JSON object"
        yield from _describe_headers(self.headers)
        basis = "place of its record in Kafka" if self.coordinates else "file of the table and what is sent"
        yield "promise", f"each row at least once; the header penstock-id, made of the {basis}, is the same each time"

    def decides(self) -> dict[str, Any]:
        return _record_definition(self.cluster, self.topic, self.value, self.headers) | {"key": self.key}

    @property
    def topic_sent_to(self) -> tuple[Cluster, str]:
        return self.cluster, self.topic


@dataclass(frozen=True)
class ChangeSink(SinkPlan):
    """Sends the changes of a table's rows to another system."""

    follows_changes = True
    target: TargetPlan
    keys: tuple[str, ...]
    columns: tuple[str, ...] = ()

    @property
    def key_columns(self) -> tuple[str, ...]:
        return self.keys

    @property
    def sent_columns(self) -> tuple[str, ...]:
        return self.columns

    @property
    def name(self) -> str:
        return self.target.name

    def describe(self) -> Iterator[tuple[str, str]]:
        yield "to", self.name
        columns = ", ".join(self.columns) or "all but those that Penstock adds"
        yield from self.target.describe(", ".join(self.keys), columns)
        yield "promise", self.target.promise
        yield "rejected", "what cannot be sent goes to its quarantine, with the reason"

    def decides(self) -> dict[str, Any]:
        return {"keys": self.keys, "columns": self.columns, **self.target.decides()}

    @property
    def topic_sent_to(self) -> tuple[Cluster, str] | None:
        return self.target.topic_sent_to

    @property
    def system(self) -> TargetPlan:
        return self.target


def _record_definition(cluster: Cluster, topic: str, value: str | None, headers: Mapping[str, str]) -> dict[str, Any]:
    return {"cluster": cluster.name, "topic": topic, "value": value, "headers": dict(headers)}


def _describe_headers(headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    yield from (("header", f"{name}: {expression}") for name, expression in headers.items())
