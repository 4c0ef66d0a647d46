"""Rejected rows as they lie in quarantine: where each came from, why it was rejected, and what it was."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from penstock.engine.arrow_times import FarTime, Time
from penstock.engine.stages.coordinates import SOURCE
from penstock.ops.dlq.filter import Filter
from penstock.ops.dlq.quarantine import DETAIL, REASON, ROWS, WHEN, Quarantine
from penstock.ops.quoting import identifier, literal

SHORT = 300
"""Characters of a text, and bytes of what is none, that are read where not all of it is asked for."""

_TIMES = ("kafka_timestamp", "ingestion_timestamp")
_AS_THEY_ARE = (REASON, DETAIL, WHEN, "generation", "batch", "definition", SOURCE, *_TIMES, "headers")


@dataclass(frozen=True)
class Payload:
    """Text, or bytes that are none."""

    text: str | None
    data: bytes | None
    size: int
    """All its bytes, however many are here."""


@dataclass(frozen=True)
class Row:
    reason: str | None
    detail: str | None
    rejected_at: Time | None
    generation: int | None
    batch: int | None
    definition: str | None
    source: Mapping[str, Any] | None
    kafka_timestamp: Time | None
    ingestion_timestamp: Time | None
    key: Payload | None
    value: Payload | None
    headers: tuple[tuple[str, bytes | None], ...]


def count(quarantine: Quarantine, wanted: Filter) -> int:
    sql = f"SELECT count(*) AS rows FROM {ROWS} WHERE {wanted.where(quarantine)}"
    return sum(int(found["rows"]) for found in quarantine.ask(sql))


def read_rows(quarantine: Quarantine, wanted: Filter, limit: int, *, whole: bool, also: str = "TRUE") -> Iterator[Row]:
    """The newest first. `whole`: payloads are not shortened. `also` is one more condition."""
    places = [f"{identifier(SOURCE)}[{literal(part)}]" for part in quarantine.coordinates]
    order = ", ".join(["generation DESC", "batch DESC", *places])
    where = f"({wanted.where(quarantine)}) AND ({also})"
    newest = f"SELECT * FROM {ROWS} WHERE {where} ORDER BY {order} LIMIT {limit}"
    columns = ", ".join(_columns(quarantine, whole=whole))
    for found in quarantine.ask(f"SELECT {columns} FROM ({newest}) AS newest ORDER BY {order}"):
        yield _row(found)


def _columns(quarantine: Quarantine, *, whole: bool) -> Iterator[str]:
    for name in _AS_THEY_ARE:
        yield identifier(name) if name in quarantine.columns else f"NULL AS {identifier(name)}"
    for name in ("key", "value"):
        text, data = (
            identifier(column) if column in quarantine.columns else "CAST(NULL AS VARCHAR)"
            for column in (name, f"{name}_binary")
        )
        coded = f"encode({data}, 'hex')"
        yield f"{text if whole else f'left({text}, {SHORT})'} AS {name}"
        yield f"octet_length({text}) AS {name}_size"
        yield f"{coded if whole else f'left({coded}, {2 * SHORT})'} AS {name}_hex"
        yield f"octet_length({coded}) / 2 AS {name}_bytes"


def _row(found: Mapping[str, Any]) -> Row:
    return Row(
        reason=found[REASON],
        detail=found[DETAIL],
        rejected_at=found[WHEN],
        generation=found["generation"],
        batch=found["batch"],
        definition=found["definition"],
        source=found[SOURCE],
        kafka_timestamp=found["kafka_timestamp"],
        ingestion_timestamp=found["ingestion_timestamp"],
        key=_payload(found, "key"),
        value=_payload(found, "value"),
        headers=tuple((one["key"], one["value"]) for one in found["headers"] or () if one is not None),
    )


def _payload(found: Mapping[str, Any], name: str) -> Payload | None:
    if found[name] is not None:
        return Payload(found[name], None, int(found[f"{name}_size"]))
    if found[f"{name}_hex"] is not None:
        return Payload(None, bytes.fromhex(found[f"{name}_hex"]), int(found[f"{name}_bytes"]))
    return None


def iso(at: Time | None) -> str | None:
    if at is None:
        return None
    if isinstance(at, FarTime):
        return at.text
    return at.replace(tzinfo=at.tzinfo or UTC).astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def document(row: Row) -> dict[str, Any]:
    """Bytes that are no text are base64."""
    return {
        "reason": row.reason,
        "detail": row.detail,
        "rejected_at": iso(row.rejected_at),
        "generation": row.generation,
        "batch": row.batch,
        "definition": row.definition,
        "source": dict(row.source) if row.source is not None else None,
        "kafka_timestamp": iso(row.kafka_timestamp),
        "ingestion_timestamp": iso(row.ingestion_timestamp),
        **_coded("key", row.key),
        **_coded("value", row.value),
        "headers": [_header(key, value) for key, value in row.headers],
    }


def _coded(name: str, payload: Payload | None) -> dict[str, Any]:
    data = base64.b64encode(payload.data).decode() if payload is not None and payload.data is not None else None
    return {name: payload.text if payload is not None else None, f"{name}_base64": data}


def _header(key: str, value: bytes | None) -> dict[str, Any]:
    try:
        return {"key": key, "value": None if value is None else value.decode(), "value_base64": None}
    except UnicodeDecodeError:
        return {"key": key, "value": None, "value_base64": base64.b64encode(value or b"").decode()}
