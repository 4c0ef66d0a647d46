"""A sink: the rows of a table, sent to a topic as they are added; or its changes, followed into another system."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import (
    BeforeValidator,
    Field,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)

from penstock.spec.finding import Finding, Wrong, shown, wrong
from penstock.spec.origin import source_of
from penstock.spec.part import Part, caller, text_values
from penstock.spec.target import KafkaTo, To, target_of
from penstock.spec.trigger import Trigger
from penstock.spec.upstream import ChangesFrom, DeltaFrom, TableFrom

ID = "penstock-id"
"""The header by which a consumer tells a record that was sent again."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_RESERVED = ("__quarantine", "__tombstones")


def _source(value: Any, info: ValidationInfo) -> TableFrom | DeltaFrom | ChangesFrom:
    found = source_of(value, info)
    if isinstance(found, TableFrom | DeltaFrom | ChangesFrom):
        return found
    hint = "land them in a table first, and write from: {table: bronze.orders}"
    raise wrong("a sink sends the rows of a table", hint, at_key=True)


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


def _names(value: Any) -> tuple[str, ...]:
    """One column or several, each once."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not given or not all(isinstance(one, str) and one for one in given):
        raise wrong(f"{shown(value)} does not name columns", "write [customer_id]")
    folded = [one.casefold() for one in given]
    twice = next((one for index, one in enumerate(given) if folded.index(one.casefold()) < index), None)
    if twice is not None:
        raise wrong(f"{shown(twice)} is there twice", "name each column once")
    return tuple(given)


class Sink(Part):
    """`key`, `value` and `headers` are SQL expressions over a row of the source. What follows changes has `keys`
    instead of `key`: the columns that name a row."""

    source: Annotated[TableFrom | DeltaFrom | ChangesFrom, PlainValidator(_source)] = Field(
        alias="from", examples=["{table: gold.alerts}"]
    )
    to: Annotated[To, PlainValidator(target_of)] = Field(examples=["{kafka: alerts}"])
    keys: Annotated[tuple[str, ...], BeforeValidator(_names)] = Field(default=(), examples=["[customer_id]"])
    columns: Annotated[tuple[str, ...], BeforeValidator(_names)] = Field(default=(), examples=["[customer_id, name]"])
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
    def _fits(self) -> Sink:
        findings = _changes_findings(self) if isinstance(self.source, ChangesFrom) else _added_findings(self)
        if findings:
            raise Wrong(findings)
        return self


def _added_findings(sink: Sink) -> list[Finding]:
    findings = []
    if not isinstance(sink.to, KafkaTo):
        hint = "write from: {changes: silver.customers}; what is only added is a change too"
        findings.append(Finding(("from",), "another system than Kafka follows the changes of a table", hint))
    for key in (key for key in ("keys", "columns") if getattr(sink, key)):
        hint = "did you mean 'key'? it is an SQL expression" if key == "keys" else "write value: to_json(struct(a, b))"
        findings.append(Finding((key,), f"'{key}' is for sinks that follow changes", hint, at_key=True))
    return findings


def _changes_findings(sink: Sink) -> list[Finding]:
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
    """A sink is named where a table is: in `run`, in `status`, in the lake. So it has a name of its own."""
    findings: list[Finding] = []
    taken: Mapping[str, str] = {name.casefold(): f"a table is called '{name}'" for name in tables}
    seen: dict[str, str] = {}
    for name in names:
        fold = name.casefold()
        if not _NAME.fullmatch(name):
            hint = "write letters, digits, _ and -, beginning with a letter: alerts_out"
            findings.append(Finding((name,), f"'{name}' cannot name a sink", hint, at_key=True))
        elif (ending := next((one for one in _RESERVED if fold.endswith(one)), None)) is not None:
            hint = "choose another ending: Penstock keeps tables of its own under names that end so"
            findings.append(Finding((name,), f"'{name}' ends in {ending}", hint, at_key=True))
        elif fold in taken:
            findings.append(Finding((name,), f"{taken[fold]} already", "give the sink another name", at_key=True))
        elif fold in seen:
            message = f"'{name}' and '{seen[fold]}' differ only in capitals"
            findings.append(Finding((name,), message, "give each its own name", at_key=True))
        seen.setdefault(fold, name)
    return findings
