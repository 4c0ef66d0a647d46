"""Where a sink that follows changes sends them: addresses, logins, and the columns that name a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pydantic import SecretStr

if TYPE_CHECKING:
    from penstock.plan.model import Cluster

POSTGRES = "jdbc:postgresql:"


@dataclass(frozen=True)
class KafkaTarget:
    cluster: Cluster
    topic: str
    value: str | None = None
    """An SQL expression over a row; None: its columns as a JSON object."""
    headers: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    """Properties of the producer, without those of the login."""

    @property
    def said(self) -> str:
        return f"topic {self.topic}"

    @property
    def promise(self) -> str:
        return (
            "each change at least once, those of one key in their order; the header penstock-id is the same each time"
        )


@dataclass(frozen=True)
class JdbcTarget:
    url: str
    table: str
    user: str | None = None
    password: SecretStr | None = None
    create: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    """Properties of the driver."""

    @property
    def said(self) -> str:
        return f"table {self.table} of {self.url}"

    @property
    def promise(self) -> str:
        return "exactly once: the position is kept in the database, in the same transaction as the rows"


@dataclass(frozen=True)
class SearchTarget:
    url: str
    index: str
    user: str | None = None
    password: SecretStr | None = None
    api_key: SecretStr | None = None

    @property
    def said(self) -> str:
        return f"index {self.index} of {self.url}"

    @property
    def promise(self) -> str:
        return "each change at least once; its version is that of the commit, so that a repeat changes nothing"


@dataclass(frozen=True)
class RedisTarget:
    url: str
    prefix: str
    form: Literal["json", "hash"] = "json"
    ttl_ms: int | None = None
    user: str | None = None
    password: SecretStr | None = None

    @property
    def said(self) -> str:
        return f"keys {self.prefix}… of {self.url}"

    @property
    def promise(self) -> str:
        return "each change at least once, those of one key in their order; a repeat changes nothing"


Target = KafkaTarget | JdbcTarget | SearchTarget | RedisTarget


@dataclass(frozen=True)
class ChangeSink:
    """What becomes of the rows of a table, followed into another system."""

    target: Target
    keys: tuple[str, ...]
    """The columns that name a row."""
    columns: tuple[str, ...] = ()
    """Those that are sent; empty: all but what Penstock itself adds."""

    @property
    def said(self) -> str:
        return self.target.said
