"""The columns of a bronze table: their canonical names, and which names a user may give them instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.spec.base_model import Finding, did_you_mean, quote_value, refuse, text_values
from penstock.spec.schema import Struct, column_key

ONLY_WITH_STRING_PAYLOAD = ("key_binary", "value_binary")
CANONICAL = (
    "key",
    "key_binary",
    "value",
    "value_binary",
    "headers",
    "topic",
    "partition",
    "offset",
    "kafka_timestamp",
    "ingestion_timestamp",
)
_REFUSED_BY_DELTA = " ,;{}()\n\t="
CHANGE_FEED = ("_change_type", "_commit_version", "_commit_timestamp")
"""Columns that Delta adds to the rows of a change feed: a table that has one cannot have such columns itself."""
METADATA = ("_metadata", "_tmp_metadata_row_index")
"""Spark's names for the file of a row and its position in it: a column of that name hides them."""
RESERVED_BY_SPARK = (*CHANGE_FEED, *METADATA)


def column_renames(value: Any) -> dict[str, str]:
    """Canonical name -> the user's, each a name that Delta accepts. Raises FindingsError."""
    findings: list[Finding] = []
    names = text_values(value, "columns")
    for canonical, name in names.items():
        if canonical not in CANONICAL:
            message = f"there is no column '{canonical}' to rename"
            findings.append(Finding((canonical,), message, did_you_mean(canonical, CANONICAL), at_key=True))
        elif not name:
            findings.append(Finding((canonical,), "the name of a column is empty", f"write {canonical}: a_name"))
        elif forbidden := [sign for sign in name if sign in _REFUSED_BY_DELTA or sign == "`" or not sign.isprintable()]:
            message = f"{quote_value(name)} cannot name a column: Delta refuses {forbidden[0]!r}"
            findings.append(Finding((canonical,), message, "write letters, digits and underscores"))
        elif column_key(name) in RESERVED_BY_SPARK:
            findings.append(
                Finding((canonical,), f"{quote_value(name)} is a name that Delta keeps for itself", "write another")
            )
    refuse(findings)
    return {canonical: str(name) for canonical, name in names.items()}


def reserved_findings(schema: Struct, *, change_feed: bool) -> Iterator[Finding]:
    """Columns that make a table unreadable. Those of a change feed only matter if the table has one."""
    reserved = RESERVED_BY_SPARK if change_feed else METADATA
    for column in schema.fields:
        if column_key(column.name) in reserved:
            owner = "Delta's change feed" if column_key(column.name) in CHANGE_FEED else "Spark"
            message = f"the column '{column.name}' has a name that {owner} keeps for itself"
            yield Finding((), message, "leave it out, or keep it under another name: `sql: SELECT …, x AS …`")


def table_columns(renames: Mapping[str, str], payload: str) -> dict[str, str]:
    """Canonical -> actual name of the columns that the table has, in table order."""
    left_out = () if payload == "string" else ONLY_WITH_STRING_PAYLOAD
    return {canonical: renames.get(canonical, canonical) for canonical in CANONICAL if canonical not in left_out}


def column_clash_findings(renames: Mapping[str, str], payload: str) -> list[Finding]:
    """Columns that would share a name (Delta ignores case), or that this payload does not have."""
    findings: list[Finding] = []
    columns = table_columns(renames, payload)
    for canonical in renames:
        if canonical not in columns:
            hint = "it exists only with payload: string; remove it"
            findings.append(Finding((canonical,), f"payload: binary has no column '{canonical}'", hint, at_key=True))
    canonical_by_key: dict[str, str] = {}
    for canonical, name in sorted(columns.items(), key=lambda pair: pair[0] in renames):
        first = canonical_by_key.setdefault(column_key(name), canonical)
        if first != canonical:
            message = f"'{name}' would be the name of two columns: {first} and {canonical}"
            findings.append(Finding((canonical,), message, "give each its own; capitals do not make a difference"))
    return findings
