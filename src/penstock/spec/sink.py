"""A sink: the rows of a table, or its changes, sent to Kafka, a database, a search index or Redis."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from penstock.spec.base_model import (
    Finding,
    FindingsError,
    SpecModel,
    caller,
    did_you_mean,
    one_of,
    quote_value,
    text_values,
    wrong,
)
from penstock.spec.delta_source import ChangesFrom, DeltaFrom, TableFrom
from penstock.spec.kafka_cluster import Secret, producer_options
from penstock.spec.kafka_source import topic_names
from penstock.spec.plugins import SINKS, plugin, plugin_names
from penstock.spec.quantity import seconds
from penstock.spec.source import source_of
from penstock.spec.table import Trigger

# Where a sink sends: the key says which kind of system it is.


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
    findings = [
        Finding((name,), f"'{name}' is not an option", _LOGIN_HINT, at_key=True)
        for name in options
        if name.casefold() in ("user", "username", "password", "pwd")
    ]
    if findings:
        raise FindingsError(findings)
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


def _form(value: Any) -> str:
    return one_of(value, "form", ("json", "hash"))


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


class RedisTo(SinkTo):
    """Keys of a Redis; `as` says what is kept under each."""

    redis: Annotated[str, BeforeValidator(_redis)] = Field(examples=["redis://127.0.0.1:6379/0"])
    prefix: str = Field(default="", examples=['"customer:"'])
    as_: Annotated[Literal["json", "hash"], BeforeValidator(_form)] = Field(default="json", alias="as")
    ttl: Annotated[float, BeforeValidator(seconds)] | None = Field(default=None, examples=["1 day"])
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
    """Raises Wrong."""
    if isinstance(value, SinkTo):
        return value
    if not isinstance(value, dict):
        message = "there is nothing here" if value is None else f"{quote_value(value)} is not what belongs here"
        raise wrong(message, _SHAPES, at_key=value is None)
    kinds = [key for key in _KINDS if key in value] or [key for key in plugin_names(SINKS) if key in value]
    if not kinds:
        raise _unknown_target(value)
    if len({_KINDS.get(kind, kind) for kind in kinds}) > 1:
        raise wrong(f"a sink has one target, not {' and '.join(kinds)}", "make a sink of each", at_key=True)
    model: type[SinkTo] = _KINDS[kinds[0]] if kinds[0] in _KINDS else plugin(SINKS, kinds[0]).model
    try:
        return model.model_validate(value, context=info.context)
    except ValidationError as error:
        raise FindingsError(model.findings(error)) from None


def _unknown_target(value: dict[str, Any]) -> FindingsError:
    findings = [Finding((), "where do the rows go?", _SHAPES, at_key=True)]
    for key in map(str, value):
        hint = (
            f"did you mean '{_SYNONYMS[key]}'?"
            if key in _SYNONYMS
            else did_you_mean(key, [*_KINDS, *plugin_names(SINKS)])
        )
        findings.append(Finding((key,), f"unknown key '{key}'", hint, at_key=True))
    return FindingsError(findings)


# A sink: the rows of a table, sent to a topic as they are added; or its changes, sent to another system.


ID_HEADER = "penstock-id"
"""The header by which a consumer recognises a record that was sent again."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_RESERVED = ("__quarantine", "__tombstones")


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
    if findings:
        raise FindingsError(findings)
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
        findings = _change_sink_findings(self) if isinstance(self.source, ChangesFrom) else _row_sink_findings(self)
        if findings:
            raise FindingsError(findings)
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


def sink_name_findings(names: Iterable[str], tables: Iterable[str]) -> list[Finding]:
    """A sink is named in the same places as a table: `run`, `status`, the lake. So its name must differ from theirs."""
    findings: list[Finding] = []
    table_conflicts: Mapping[str, str] = {name.casefold(): f"a table is called '{name}'" for name in tables}
    names_by_fold: dict[str, str] = {}
    for name in names:
        fold = name.casefold()
        if not _NAME.fullmatch(name):
            hint = "write letters, digits, _ and -, beginning with a letter: alerts_out"
            findings.append(Finding((name,), f"'{name}' cannot name a sink", hint, at_key=True))
        elif (ending := next((suffix for suffix in _RESERVED if fold.endswith(suffix)), None)) is not None:
            hint = "choose another ending: Penstock keeps tables of its own under names that end so"
            findings.append(Finding((name,), f"'{name}' ends in {ending}", hint, at_key=True))
        elif fold in table_conflicts:
            findings.append(
                Finding((name,), f"{table_conflicts[fold]} already", "give the sink another name", at_key=True)
            )
        elif fold in names_by_fold:
            message = f"'{name}' and '{names_by_fold[fold]}' differ only in capitals"
            findings.append(Finding((name,), message, "give each its own name", at_key=True))
        names_by_fold.setdefault(fold, name)
    return findings
