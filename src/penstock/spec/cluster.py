"""A Kafka cluster: its brokers and how to log in to them."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import BeforeValidator, Field, SecretStr, model_validator

from penstock.spec.finding import Finding, Wrong, shown, wrong
from penstock.spec.kafka_options import client_options
from penstock.spec.part import Part, one_of

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
PROTOCOLS: tuple[str, ...] = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/,\[\]]+):(\d{1,5})")
_BOOTSTRAP = "write host:port, several with commas: bootstrap: broker1:9092,broker2:9092"


def _protocol(value: Any) -> str:
    return one_of(value, "security protocol", PROTOCOLS, upper=True)


def _mechanism(value: Any) -> str:
    if isinstance(value, str) and value.upper() in ("GSSAPI", "OAUTHBEARER", "AWS_MSK_IAM"):
        raise wrong(f"the mechanism {shown(value)} is not supported", f"write one of: {', '.join(MECHANISMS)}")
    return one_of(value, "SASL mechanism", MECHANISMS, upper=True)


def _secret(value: Any) -> Any:
    """Never shows the value: it is one that must not be seen."""
    if isinstance(value, SecretStr):
        return value
    if not isinstance(value, str):
        raise wrong("a secret must be text", "write ${env:NAME} or ${file:path}; a literal one in quotes")
    if not value:
        raise wrong("a secret is empty", "write ${env:NAME} or ${file:path}, and check that it holds something")
    return SecretStr(str(value))


Secret = Annotated[SecretStr, BeforeValidator(_secret)]


class Security(Part):
    """How to log in. Files are PEM, their paths relative to the project folder."""

    protocol: Annotated[Protocol, BeforeValidator(_protocol)] = "PLAINTEXT"
    mechanism: Annotated[Mechanism, BeforeValidator(_mechanism)] | None = None
    username: str | None = Field(default=None, min_length=1, examples=["${env:KAFKA_USER}"])
    password: Secret | None = None
    ca_file: str | None = Field(default=None, min_length=1, examples=["certs/ca.pem"])
    cert_file: str | None = Field(default=None, min_length=1, examples=["certs/client.pem"])
    key_file: str | None = Field(default=None, min_length=1, examples=["certs/client.key"])
    key_password: Secret | None = None

    shape: ClassVar[str] = "a mapping: security: {protocol: SASL_SSL, mechanism: SCRAM-SHA-512, ...}"

    @model_validator(mode="after")
    def _consistent(self) -> Security:
        findings: list[Finding] = []
        sasl, tls = self.protocol.startswith("SASL_"), self.protocol.endswith("SSL")
        login = ("mechanism", "username", "password")
        for name in login:
            if sasl and getattr(self, name) is None:
                findings.append(_missing(name, f"{self.protocol} needs mechanism, username and password"))
            if not sasl and getattr(self, name) is not None:
                hint = "write protocol: SASL_SSL (or SASL_PLAINTEXT), or remove it"
                findings.append(Finding((name,), f"'{name}' means nothing with {self.protocol}", hint, at_key=True))
        for name in ("ca_file", "cert_file", "key_file", "key_password"):
            if not tls and getattr(self, name) is not None:
                hint = f"write protocol: {'SASL_SSL' if sasl else 'SSL'}, or remove it"
                findings.append(Finding((name,), f"'{name}' means nothing with {self.protocol}", hint, at_key=True))
        if (self.cert_file is None) != (self.key_file is None):
            given, other = ("cert_file", "key_file") if self.cert_file else ("key_file", "cert_file")
            findings.append(
                Finding((given,), f"'{given}' needs '{other}'", f"write {other}: path/to/it.pem", at_key=True)
            )
        if self.key_password is not None and self.key_file is None:
            findings.append(Finding(("key_password",), "'key_password' needs 'key_file'", "write both", at_key=True))
        if findings:
            raise Wrong(findings)
        return self


def _missing(name: str, why: str) -> Finding:
    examples = {
        "mechanism": "SCRAM-SHA-512",
        "username": "${env:KAFKA_USER}",
        "password": "${env:KAFKA_PASSWORD}",
    }
    return Finding((), f"'{name}' is missing: {why}", f"write {name}: {examples[name]}", at_key=True)


def _bootstrap(value: Any) -> str:
    addresses = value if isinstance(value, list | tuple) else str(value).split(",") if isinstance(value, str) else None
    if not addresses:
        raise wrong(f"{shown(value)} is not a list of brokers", _BOOTSTRAP)
    checked = []
    for address in addresses:
        match = _ADDRESS.fullmatch(address.strip()) if isinstance(address, str) else None
        if match is None or not 0 < int(match[2]) < 65536:
            written = value if isinstance(value, str) else address
            raise wrong(f"{shown(written)} is not the address of a broker", _BOOTSTRAP)
        checked.append(match[0])
    return ",".join(checked)


class KafkaCluster(Part):
    bootstrap: Annotated[str, BeforeValidator(_bootstrap)] = Field(examples=["127.0.0.1:9092"])
    security: Security = Security()
    options: Annotated[dict[str, str], BeforeValidator(client_options)] = Field(default={})

    shape: ClassVar[str] = "a mapping: {bootstrap: host:9092}"


def security_files(security: Security) -> dict[str, str]:
    """Key -> path of the files that it names."""
    named = {name: getattr(security, name) for name in ("ca_file", "cert_file", "key_file")}
    return {name: cast(str, path) for name, path in named.items() if path is not None}
