"""Records upstream that say nothing any more: somebody was forgotten, and nobody reads them."""

from __future__ import annotations

from penstock.ops.quoting import identifier, literal
from penstock.ops.verify.rows import count_at
from penstock.plan.model import DeltaSource
from penstock.plan.subjects import FORGOTTEN


def readable(source: DeltaSource) -> str:
    """Those that are not redacted, as a condition. Records that are have one header, and that is the first."""
    headers = source.holds.headers
    if headers is None or not source.holds.subjects:
        return "TRUE"
    return f"coalesce({identifier(headers)}[1]['key'], '') <> {literal(FORGOTTEN)}"


def redacted(source: DeltaSource, version: int) -> int:
    """How many there are as of a version."""
    kept = readable(source)
    return 0 if kept == "TRUE" or version < 0 else count_at(source.uri, version, f"NOT ({kept})")
