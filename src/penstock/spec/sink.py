"""A sink: the rows of a table, or its changes, sent to Kafka, a database, a search index or Redis."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    SerializeAsAny,
    ValidationInfo,
    model_validator,
)

from penstock.spec.base_model import (
    Finding,
    FindingsError,
    SpecModel,
    caller,
    choice,
    did_you_mean,
    quote_value,
    refuse,
    text_values,
    wrong,
)
from penstock.spec.delta_source import ChangesFrom, DeltaFrom, TableFrom
from penstock.spec.kafka_cluster import Secret, producer_options
from penstock.spec.kafka_source import topic_names
from penstock.spec.plugins import SINKS, plugin_names, read_kind
from penstock.spec.quantity import Duration
from penstock.spec.source import source_of
from penstock.spec.table import Trigger, unique_name_findings

_LOGIN = re.compile(r"//[^/?#]*@|[?&;](user|username|password|pwd)=", re.IGNORECASE)
_INDEX = re.compile(r"[^A-Z\\/*?\"<>| ,#:_+-][^A-Z\\/*?\"<>| ,#:]*")
_POSTGRES = re.compile(r"(?:jdbc:)?(?:postgres(?:ql)?://)?([^\s/@]+/[^\s/@]+)")
_LOGIN_HINT = "write user: and password: beside it, each by reference: ${env:NAME}"


def _topic(value: Any) -> str:
    if isinstance(value, list | tuple | dict):
        raise wrong(f"a sink sends to one topic, not to {quote_value(value)}", "make a sink for each topic")
    return topic_names([value], single=True)[0]


def _address_without_login(value: Any, system: str) -> str:
    """Addresses are printed by `plan` and in errors; one with a login in it is refused, and not even shown here."""
    if isinstance(value, str) and _LOGIN.search(value):
        raise wrong(f"the address of {system} has a login in it", _LOGIN_HINT)
    if not isinstance(value, str) or not value:
        raise wrong(f"{quote_value(value)} is not the address of {system}")
    return str(value)


def _jdbc(value: Any) -> str:
    address = _address_without_login(value, "a database")
    if not re.match(r"jdbc:[a-z0-9]+:\S", address, re.IGNORECASE):
        hint = "write jdbc: as its driver does: jdbc:mysql://host:3306/shop; PostgreSQL is postgres: host:5432/shop"
        raise wrong(f"{quote_value(value)} is not the address of a database", hint)
    return address


def _table(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[^\s.\x00]+(\.[^\s.\x00]+)?", value):
        raise wrong(
            f"{quote_value(value)} is not the name of a table",
            "write table: customers, or with its schema: public.customers",
        )
    return value


def _properties(value: Any) -> dict[str, str]:
    options = text_values(value, "options")
    refuse(
        Finding((name,), f"'{name}' is not an option", _LOGIN_HINT, at_key=True)
        for name in options
        if name.casefold() in ("user", "username", "password", "pwd")
    )
    return options


def _url(value: Any, system: str, schemes: tuple[str, ...], hint: str) -> str:
    address = _address_without_login(value, system)
    parts = urlsplit(address)
    try:
        fits = parts.scheme in schemes and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fits = False
    if not fits or parts.query or parts.fragment:
        raise wrong(f"{quote_value(value)} is not the address of {system}", hint)
    return address.rstrip("/")


def _search(value: Any) -> str:
    return _url(value, "a search index", ("http", "https"), "write search: http://127.0.0.1:9200")


def _index(value: Any) -> str:
    if not isinstance(value, str) or not _INDEX.fullmatch(value) or value in (".", ".."):
        raise wrong(
            f"{quote_value(value)} is not the name of an index", "write small letters, digits, - and _: customers"
        )
    return value


def _redis(value: Any) -> str:
    hint = "write redis: redis://127.0.0.1:6379/0, with TLS rediss://…"
    address = _url(value, "a Redis", ("redis", "rediss"), hint)
    if not re.fullmatch(r"(/\d*)?", urlsplit(address).path):
        raise wrong(f"{quote_value(value)} is not the address of a Redis", hint)
    return address


class SinkTo(SpecModel):
    """What a user writes under `to`; each kind of target has its own keys."""

    kind: ClassVar[str]
    """The key that names it. A plugin is registered under it."""


class KafkaTo(SinkTo):
    """A topic of a cluster; without `cluster` the one under the top-level `kafka:`."""

    kafka: Annotated[str, BeforeValidator(_topic)] = Field(examples=["alerts"])
    cluster: str | None = Field(default=None, examples=["eu"])
    options: Annotated[dict[str, str], BeforeValidator(producer_options)] = Field(default={})

    kind: ClassVar[str] = "kafka"
    shape: ClassVar[str] = "to: {kafka: topic}"


class JdbcTo(SinkTo):
    """A table of a database. `postgres: host:5432/shop` is the same as `jdbc: jdbc:postgresql://host:5432/shop`."""

    jdbc: Annotated[str, BeforeValidator(_jdbc)] = Field(examples=["jdbc:postgresql://127.0.0.1:5432/shop"])
    table: Annotated[str, BeforeValidator(_table)] = Field(examples=["public.customers"])
    user: str | None = Field(default=None, min_length=1, examples=["${env:DB_USER}"])
    password: Secret | None = None
    create: bool = True
    """Create the table if it does not exist."""
    options: Annotated[dict[str, str], BeforeValidator(_properties)] = Field(default={})
    """Properties of the driver."""

    kind: ClassVar[str] = "jdbc"
    shape: ClassVar[str] = "to: {postgres: host:5432/shop, table: public.customers}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict) or "postgres" not in data:
            return data
        if "jdbc" in data:
            raise wrong("a sink has one target, not postgres and jdbc", "keep one of them", "jdbc", at_key=True)
        address = data["postgres"]
        try:
            _address_without_login(address, "a database")
        except FindingsError as error:
            raise FindingsError([finding.below(("postgres",)) for finding in error.findings]) from None
        match = _POSTGRES.fullmatch(address)
        if match is None:
            raise wrong(
                f"{quote_value(address)} is not the address of a database", "write postgres: host:5432/shop", "postgres"
            )
        rest = {key: value for key, value in data.items() if key != "postgres"}
        return {"jdbc": f"jdbc:postgresql://{match[1]}", **rest}


class SearchTo(SinkTo):
    """An index of Elasticsearch or OpenSearch."""

    search: Annotated[str, BeforeValidator(_search)] = Field(examples=["http://127.0.0.1:9200"])
    index: Annotated[str, BeforeValidator(_index)] = Field(examples=["customers"])
    user: str | None = Field(default=None, min_length=1, examples=["${env:SEARCH_USER}"])
    password: Secret | None = None
    api_key: Secret | None = None

    kind: ClassVar[str] = "search"
    shape: ClassVar[str] = "to: {search: http://127.0.0.1:9200, index: customers}"

    @model_validator(mode="after")
    def _check_login(self) -> SearchTo:
        if (self.user is None) != (self.password is None):
            raise wrong("'user' and 'password' belong together", "write both", at_key=True)
        if self.user is not None and self.api_key is not None:
            raise wrong("there are two logins, user and api_key", "keep one of them", "api_key", at_key=True)
        return self


RedisForm = Literal["json", "hash"]


class RedisTo(SinkTo):
    """Keys of a Redis; `as` says what is kept under each."""

    redis: Annotated[str, BeforeValidator(_redis)] = Field(examples=["redis://127.0.0.1:6379/0"])
    prefix: str = Field(default="", examples=['"customer:"'])
    as_: Annotated[RedisForm, choice("form", RedisForm)] = Field(default="json", alias="as")
    ttl: Duration | None = Field(default=None, examples=["1 day"])
    user: str | None = Field(default=None, min_length=1, examples=["${env:REDIS_USER}"])
    password: Secret | None = None

    kind: ClassVar[str] = "redis"
    shape: ClassVar[str] = 'to: {redis: redis://127.0.0.1:6379/0, prefix: "customer:"}'


_KINDS: dict[str, type[SinkTo]] = {
    "kafka": KafkaTo,
    "postgres": JdbcTo,
    "jdbc": JdbcTo,
    "search": SearchTo,
    "redis": RedisTo,
}
_SYNONYMS = {"elasticsearch": "search", "opensearch": "search", "elastic": "search", "postgresql": "postgres"}
_SHAPES = (
    "write to: {kafka: topic}, {postgres: host:5432/shop, table: …}, {search: http://…, index: …} or {redis: redis://…}"
)


def target_of(value: Any, info: ValidationInfo) -> SinkTo:
    """Raises FindingsError."""
    if isinstance(value, SinkTo):
        return value
    rule, hint = "a sink has one target", "make a sink of each"
    target = read_kind(value, info, _KINDS, SINKS, shapes=_SHAPES, rule=rule, hint=hint)
    if target is not None:
        return target
    findings = [Finding((), "where do the rows go?", _SHAPES, at_key=True)]
    for key in map(str, value):
        hint = did_you_mean(key, [*_KINDS, *plugin_names(SINKS)])
        if key in _SYNONYMS:
            hint = f"did you mean '{_SYNONYMS[key]}'?"
        findings.append(Finding((key,), f"unknown key '{key}'", hint, at_key=True))
    raise FindingsError(findings)


ID_HEADER = "penstock-id"
"""The header by which a consumer recognises a record that was sent again."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def _source(value: Any, info: ValidationInfo) -> TableFrom | DeltaFrom | ChangesFrom:
    source = source_of(value, info)
    if isinstance(source, TableFrom | DeltaFrom | ChangesFrom):
        return source
    hint = "land them in a table first, and write from: {table: bronze.orders}"
    raise wrong("a sink sends the rows of a table", hint, at_key=True)


def _headers(value: Any) -> dict[str, str]:
    headers = text_values(value, "headers")
    findings = []
    for name, expression in headers.items():
        if name.casefold() == ID_HEADER:
            findings.append(
                Finding((name,), f"{ID_HEADER} is the header that Penstock sends itself", "write another name")
            )
        elif not name or not expression:
            findings.append(Finding((name,), "a header needs a name and an expression", "write kind: \"'alert'\""))
    refuse(findings)
    return headers


def _column_names(value: Any) -> tuple[str, ...]:
    """One column or several, each once."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(isinstance(name, str) and name for name in names):
        raise wrong(f"{quote_value(value)} does not name columns", "write [customer_id]")
    folded = [name.casefold() for name in names]
    duplicate = next((name for index, name in enumerate(names) if folded.index(name.casefold()) < index), None)
    if duplicate is not None:
        raise wrong(f"{quote_value(duplicate)} is there twice", "name each column once")
    return tuple(names)


class Sink(SpecModel):
    """`key`, `value` and `headers` are SQL expressions over a row of the source. What follows changes has `keys`
    instead of `key`: the columns that name a row."""

    source: Annotated[TableFrom | DeltaFrom | ChangesFrom, PlainValidator(_source)] = Field(
        alias="from", examples=["{table: gold.alerts}"]
    )
    to: Annotated[SerializeAsAny[SinkTo], PlainValidator(target_of)] = Field(examples=["{kafka: alerts}"])
    keys: Annotated[tuple[str, ...], BeforeValidator(_column_names)] = Field(default=(), examples=["[customer_id]"])
    columns: Annotated[tuple[str, ...], BeforeValidator(_column_names)] = Field(
        default=(), examples=["[customer_id, name]"]
    )
    key: str | None = Field(default=None, min_length=1, examples=["customer_id"])
    value: str | None = Field(default=None, min_length=1, examples=["to_json(struct(*))"])
    headers: Annotated[dict[str, str], BeforeValidator(_headers)] = Field(default={}, examples=["{kind: \"'alert'\"}"])
    trigger: Trigger | None = None

    _origin: str = PrivateAttr(default_factory=caller)

    shape: ClassVar[str] = "a mapping: {from: {table: gold.alerts}, to: {kafka: alerts}}"

    @property
    def origin(self) -> str:
        """file:line of the definition."""
        return self._origin

    @model_validator(mode="after")
    def _check_consistency(self) -> Sink:
        refuse(_change_sink_findings(self) if isinstance(self.source, ChangesFrom) else _row_sink_findings(self))
        return self


def _row_sink_findings(sink: Sink) -> list[Finding]:
    findings = []
    if not isinstance(sink.to, KafkaTo):
        hint = "write from: {changes: silver.customers}; what is only added is a change too"
        findings.append(Finding(("from",), "another system than Kafka follows the changes of a table", hint))
    for key in (key for key in ("keys", "columns") if getattr(sink, key)):
        hint = "did you mean 'key'? it is an SQL expression" if key == "keys" else "write value: to_json(struct(a, b))"
        findings.append(Finding((key,), f"'{key}' is for sinks that follow changes", hint, at_key=True))
    return findings


def _change_sink_findings(sink: Sink) -> list[Finding]:
    findings = []
    if sink.key is not None:
        hint = "write keys: [customer_id], the columns that name a row"
        findings.append(Finding(("key",), "the key of a change is that of its row", hint, at_key=True))
    for key in ("value", "headers"):
        if getattr(sink, key) and not isinstance(sink.to, KafkaTo):
            hint = "remove it; `columns` chooses what is sent"
            findings.append(Finding((key,), f"'{key}' is a part of a record of Kafka", hint, at_key=True))
    if sink.value is not None and sink.columns:
        findings.append(Finding(("columns",), "there are columns and a value", "keep one of them", at_key=True))
    return findings


def sink_name_findings(names: Sequence[str], tables: Sequence[str]) -> list[Finding]:
    """A sink is named in the same places as a table: `run`, `status`, the lake. So its name must differ from theirs."""
    rule = "write letters, digits, _ and -, beginning with a letter: alerts_out"
    return unique_name_findings("sink", names, lambda name: _NAME.fullmatch(name) is not None, rule, tables)
