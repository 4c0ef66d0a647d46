"""Names and values as SQL text: for Spark, and for the query engine of `deltalake`."""

from __future__ import annotations

# The one place that quotes an identifier for Spark SQL.


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


# Names and texts in the SQL of `deltalake`'s query engine. It knows no escape but the doubled quote.


def quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
