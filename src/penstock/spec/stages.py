"""What happens to the rows of a batch: decode, expect, dedupe."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from penstock.spec.finding import Finding, Wrong, shown, wrong
from penstock.spec.part import Part, one_of
from penstock.spec.quantity import seconds

_ACTIONS = ("quarantine", "drop", "warn", "fail")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
Duration = Annotated[float, BeforeValidator(seconds)]


class Decode(Part):
    """One parse per record. Exactly one of json, csv and text names the column that holds it."""

    json_: str | None = Field(default=None, alias="json", min_length=1, examples=["value"])
    csv: str | None = Field(default=None, min_length=1, examples=["value"])
    text: str | None = Field(default=None, min_length=1, examples=["value"])
    schema_: str | None = Field(default=None, alias="schema", min_length=1, examples=["schemas/orders.ddl"])
    rescue: bool = False
    keep: tuple[str, ...] = ()
    options: dict[str, str] = Field(default={})

    later: ClassVar[dict[str, str]] = {
        "avro": "this version decodes json, csv and text",
        "debezium": "this version decodes json, csv and text",
    }
    shape: ClassVar[str] = "{json: value, schema: schemas/orders.ddl}"

    @model_validator(mode="after")
    def _one_format(self) -> Decode:
        given = [name for name, column in (("json", self.json_), ("csv", self.csv), ("text", self.text)) if column]
        if len(given) != 1:
            raise wrong("'decode' needs exactly one of json, csv and text", f"write {self.shape}", at_key=True)
        if self.schema_ is None and given != ["text"]:
            raise wrong("'decode' needs a schema", "write schema: a file, or the columns: order_id BIGINT", at_key=True)
        if self.rescue and given != ["json"]:
            raise wrong("'rescue' keeps the unknown fields of JSON objects", "remove it", "rescue", at_key=True)
        if self.options and given != ["csv"]:
            raise wrong("'options' are those of CSV lines", "remove it", "options", at_key=True)
        return self

    @property
    def column(self) -> str:
        return self.json_ or self.csv or self.text or ""


def _action(value: Any) -> str:
    return one_of(value, "action", _ACTIONS)


class Expectation(Part):
    """A predicate that every row should meet. NULL counts as not met."""

    name: str = Field(min_length=1, examples=["has_id"])
    check: str = Field(min_length=1, examples=["order_id IS NOT NULL"])
    action: Annotated[Literal["quarantine", "drop", "warn", "fail"], BeforeValidator(_action)] = "quarantine"

    shape: ClassVar[str] = "{name: has_id, check: order_id IS NOT NULL}"

    @model_validator(mode="after")
    def _plain_name(self) -> Expectation:
        if not _NAME.fullmatch(self.name):
            raise wrong(f"{shown(self.name)} cannot name an expectation", "write letters, digits and _", "name")
        return self


def expectations(value: Any) -> Any:
    """A list whose names are unique."""
    if not isinstance(value, list | tuple):
        raise wrong(f"'expect' needs a list, not {shown(value)}", f"write - {Expectation.shape}")
    names = [item.get("name") if isinstance(item, dict) else getattr(item, "name", None) for item in value]
    findings = [
        Finding((index, "name"), f"the expectation {shown(name)} is there twice", "give each its own name")
        for index, name in enumerate(names)
        if isinstance(name, str) and name in names[:index]
    ]
    if findings:
        raise Wrong(findings)
    return value


class Dedupe(Part):
    """Rows whose keys are in the table already are left out; the first by source coordinates stays."""

    keys: tuple[str, ...] = Field(min_length=1, examples=["[order_id]"])
    within: Duration | None = None
    time: str | None = Field(default=None, min_length=1, examples=["order_ts"])

    shape: ClassVar[str] = "{keys: [order_id], within: 7 days, time: order_ts}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, dict) and isinstance(data.get("keys"), str):
            return {**data, "keys": [data["keys"]]}
        return data

    @model_validator(mode="after")
    def _bound_needs_a_time(self) -> Dedupe:
        if (self.within is None) != (self.time is None):
            raise wrong("'within' and 'time' belong together", f"write {self.shape}", at_key=True)
        return self
