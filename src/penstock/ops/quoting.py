"""Names and texts in the SQL of `deltalake`'s query engine. It knows no escape but the doubled quote."""

from __future__ import annotations


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
