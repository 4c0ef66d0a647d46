"""The one place that quotes an identifier for Spark SQL."""

from __future__ import annotations


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
