"""One table: where its rows come from, what they look like and when they are taken."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, model_validator

from penstock.spec.columns import clashes, renamed
from penstock.spec.finding import Finding, Wrong
from penstock.spec.part import Part, one_of
from penstock.spec.properties import table_properties
from penstock.spec.source import KafkaFrom
from penstock.spec.trigger import Trigger

_SEGMENT = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_QUARANTINE = "__quarantine"
_LATER = "this version lands topics as they came, in bronze tables; remove it for now"


def _payload(value: Any) -> str:
    return one_of(value, "payload", ("string", "binary"))


def _caller() -> str:
    """file:line of the code that builds a table in Python: the first frame outside pydantic and this package."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("pydantic", "penstock"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class Table(Part):
    source: KafkaFrom = Field(alias="from", examples=["{kafka: orders}"])
    payload: Annotated[Literal["string", "binary"], BeforeValidator(_payload)] = "string"
    columns: Annotated[dict[str, str], BeforeValidator(renamed)] = Field(default={})
    trigger: Trigger | None = None
    properties: Annotated[dict[str, str], BeforeValidator(table_properties)] = Field(default={})

    _origin: str = PrivateAttr(default_factory=_caller)

    later: ClassVar[dict[str, str]] = dict.fromkeys(
        ("decode", "transform", "sql", "lookups", "expect", "dedupe", "aggregate", "write", "stream"), _LATER
    )
    shape: ClassVar[str] = "a mapping: {from: {kafka: topic}}"

    @property
    def origin(self) -> str:
        """file:line of the definition."""
        return self._origin

    @model_validator(mode="after")
    def _columns_fit(self) -> Table:
        if findings := clashes(self.columns, self.payload):
            raise Wrong([finding.below(("columns",)) for finding in findings])
        return self


def name_findings(names: Iterable[str]) -> list[Finding]:
    """What is wrong with the names of tables: each is a folder in the lake, so none may lie within another."""
    findings: list[Finding] = []
    seen: dict[str, str] = {}
    for name in names:
        if not all(_SEGMENT.fullmatch(segment) for segment in name.split(".")):
            hint = "write parts of letters, digits, _ and -, each beginning with a letter, with dots: bronze.orders"
            findings.append(Finding((name,), f"'{name}' cannot name a table", hint, at_key=True))
        elif name.casefold().endswith(_QUARANTINE):
            hint = "choose another ending: that name belongs to the rejected rows of a table"
            findings.append(Finding((name,), f"'{name}' ends in {_QUARANTINE}", hint, at_key=True))
        elif name.casefold() in seen:
            message = f"'{name}' and '{seen[name.casefold()]}' differ only in capitals"
            findings.append(Finding((name,), message, "give each its own name", at_key=True))
        seen.setdefault(name.casefold(), name)
    for fold, name in seen.items():
        steps = fold.split(".")
        for depth in range(1, len(steps)):
            if outer := seen.get(".".join(steps[:depth])):
                message = f"'{name}' would lie in the folder of the table '{outer}'"
                hint = f"rename one: for example '{outer}' to '{outer}.all'"
                findings.append(Finding((name,), message, hint, at_key=True))
    return findings
