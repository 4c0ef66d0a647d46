"""A folder of files as the source of a table: each file is read once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from penstock.spec.base_model import (
    Finding,
    FindingsError,
    SourceFrom,
    choice,
    did_you_mean,
    quote_value,
    refuse,
    text_values,
    wrong,
)
from penstock.spec.lake import lake_uri
from penstock.spec.schema import Scalar, Struct, column_key

Format = Literal["json", "csv", "parquet"]
NewFields = Literal["add", "rescue", "ignore", "fail"]
FilesStart = Literal["earliest", "latest"]
_ENDINGS = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
_COMPRESSION_SUFFIXES = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate")
OPTIONS: dict[str, tuple[str, ...]] = {
    "json": ("multiLine",),
    "csv": (
        "header",
        "sep",
        "quote",
        "escape",
        "nullValue",
        "emptyValue",
        "ignoreLeadingWhiteSpace",
        "ignoreTrailingWhiteSpace",
    ),
    "parquet": (),
}
"""The options that each format allows."""
RESERVED = ("_source", "_rescued")
"""Columns of the table whose names no field of a file may have."""


def _folder(value: Any) -> Any:
    try:
        folder = lake_uri(value)
    except FindingsError as error:
        raise FindingsError(
            [replace(finding, message=finding.message.replace("the lake", "'files'")) for finding in error.findings]
        ) from None
    if isinstance(folder, str) and any(sign in folder for sign in "*?"):
        raise wrong(
            f"{quote_value(folder)} is not a folder", 'write the folder, and pattern: "*.json" for the names in it'
        )
    return folder


class FilesFrom(SourceFrom):
    """Files below a folder, listed as they appear. A name that begins with _ or . is not data."""

    files: Annotated[str, BeforeValidator(_folder)] = Field(min_length=1, examples=["landing/orders"])
    format: Annotated[Format, choice("format", Format)] = Field(examples=["json"])
    pattern: str | None = Field(default=None, min_length=1, examples=['"*.json"'])
    schema_: str | None = Field(default=None, alias="schema", min_length=1, examples=["schemas/orders.ddl"])
    new_fields: Annotated[NewFields, choice("way with new fields", NewFields)] | None = None
    starting: Annotated[FilesStart, choice("start of a folder", FilesStart)] = "earliest"
    max_files: int = Field(default=1000, ge=1)
    options: Annotated[dict[str, str], BeforeValidator(lambda value: text_values(value, "options"))] = Field(default={})

    kind: ClassVar[str] = "files"
    shape: ClassVar[str] = "from: {files: landing/orders, format: json}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        """The format may be given by the pattern alone."""
        if isinstance(data, dict) and data.get("format") is None and isinstance(data.get("pattern"), str):
            file_format = _format_of(data["pattern"])
            return {**data, "format": file_format} if file_format else data
        return data

    @property
    def header(self) -> bool:
        """The first line of each file names its fields."""
        return self.format == "csv" and self.options.get("header", "false").lower() == "true"

    @property
    def on_new_fields(self) -> NewFields:
        """As with `decode`, fields that a given schema does not name are left out unless `new_fields` is set. An
        inferred schema follows its files."""
        if self.new_fields is not None:
            return self.new_fields
        has_names = self.format != "csv" or self.header
        return "add" if self.schema_ is None and has_names else "ignore"

    @model_validator(mode="after")
    def _check_options(self) -> FilesFrom:
        findings = list(_option_findings(self.format, self.options))
        if self.new_fields not in (None, "ignore") and self.format == "csv" and not self.header:
            hint = 'write options: {header: "true"}, or remove it: a line with more fields is rejected'
            findings.append(Finding(("new_fields",), "the fields of these files have no names", hint, at_key=True))
        refuse(findings)
        return self


def schema_findings(source: FilesFrom, schema: Struct) -> Iterator[Finding]:
    """What is wrong with a schema that the user gave for such files."""
    for column in schema.fields:
        if column_key(column.name) in RESERVED or column.name.startswith("__"):
            yield Finding((), f"the column '{column.name}' is Penstock's own", "give it another name")
        elif source.format == "csv" and not isinstance(column.type, Scalar):
            yield Finding((), f"'{column.name}': a field of a CSV file cannot be {column.type}", "write STRING")
        elif source.format == "parquet" and column.required:
            hint = f"write expect: [{{name: has_{column.name}, check: {column.name} IS NOT NULL}}]"
            yield Finding((), f"'{column.name}': NOT NULL is not checked in Parquet files", hint)


def _format_of(pattern: str) -> str | None:
    name = pattern.lower()
    for suffix in _COMPRESSION_SUFFIXES:
        name = name.removesuffix(suffix)
    return _ENDINGS.get(PurePosixPath(name).suffix)


def _option_findings(kind: str, options: dict[str, str]) -> Iterator[Finding]:
    allowed = OPTIONS[kind]
    for name, value in options.items():
        if name == "multiLine" and kind == "csv":
            message = "'multiLine' is not needed: a quoted cell of a CSV file may go over several lines"
            yield Finding(("options", name), message, "remove it", at_key=True)
        elif name not in allowed:
            hint = did_you_mean(name, allowed) if allowed else "remove it"
            yield Finding(("options", name), f"'{name}' is not an option of {kind} files", hint, at_key=True)
        elif name in ("header", "multiLine") and value.lower() not in ("true", "false"):
            yield Finding(("options", name), f"{quote_value(value)} is neither true nor false", f"write {name}: true")
        elif name in ("sep", "quote", "escape") and len(value) != 1 and not (name == "sep" and value):
            yield Finding(
                ("options", name), f"{quote_value(value)} is not one character", f"write {name}: one character"
            )
