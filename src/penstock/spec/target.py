"""Where a sink sends: the key says which kind of system it is."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, model_validator

from penstock.spec.cluster import Secret
from penstock.spec.finding import Finding, Wrong, did_you_mean, shown, wrong
from penstock.spec.kafka_options import producer_options
from penstock.spec.part import Part, one_of, text_values
from penstock.spec.quantity import seconds
from penstock.spec.topics import topic_names

_LOGIN = re.compile(r"//[^/?#]*@|[?&;](user|username|password|pwd)=", re.IGNORECASE)
_INDEX = re.compile(r"[^A-Z\\/*?\"<>| ,#:_+-][^A-Z\\/*?\"<>| ,#:]*")
_POSTGRES = re.compile(r"(?:jdbc:)?(?:postgres(?:ql)?://)?([^\s/@]+/[^\s/@]+)")
_APART = "write user: and password: beside it, each by reference: ${env:NAME}"


def _topic(value: Any) -> str:
    if isinstance(value, list | tuple | dict):
        raise wrong(f"a sink sends to one topic, not to {shown(value)}", "make a sink for each topic")
    return topic_names([value], single=True)[0]


def _without_login(value: Any, what: str) -> str:
    """An address is printed by `plan`, and in errors. One with a password in it is not even shown here."""
    if isinstance(value, str) and _LOGIN.search(value):
        raise wrong(f"the address of {what} has a login in it", _APART)
    if not isinstance(value, str) or not value:
        raise wrong(f"{shown(value)} is not the address of {what}")
    return str(value)


def _jdbc(value: Any) -> str:
    address = _without_login(value, "a database")
    if not re.match(r"jdbc:[a-z0-9]+:\S", address, re.IGNORECASE):
        hint = "write jdbc: as its driver does: jdbc:mysql://host:3306/shop; PostgreSQL is postgres: host:5432/shop"
        raise wrong(f"{shown(value)} is not the address of a database", hint)
    return address


def _table(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"[^\s.\x00]+(\.[^\s.\x00]+)?", value):
        raise wrong(
            f"{shown(value)} is not the name of a table", "write table: customers, or with its schema: public.customers"
        )
    return value


def _properties(value: Any) -> dict[str, str]:
    named = text_values(value, "options")
    findings = [
        Finding((name,), f"'{name}' is not an option", _APART, at_key=True)
        for name in named
        if name.casefold() in ("user", "username", "password", "pwd")
    ]
    if findings:
        raise Wrong(findings)
    return named


def _url(value: Any, what: str, schemes: tuple[str, ...], hint: str) -> str:
    address = _without_login(value, what)
    parts = urlsplit(address)
    try:
        fits = parts.scheme in schemes and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fits = False
    if not fits or parts.query or parts.fragment:
        raise wrong(f"{shown(value)} is not the address of {what}", hint)
    return address.rstrip("/")


def _search(value: Any) -> str:
    return _url(value, "a search index", ("http", "https"), "write search: http://127.0.0.1:9200")


def _index(value: Any) -> str:
    if not isinstance(value, str) or not _INDEX.fullmatch(value) or value in (".", ".."):
        raise wrong(f"{shown(value)} is not the name of an index", "write small letters, digits, - and _: customers")
    return value


def _redis(value: Any) -> str:
    hint = "write redis: redis://127.0.0.1:6379/0, with TLS rediss://…"
    address = _url(value, "a Redis", ("redis", "rediss"), hint)
    if not re.fullmatch(r"(/\d*)?", urlsplit(address).path):
        raise wrong(f"{shown(value)} is not the address of a Redis", hint)
    return address


def _form(value: Any) -> str:
    return one_of(value, "form", ("json", "hash"))


class KafkaTo(Part):
    """A topic of a cluster; without `cluster` the one under the top-level `kafka:`."""

    kafka: Annotated[str, BeforeValidator(_topic)] = Field(examples=["alerts"])
    cluster: str | None = Field(default=None, examples=["eu"])
    options: Annotated[dict[str, str], BeforeValidator(producer_options)] = Field(default={})

    shape: ClassVar[str] = "to: {kafka: topic}"


class JdbcTo(Part):
    """A table of a database. `postgres: host:5432/shop` is the same as `jdbc: jdbc:postgresql://host:5432/shop`."""

    jdbc: Annotated[str, BeforeValidator(_jdbc)] = Field(examples=["jdbc:postgresql://127.0.0.1:5432/shop"])
    table: Annotated[str, BeforeValidator(_table)] = Field(examples=["public.customers"])
    user: str | None = Field(default=None, min_length=1, examples=["${env:DB_USER}"])
    password: Secret | None = None
    create: bool = True
    """A table that is not there is made."""
    options: Annotated[dict[str, str], BeforeValidator(_properties)] = Field(default={})
    """Properties of the driver."""

    shape: ClassVar[str] = "to: {postgres: host:5432/shop, table: public.customers}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict) or "postgres" not in data:
            return data
        if "jdbc" in data:
            raise wrong("a sink has one target, not postgres and jdbc", "keep one of them", "jdbc", at_key=True)
        given = data["postgres"]
        try:
            _without_login(given, "a database")
        except Wrong as error:
            raise Wrong([finding.below(("postgres",)) for finding in error.findings]) from None
        match = _POSTGRES.fullmatch(given)
        if match is None:
            raise wrong(
                f"{shown(given)} is not the address of a database", "write postgres: host:5432/shop", "postgres"
            )
        rest = {key: value for key, value in data.items() if key != "postgres"}
        return {"jdbc": f"jdbc:postgresql://{match[1]}", **rest}


class SearchTo(Part):
    """An index of Elasticsearch or OpenSearch."""

    search: Annotated[str, BeforeValidator(_search)] = Field(examples=["http://127.0.0.1:9200"])
    index: Annotated[str, BeforeValidator(_index)] = Field(examples=["customers"])
    user: str | None = Field(default=None, min_length=1, examples=["${env:SEARCH_USER}"])
    password: Secret | None = None
    api_key: Secret | None = None

    shape: ClassVar[str] = "to: {search: http://127.0.0.1:9200, index: customers}"

    @model_validator(mode="after")
    def _one_login(self) -> SearchTo:
        if (self.user is None) != (self.password is None):
            raise wrong("'user' and 'password' belong together", "write both", at_key=True)
        if self.user is not None and self.api_key is not None:
            raise wrong("there are two logins, user and api_key", "keep one of them", "api_key", at_key=True)
        return self


class RedisTo(Part):
    """Keys of a Redis; `as` says what is kept under each."""

    redis: Annotated[str, BeforeValidator(_redis)] = Field(examples=["redis://127.0.0.1:6379/0"])
    prefix: str = Field(default="", examples=['"customer:"'])
    as_: Annotated[Literal["json", "hash"], BeforeValidator(_form)] = Field(default="json", alias="as")
    ttl: Annotated[float, BeforeValidator(seconds)] | None = Field(default=None, examples=["1 day"])
    user: str | None = Field(default=None, min_length=1, examples=["${env:REDIS_USER}"])
    password: Secret | None = None

    shape: ClassVar[str] = 'to: {redis: redis://127.0.0.1:6379/0, prefix: "customer:"}'


To = KafkaTo | JdbcTo | SearchTo | RedisTo
_KINDS: dict[str, type[KafkaTo] | type[JdbcTo] | type[SearchTo] | type[RedisTo]] = {
    "kafka": KafkaTo,
    "postgres": JdbcTo,
    "jdbc": JdbcTo,
    "search": SearchTo,
    "redis": RedisTo,
}
_NEAR = {"elasticsearch": "search", "opensearch": "search", "elastic": "search", "postgresql": "postgres"}
_SHAPES = (
    "write to: {kafka: topic}, {postgres: host:5432/shop, table: …}, {search: http://…, index: …} or {redis: redis://…}"
)


def target_of(value: Any, info: ValidationInfo) -> To:
    """Raises Wrong."""
    if isinstance(value, KafkaTo | JdbcTo | SearchTo | RedisTo):
        return value
    if not isinstance(value, dict):
        said = "there is nothing here" if value is None else f"{shown(value)} is not what belongs here"
        raise wrong(said, _SHAPES, at_key=value is None)
    kinds = [key for key in _KINDS if key in value]
    if not kinds:
        raise _unknown(value)
    if len({_KINDS[kind] for kind in kinds}) > 1:
        raise wrong(f"a sink has one target, not {' and '.join(kinds)}", "make a sink of each", at_key=True)
    part = _KINDS[kinds[0]]
    try:
        return part.model_validate(value, context=info.context)
    except ValidationError as error:
        raise Wrong(part.findings(error)) from None


def _unknown(value: dict[str, Any]) -> Wrong:
    findings = [Finding((), "where do the rows go?", _SHAPES, at_key=True)]
    for key in map(str, value):
        hint = f"did you mean '{_NEAR[key]}'?" if key in _NEAR else did_you_mean(key, list(_KINDS))
        findings.append(Finding((key,), f"unknown key '{key}'", hint, at_key=True))
    return Wrong(findings)
