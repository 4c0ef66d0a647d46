"""A sink: the rows of a table, sent to a Kafka topic as they are added."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, PlainValidator, PrivateAttr, ValidationInfo

from penstock.spec.finding import Finding, Wrong, shown, wrong
from penstock.spec.kafka_options import producer_options
from penstock.spec.origin import source_of
from penstock.spec.part import Part, caller, text_values
from penstock.spec.topics import topic_names
from penstock.spec.trigger import Trigger
from penstock.spec.upstream import DeltaFrom, TableFrom

ID = "penstock-id"
"""The header by which a consumer tells a record that was sent again."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def _source(value: Any, info: ValidationInfo) -> TableFrom | DeltaFrom:
    found = source_of(value, info)
    if isinstance(found, TableFrom | DeltaFrom):
        return found
    hint = "land them in a table first, and write from: {table: bronze.orders}"
    raise wrong("a sink sends the rows of a table", hint, at_key=True)


def _topic(value: Any) -> str:
    if isinstance(value, list | tuple | dict):
        raise wrong(f"a sink sends to one topic, not to {shown(value)}", "make a sink for each topic")
    return topic_names([value], single=True)[0]


def _headers(value: Any) -> dict[str, str]:
    named = text_values(value, "headers")
    findings = []
    for name, expression in named.items():
        if name.casefold() == ID:
            findings.append(Finding((name,), f"{ID} is the header that Penstock sends itself", "write another name"))
        elif not name or not expression:
            findings.append(Finding((name,), "a header needs a name and an expression", "write kind: \"'alert'\""))
    if findings:
        raise Wrong(findings)
    return named


class KafkaTo(Part):
    """A topic of a cluster; without `cluster` the one under the top-level `kafka:`."""

    kafka: Annotated[str, BeforeValidator(_topic)] = Field(examples=["alerts"])
    cluster: str | None = Field(default=None, examples=["eu"])
    options: Annotated[dict[str, str], BeforeValidator(producer_options)] = Field(default={})

    shape: ClassVar[str] = "to: {kafka: topic}"


class Sink(Part):
    """`key`, `value` and `headers` are SQL expressions over a row of the source."""

    source: Annotated[TableFrom | DeltaFrom, PlainValidator(_source)] = Field(
        alias="from", examples=["{table: gold.alerts}"]
    )
    to: KafkaTo = Field(examples=["{kafka: alerts}"])
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


def sink_name_findings(names: Iterable[str], tables: Iterable[str]) -> list[Finding]:
    """A sink is named where a table is: in `run`, in `status`, in the lake. So it has a name of its own."""
    findings: list[Finding] = []
    taken: Mapping[str, str] = {name.casefold(): f"a table is called '{name}'" for name in tables}
    seen: dict[str, str] = {}
    for name in names:
        fold = name.casefold()
        if not _NAME.fullmatch(name):
            hint = "write letters, digits, _ and -, beginning with a letter: alerts_out"
            findings.append(Finding((name,), f"'{name}' cannot name a sink", hint, at_key=True))
        elif fold in taken:
            findings.append(Finding((name,), f"{taken[fold]} already", "give the sink another name", at_key=True))
        elif fold in seen:
            message = f"'{name}' and '{seen[fold]}' differ only in capitals"
            findings.append(Finding((name,), message, "give each its own name", at_key=True))
        seen.setdefault(fold, name)
    return findings
