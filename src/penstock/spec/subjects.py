"""Subjects: the people, or things, whose rows can be forgotten, and where a table says whose row it is."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, SecretStr, ValidationInfo, model_validator

from penstock.spec.base_model import Finding, FindingsError, SpecModel, did_you_mean, quote_value, refuse, wrong
from penstock.spec.columns import table_columns
from penstock.spec.kafka_cluster import Secret
from penstock.spec.schema import load_schema
from penstock.spec.stages import format_rules

if TYPE_CHECKING:
    from penstock.spec.table import Table


STATISTICS = "delta.dataSkippingStatsColumns"
_SUBJECT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_JSON_PATH = re.compile(r"\$(?:\.[^.\[\]'\"\s*]+|\['[^']+'\]|\[\d+\]|\[\*\])*")
_SUBJECTS_SHAPE = "{customer: customer_id}, or {customer: [{json: value, path: $.customer_id}, key]}"
MIN_KEY_LENGTH = 16


class SubjectColumn(SpecModel):
    """Where a row says of whom it is: a column, also a field of a struct; or a path in the JSON text of a column."""

    column: str | None = Field(default=None, min_length=1, examples=["customer_id"])
    json_: str | None = Field(default=None, alias="json", min_length=1, examples=["value"])
    path: str | None = Field(default=None, min_length=1, examples=["$.customer_id"])

    python_only: ClassVar[frozenset[str]] = frozenset({"column"})
    shape: ClassVar[str] = "a column, customer_id or customer.id; or {json: value, path: $.customer_id}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, str):
            return data
        if data.startswith("$"):
            raise wrong(f"{quote_value(data)} is a path, but of which column?", f"write {{json: value, path: {data}}}")
        return {"column": data}

    @model_validator(mode="after")
    def _check_place(self) -> SubjectColumn:
        if (self.column is None) == (self.json_ is None):
            raise wrong("a place is a column, or a path in the JSON of one", f"write {self.shape}")
        if (self.json_ is None) != (self.path is None):
            raise wrong("'json' and 'path' belong together", "write {json: value, path: $.customer_id}")
        if self.path is not None and not _JSON_PATH.fullmatch(self.path):
            hint = "write $.customer_id, $.customer.id, $.items[*].id or $['customer id']"
            raise wrong(f"{quote_value(self.path)} is not a path into JSON", hint, "path")
        if not all(self.column_path.split(".")):
            raise wrong(f"{quote_value(self.column_path)} does not name a column", "write customer_id, or customer.id")
        return self

    @property
    def column_path(self) -> str:
        """The column as written, including fields of structs."""
        return self.column or self.json_ or ""

    @property
    def top(self) -> str:
        """The column of the table that contains it."""
        return self.column_path.partition(".")[0]


def subject_places(value: Any) -> Any:
    """Subject name -> list of places, whether one or several were written. Raises FindingsError."""
    if not isinstance(value, dict):
        raise wrong(f"'subjects' needs a mapping, not {quote_value(value)}", f"write {_SUBJECTS_SHAPE}")
    findings = [
        Finding((str(key),), f"{quote_value(key)} cannot name a subject", "write letters, digits and _", at_key=True)
        for key in value
        if not isinstance(key, str) or not _SUBJECT_NAME.fullmatch(key)
    ]
    findings += [
        Finding((str(key),), "there is nothing here", f"write {SubjectColumn.shape}", at_key=True)
        for key, places in value.items()
        if places is None or places in ([], ())
    ]
    refuse(findings)
    return {key: list(places) if isinstance(places, list | tuple) else [places] for key, places in value.items()}


class Forget(SpecModel):
    """How what is to be forgotten is remembered: as a keyed hash."""

    key: Secret | None = Field(default=None, examples=["${env:FORGET_KEY}"])

    shape: ClassVar[str] = "{key: ${env:FORGET_KEY}}"

    @model_validator(mode="after")
    def _check_length(self) -> Forget:
        key: SecretStr | None = self.key
        if key is not None and len(key.get_secret_value()) < MIN_KEY_LENGTH:
            hint = "make one: openssl rand -hex 32"
            raise wrong(f"the key is shorter than {MIN_KEY_LENGTH} characters: it could be guessed", hint, "key")
        return self


def layout_findings(table: Table) -> list[Finding]:
    """Subjects must not be in partition values or statistics: these are in the table's log in plain text."""
    findings: list[Finding] = []
    statistics_columns = [
        name.strip().strip("`").casefold() for name in table.write.properties.get(STATISTICS, "").split(",")
    ]
    for subject, places in table.subjects.items():
        for place in places:
            top, full_name = place.top.casefold(), place.column_path.casefold()
            for kind in ("partition_by", "cluster_by"):
                if top in (name.partition(".")[0].casefold() for name in getattr(table.write, kind)):
                    exposed_in = "names of folders, and its log," if kind == "partition_by" else "log"
                    message = (
                        f"'{place.column_path}' says who a {subject} is, and the {exposed_in} would keep that in clear"
                    )
                    findings.append(Finding(("write", kind), message, "lay the table out by another column"))
            if top in statistics_columns or full_name in statistics_columns:
                message = f"'{place.column_path}' says who a {subject} is, and statistics keep it in clear in the log"
                findings.append(Finding(("write", "properties", STATISTICS), message, "leave it out"))
    return findings


def column_findings(table: Table, root: Path) -> list[Finding]:
    """Places in columns that the table does not have, as far as this is known without running anything."""
    if not table.subjects:
        return []
    column_names = _known_columns(table, root)
    folded = {name.casefold() for name in column_names}
    return [
        Finding(
            ("subjects", subject, index),
            f"there is no column '{place.top}' in this table",
            did_you_mean(place.top, column_names),
        )
        for subject, places in table.subjects.items()
        for index, place in enumerate(places)
        if folded and place.top.casefold() not in folded
    ]


def _known_columns(table: Table, root: Path) -> list[str]:
    """The columns of the table and of the records that it reads; [] if a function or a source decides them."""
    raw = list(table_columns(table.columns, table.payload).values()) if table.source.of_topics else []
    if table.aggregate is not None:
        window = ["window_start", "window_end"] if table.aggregate.window else []
        return [*window, *table.aggregate.keys, *table.aggregate.metrics]
    if table.transform or table.sql or table.stream or table.audit:
        return []
    decode = table.decode
    if decode is None:
        return raw
    if decode.schema_ is None:
        return []
    try:
        fields = [column.name for column in load_schema(decode.schema_, root).fields]
    except FindingsError:  # reported where the schema is checked
        return []
    added = [*format_rules(decode.format).adds, *(("_rescued",) if decode.rescues else ())]
    return [*fields, *decode.keep, *added, *raw]


def undeclared_subject_findings(tables: Mapping[str, Table]) -> Iterator[Finding]:
    """Tables that declare no subjects, though the table they read does: `forget` removes none of their rows."""
    for name, table in tables.items():
        if table.subjects or table.aggregate is not None:
            continue
        upstream_name = table.source.project_table
        upstream = tables.get(upstream_name) if upstream_name is not None else None
        if upstream is not None and upstream.subjects:
            subject_names = ", ".join(upstream.subjects)
            hint = (
                "write subjects: {" + f"{next(iter(upstream.subjects))}: column" + "} if a column says of whom a row is"
            )
            message = (
                f"{upstream_name} says where it holds {subject_names}, and this table, made of it, does not: "
                "a forget takes no row out"
            )
            yield Finding(("tables", name), message, hint, at_key=True)
