"""Which rows of a quarantine are meant. What a user types becomes a number, a time or a quoted text, never SQL."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from penstock.errors import UsageError
from penstock.ops.dlq.quarantine import DETAIL, REASON, WHEN, Quarantine
from penstock.ops.quoting import identifier, literal
from penstock.spec.finding import Wrong
from penstock.spec.quantity import instant, seconds

_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Filter:
    """All that is set must hold."""

    reason: str | None = None
    detail: str | None = None
    """A part of the detail: a field, an expectation."""
    since: datetime | None = None
    until: datetime | None = None
    """Not included."""
    generation: int | None = None
    batch: int | None = None
    topic: str | None = None
    partition: int | None = None
    offsets: tuple[int, int] | None = None
    """First and last, both included."""
    file: str | None = None

    def where(self, quarantine: Quarantine) -> str:
        """As a condition. UsageError if the rows have no such coordinates."""
        parts = []
        if self.reason is not None:
            parts.append(f"{REASON} = {literal(self.reason)}")
        if self.detail is not None:
            parts.append(f"strpos({DETAIL}, {literal(self.detail)}) > 0")
        if self.since is not None:
            parts.append(f"{WHEN} >= {_time(self.since)}")
        if self.until is not None:
            parts.append(f"{WHEN} < {_time(self.until)}")
        for column in ("generation", "batch"):
            if (number := getattr(self, column)) is not None:
                parts.append(f"{column} = {number}")
        if self.topic is not None:
            parts.append(f"{_part(quarantine, 'topic')} = {literal(self.topic)}")
        if self.partition is not None:
            parts.append(f"{_part(quarantine, 'partition')} = {self.partition}")
        if self.offsets is not None:
            first, last = self.offsets
            parts.append(f"{_part(quarantine, 'offset')} BETWEEN {first} AND {last}")
        if self.file is not None:
            parts.append(f"{_part(quarantine, 'file')} = {literal(self.file)}")
        return " AND ".join(parts) or "TRUE"


def _part(quarantine: Quarantine, name: str) -> str:
    if name not in quarantine.coordinates:
        has = ", ".join(quarantine.coordinates) or "no coordinates"
        raise UsageError(f"the rows of {quarantine.name} have no {name}", hint=f"they have {has}")
    return f"{identifier('_source')}[{literal(name)}]"


def _time(at: datetime) -> str:
    return f"to_timestamp_micros({(at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)})"


def read_batch(text: str | None) -> tuple[int | None, int | None]:
    """`1.12` is batch 12 of generation 1, `12` is that batch of any generation."""
    if text is None:
        return None, None
    match = re.fullmatch(r"(?:(\d{1,18})\.)?(\d{1,18})", text.strip(), re.ASCII)
    if match is None:
        raise UsageError(f"--batch {text} is no batch", hint="write 1.12 (generation and number), or 12")
    return (int(match[1]) if match[1] else None), int(match[2])


def read_offsets(text: str | None) -> tuple[int, int] | None:
    """`120`, or `120-150` with both ends."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,19})(?:-(\d{1,19}))?", text.strip(), re.ASCII)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if first > last or last > _LARGEST:
        raise UsageError(f"--offset {text} is no range", hint="write 120, or 120-150 with both ends")
    return first, last


def read_time(option: str, text: str | None, now: datetime | None = None) -> datetime | None:
    """An ISO time, or how long ago: `2h`, `3 days`."""
    if text is None:
        return None
    try:
        return instant(text)
    except Wrong:
        pass
    try:
        return (now or datetime.now(UTC)) - timedelta(seconds=seconds(text))
    except (Wrong, OverflowError):
        raise UsageError(
            f"{option} {text} is no time",
            hint="write 2026-05-14T09:00:00Z (without a zone it is UTC), or 2h: so long ago",
        ) from None
