"""The columns of a bronze table: their canonical names, and which other names a user may give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.spec.finding import Finding, Wrong, did_you_mean, shown
from penstock.spec.part import text_values

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
_RESERVED = ("_change_type", "_commit_version", "_commit_timestamp", "_metadata")


def renamed(value: Any) -> dict[str, str]:
    """Canonical name -> the user's, each a name that Delta takes. Raises Wrong."""
    findings: list[Finding] = []
    names = text_values(value, "columns")
    for canonical, name in names.items():
        if canonical not in CANONICAL:
            message = f"there is no column '{canonical}' to rename"
            findings.append(Finding((canonical,), message, did_you_mean(canonical, CANONICAL), at_key=True))
        elif not name:
            findings.append(Finding((canonical,), "the name of a column is empty", f"write {canonical}: a_name"))
        elif refused := [sign for sign in name if sign in _REFUSED_BY_DELTA or sign == "`" or not sign.isprintable()]:
            message = f"{shown(name)} cannot name a column: Delta refuses {refused[0]!r}"
            findings.append(Finding((canonical,), message, "write letters, digits and underscores"))
        elif name.casefold() in _RESERVED:
            findings.append(
                Finding((canonical,), f"{shown(name)} is a name that Delta keeps for itself", "write another")
            )
    if findings:
        raise Wrong(findings)
    return {canonical: str(name) for canonical, name in names.items()}


def table_columns(renames: Mapping[str, str], payload: str) -> dict[str, str]:
    """Canonical -> actual name of the columns that the table has, in table order."""
    left_out = () if payload == "string" else ONLY_WITH_STRING_PAYLOAD
    return {canonical: renames.get(canonical, canonical) for canonical in CANONICAL if canonical not in left_out}


def clashes(renames: Mapping[str, str], payload: str) -> list[Finding]:
    """Columns that would have one name (Delta does not tell capitals apart), or that this payload does not have."""
    findings: list[Finding] = []
    columns = table_columns(renames, payload)
    for canonical in renames:
        if canonical not in columns:
            hint = "it exists only with payload: string; remove it"
            findings.append(Finding((canonical,), f"payload: binary has no column '{canonical}'", hint, at_key=True))
    taken: dict[str, str] = {}
    for canonical, name in sorted(columns.items(), key=lambda pair: pair[0] in renames):
        other = taken.setdefault(name.casefold(), canonical)
        if other != canonical:
            message = f"'{name}' would be the name of two columns: {other} and {canonical}"
            findings.append(Finding((canonical,), message, "give each its own; capitals do not make a difference"))
    return findings
