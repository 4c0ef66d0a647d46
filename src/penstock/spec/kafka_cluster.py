"""A Kafka cluster: its brokers, how to log in, and which client options a project may set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from penstock.spec.base_model import (
    Finding,
    FindingsError,
    SpecModel,
    choice,
    did_you_mean,
    nearest,
    one_of,
    quote_value,
    refuse,
    text_values,
    wrong,
)
from penstock.spec.quantity import seconds, size

# The Kafka client properties that a project may set, and why the others are refused.
#
# An allow-list: a client property can name classes to load, files to read and credentials, so what is not known to be
# harmless is not passed on. Names are those of the Java client.


_ALLOWED: Mapping[str, str | tuple[str, ...]] = {
    "check.crcs": ("true", "false"),
    "client.dns.lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "client.id": "text",
    "client.rack": "text",
    "connections.max.idle.ms": "ms",
    "default.api.timeout.ms": "ms",
    "fetch.max.bytes": "bytes",
    "fetch.max.wait.ms": "ms",
    "fetch.min.bytes": "bytes",
    "isolation.level": ("read_committed", "read_uncommitted"),
    "max.partition.fetch.bytes": "bytes",
    "max.poll.interval.ms": "ms",
    "max.poll.records": "count",
    "metadata.max.age.ms": "ms",
    "receive.buffer.bytes": "bytes",
    "reconnect.backoff.max.ms": "ms",
    "reconnect.backoff.ms": "ms",
    "request.timeout.ms": "ms",
    "retry.backoff.max.ms": "ms",
    "retry.backoff.ms": "ms",
    "send.buffer.bytes": "bytes",
    "socket.connection.setup.timeout.max.ms": "ms",
    "socket.connection.setup.timeout.ms": "ms",
    "ssl.cipher.suites": "text",
    "ssl.enabled.protocols": "text",
    "ssl.endpoint.identification.algorithm": ("https", ""),
    "ssl.protocol": "text",
}

_CONSUMER_ONLY = ("check.", "default.", "fetch.", "isolation.", "max.")
_PRODUCER: Mapping[str, str | tuple[str, ...]] = {
    **{name: kind for name, kind in _ALLOWED.items() if not name.startswith(_CONSUMER_ONLY)},
    "batch.size": "bytes",
    "buffer.memory": "bytes",
    "compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "delivery.timeout.ms": "ms",
    "linger.ms": "ms",
    "max.block.ms": "ms",
    "max.request.size": "bytes",
}

_GROUPS = ("positions are kept in the table's ledger, not in a consumer group", "remove it")
_SPARK = ("Spark sets it and refuses another value", "remove it")
_SECURITY = ("credentials and certificates have their own place", "write them under security:")
_CLASSES = ("it makes the client load code or read other places", "remove it")
_PROMISE = ("a sink promises that every row arrives at least once", "remove it")
_REFUSED: Mapping[str, tuple[str, str]] = {
    "acks": _PROMISE,
    "enable.idempotence": _PROMISE,
    "retries": _PROMISE,
    "max.in.flight.requests.per.connection": _PROMISE,
    "transactional.": ("Spark's writer has no transactions", "remove it: consumers de-duplicate by penstock-id"),
    "transaction.": ("Spark's writer has no transactions", "remove it: consumers de-duplicate by penstock-id"),
    "key.serializer": _SPARK,
    "value.serializer": _SPARK,
    "partitioner.class": _CLASSES,
    "group.": _GROUPS,
    "partition.assignment.strategy": _GROUPS,
    "session.timeout.ms": _GROUPS,
    "heartbeat.interval.ms": _GROUPS,
    "enable.auto.commit": _GROUPS,
    "auto.commit.interval.ms": _GROUPS,
    "auto.offset.reset": ("where to begin is resolved once, when the table is created", "write starting: earliest"),
    "key.deserializer": _SPARK,
    "value.deserializer": _SPARK,
    "interceptor.classes": _SPARK,
    "exclude.internal.topics": _SPARK,
    "allow.auto.create.topics": ("reading a mistyped topic must not create it", "remove it"),
    "bootstrap.servers": ("the brokers have their own key", "write bootstrap: host:9092"),
    "security.protocol": ("the protocol has its own place", "write security: {protocol: SASL_SSL}"),
    "security.providers": _CLASSES,
    "sasl.": _SECURITY,
    "ssl.": _SECURITY,
    "config.providers": _CLASSES,
    "metric.reporters": _CLASSES,
    "auto.include.jmx.reporter": _CLASSES,
    "maxOffsetsPerTrigger": ("it has its own key", "write max_per_trigger: 200000"),
    "minPartitions": ("it has its own key", "write min_partitions: 8"),
    "startingOffsets": ("it has its own key", "write starting: earliest"),
    "startingTimestamp": ("it has its own key", "write starting: {timestamp: 2026-01-01T00:00:00Z}"),
    "subscribe": ("topics have their own key", "write kafka: [a, b] or kafka: {pattern: ...}"),
    "assign": ("topics have their own key", "write kafka: [a, b]"),
    "failOnDataLoss": ("data loss is never silent", "remove it"),
    "includeHeaders": ("headers are always kept", "remove it"),
}


def client_options(value: Any) -> dict[str, str]:
    """Checked options as the client takes them: sizes in bytes and durations in milliseconds. Raises FindingsError."""
    return _options(value, _ALLOWED)


def producer_options(value: Any) -> dict[str, str]:
    """The same for a producer."""
    return _options(value, _PRODUCER)


def is_producer_option(name: str) -> bool:
    """Whether an option of a cluster also applies to a producer."""
    return name in _PRODUCER


def _options(value: Any, allowed: Mapping[str, str | tuple[str, ...]]) -> dict[str, str]:
    findings: list[Finding] = []
    checked_options: dict[str, str] = {}
    for name, text in text_values(value, "options").items():
        try:
            checked_options[name] = _check_option(name, text, allowed)
        except FindingsError as error:
            findings += [finding.below((name,)) for finding in error.findings]
    refuse(findings)
    return checked_options


def _check_option(name: str, text: str, allowed: Mapping[str, str | tuple[str, ...]]) -> str:
    kind = allowed.get(name)
    if kind is None:
        raise _refusal(name, allowed)
    if isinstance(kind, tuple):
        if text not in kind:
            raise wrong(f"{quote_value(text)} is not a value of {name}", did_you_mean(text, kind))
        return text
    if kind == "bytes":
        return str(size(text))
    if kind == "ms":
        return str(int(text)) if text.strip().isdecimal() else str(round(seconds(text) * 1000))
    if kind == "count" and not (text.isdecimal() and int(text) > 0):
        raise wrong(f"{quote_value(text)} is not a number of records", f"write {name}: 10000")
    return text


def _refusal(name: str, allowed: Mapping[str, str | tuple[str, ...]]) -> FindingsError:
    if name.startswith("kafka."):
        return wrong(f"'{name}': the prefix kafka. is Spark's", f"write {name[6:]}", at_key=True)
    for refused, (why, instead) in _REFUSED.items():
        if name == refused or (refused.endswith(".") and name.startswith(refused)) or name.startswith(refused + "."):
            return wrong(f"the client option '{name}' cannot be set: {why}", instead, at_key=True)
    suggestion = nearest(name, allowed)
    hint = f"did you mean '{suggestion}'?" if suggestion else "the options that can be set are in docs/project-file.md"
    return wrong(f"'{name}' is not a client option that Penstock passes on", hint, at_key=True)


def allowed_options() -> tuple[str, ...]:
    """The names that may be set."""
    return tuple(_ALLOWED)


Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/,\[\]]+):(\d{1,5})")
_BOOTSTRAP = "write host:port, several with commas: bootstrap: broker1:9092,broker2:9092"


def _mechanism(value: Any) -> str:
    if isinstance(value, str) and value.upper() in ("GSSAPI", "OAUTHBEARER", "AWS_MSK_IAM"):
        hint = f"write one of: {', '.join(get_args(Mechanism))}"
        raise wrong(f"the mechanism {quote_value(value)} is not supported", hint)
    return one_of(value, "SASL mechanism", get_args(Mechanism), upper=True)


def _secret(value: Any) -> Any:
    """Its errors never show the value: it is secret."""
    if isinstance(value, SecretStr):
        return value
    if not isinstance(value, str):
        raise wrong("a secret must be text", "write ${env:NAME} or ${file:path}; a literal one in quotes")
    if not value:
        raise wrong("a secret is empty", "write ${env:NAME} or ${file:path}, and check that it holds something")
    return SecretStr(str(value))


Secret = Annotated[SecretStr, BeforeValidator(_secret)]


class Security(SpecModel):
    """How to log in. Files are PEM, their paths relative to the project folder."""

    protocol: Annotated[Protocol, choice("security protocol", Protocol, upper=True)] = "PLAINTEXT"
    mechanism: Annotated[Mechanism, BeforeValidator(_mechanism)] | None = None
    username: str | None = Field(default=None, min_length=1, examples=["${env:KAFKA_USER}"])
    password: Secret | None = None
    ca_file: str | None = Field(default=None, min_length=1, examples=["certs/ca.pem"])
    cert_file: str | None = Field(default=None, min_length=1, examples=["certs/client.pem"])
    key_file: str | None = Field(default=None, min_length=1, examples=["certs/client.key"])
    key_password: Secret | None = None

    shape: ClassVar[str] = "a mapping: security: {protocol: SASL_SSL, mechanism: SCRAM-SHA-512, ...}"

    @model_validator(mode="after")
    def _check_consistency(self) -> Security:
        findings: list[Finding] = []
        sasl, tls = self.protocol.startswith("SASL_"), self.protocol.endswith("SSL")
        login = {"mechanism": "SCRAM-SHA-512", "username": "${env:KAFKA_USER}", "password": "${env:KAFKA_PASSWORD}"}
        for name, example in login.items():
            if sasl and getattr(self, name) is None:
                message = f"'{name}' is missing: {self.protocol} needs mechanism, username and password"
                findings.append(Finding((), message, f"write {name}: {example}", at_key=True))
            if not sasl and getattr(self, name) is not None:
                hint = "write protocol: SASL_SSL (or SASL_PLAINTEXT), or remove it"
                findings.append(Finding((name,), f"'{name}' means nothing with {self.protocol}", hint, at_key=True))
        for name in ("ca_file", "cert_file", "key_file", "key_password"):
            if not tls and getattr(self, name) is not None:
                hint = f"write protocol: {'SASL_SSL' if sasl else 'SSL'}, or remove it"
                findings.append(Finding((name,), f"'{name}' means nothing with {self.protocol}", hint, at_key=True))
        if (self.cert_file is None) != (self.key_file is None):
            present, absent = ("cert_file", "key_file") if self.cert_file else ("key_file", "cert_file")
            findings.append(
                Finding((present,), f"'{present}' needs '{absent}'", f"write {absent}: path/to/it.pem", at_key=True)
            )
        if self.key_password is not None and self.key_file is None:
            findings.append(Finding(("key_password",), "'key_password' needs 'key_file'", "write both", at_key=True))
        refuse(findings)
        return self


def _bootstrap(value: Any) -> str:
    addresses = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else None
    if not addresses:
        raise wrong(f"{quote_value(value)} is not a list of brokers", _BOOTSTRAP)
    checked_addresses = []
    for address in addresses:
        match = _ADDRESS.fullmatch(address.strip()) if isinstance(address, str) else None
        if match is None or not 0 < int(match[2]) < 65536:
            invalid = value if isinstance(value, str) else address
            raise wrong(f"{quote_value(invalid)} is not the address of a broker", _BOOTSTRAP)
        checked_addresses.append(match[0])
    return ",".join(checked_addresses)


class KafkaCluster(SpecModel):
    bootstrap: Annotated[str, BeforeValidator(_bootstrap)] = Field(examples=["127.0.0.1:9092"])
    security: Security = Security()
    options: Annotated[dict[str, str], BeforeValidator(client_options)] = Field(default={})

    shape: ClassVar[str] = "a mapping: {bootstrap: host:9092}"


def security_files(security: Security) -> dict[str, str]:
    """Key -> path of each file that it names."""
    paths = {"ca_file": security.ca_file, "cert_file": security.cert_file, "key_file": security.key_file}
    return {name: path for name, path in paths.items() if path is not None}
