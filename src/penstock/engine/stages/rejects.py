"""Rejected rows on their way to quarantine: the record as it came, where it came from, and what it did not meet."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.identifiers import quote
from penstock.engine.stages.coordinates import SOURCE
from penstock.plan.model import TablePlan

RAW = {
    "key": "STRING",
    "key_binary": "BINARY",
    "value": "STRING",
    "value_binary": "BINARY",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "kafka_timestamp": "TIMESTAMP",
    "ingestion_timestamp": "TIMESTAMP",
}
"""What is kept of a record, whatever the table's source calls it."""
FAILED = "failed"
NOTHING_FAILED = "CAST(array() AS ARRAY<STRING>)"


def raw_columns(table: TablePlan, columns: Sequence[str]) -> dict[str, str]:
    """RAW's names -> expressions over the input, whose columns are given."""
    names = table.input.raw
    if names:
        found = {name: quote(names[name]) for name in RAW if name in names}
        if table.payload == "binary" or "value_binary" not in names:  # of a table upstream with payload: binary
            found |= {"key": "NULL", "value": "NULL", "key_binary": found["key"], "value_binary": found["value"]}
        return found
    decode = table.stages.decode if table.stages else None
    if decode is not None:
        return {"value": f"CAST({quote(decode.column)} AS STRING)"}
    return {"value": f"to_json(struct({', '.join(quote(name) for name in columns if name != SOURCE)}))"}


def reject(raw: dict[str, str], source: str, failed: str) -> str:
    """The struct that the write of the good rows brings along."""
    parts = [f"'{name}', CAST({raw.get(name, 'NULL')} AS {kind})" for name, kind in RAW.items()]
    return f"named_struct({', '.join(parts)}, '{SOURCE}', {source}, '{FAILED}', {failed})"


def size_of(raw: dict[str, str]) -> str:
    """How many bytes of a record are kept, roughly."""
    sizes = [
        f"coalesce(octet_length({f'to_json({value})' if name == 'headers' else value}), 0)"
        for name, value in raw.items()
        if value != "NULL" and not name.endswith("timestamp")
    ]
    return " + ".join(sizes) or "0"
