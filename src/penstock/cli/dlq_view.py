"""What `dlq` shows. Everything that came from a record passes `visible` first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.status_view import ago
from penstock.cli.visible import shortened, visible
from penstock.engine.arrow_times import FarTime, Time, micros_of
from penstock.ops.dlq.counted import Counted
from penstock.ops.dlq.rows import Payload, Row

KINDS_SHOWN = 5
"""Of each reason."""
_SAMPLE, _KEY, _VALUE, _BYTES = 100, 80, 240, 32


def counted_view(found: Sequence[Counted]) -> RenderableType:
    if not found:
        return Text("no table of the project has a quarantine: nothing in their definitions rejects a row")
    parts: list[RenderableType] = []
    for one in found:
        parts += [*([""] if parts else []), *_counted(one)]
    return Group(*parts)


def _counted(found: Counted) -> Iterator[RenderableType]:
    title = Text.assemble((found.quarantine, "bold"), "  ")
    if found.problem is not None:
        yield title + Text(found.problem, style="bold red")
        if found.hint:
            yield Text(f"  -> {found.hint}")
        return
    if not found.rows:
        yield title + Text("empty" if found.made else "not made yet: no row was rejected", style="green")
        return
    read = f", {_percent(found.share)} of {found.read:,} rows read" if found.share is not None else ""
    yield title + Text(f"{found.rows:,} row{'s' * (found.rows != 1)}{read}")
    yield _kinds(found)
    if found.ahead:
        said = f"  {found.ahead:,} rows are of batches that are not in {found.table}: a replay is being made, or the "
        yield Text(f"{said}table was put back", style="yellow")


def _kinds(found: Counted) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0), expand=True)
    grid.add_column(Text("  reason"), no_wrap=True)
    grid.add_column(Text("rows"), justify="right", no_wrap=True)
    grid.add_column(Text("about"), no_wrap=True, overflow="ellipsis", max_width=30)
    for title in ("of them", "first seen", "last seen"):
        grid.add_column(Text(title), justify="right", no_wrap=True)
    grid.add_column(Text("one of them"), no_wrap=True, overflow="ellipsis", ratio=1, min_width=12)
    now = datetime.now(UTC)
    for reason, rows in found.reasons.items():
        kinds = [kind for kind in found.kinds if kind.reason == reason]
        head = (f"  {visible(reason) or 'none'}", f"{rows:,}")
        for kind in kinds[:KINDS_SHOWN]:
            count = f"{kind.rows:,}" if kind.rows != rows else ""
            cells = (*head, visible(kind.about), count, _age(kind.first, now), _age(kind.last, now))
            grid.add_row(*map(Text, cells), Text(_sample(kind.sample), style="dim"))
            head = ("", "")
        rest = rows - sum(kind.rows for kind in kinds[:KINDS_SHOWN])
        if rest:
            grid.add_row(*map(Text, head), Text("more: `--json` has them", style="dim"), Text(f"{rest:,}"))
    return grid


def _age(at: Time | None, now: datetime) -> str:
    return "" if at is None else ago((micros_of(now) - micros_of(at)) / 1_000_000)


def _sample(row: Row | None) -> str:
    if row is None:
        return ""
    return place(row) if row.value is None else _payload(row.value, _SAMPLE)


def rows_view(table: str, rows: Sequence[Row], total: int, *, full: bool) -> Iterator[Text]:
    if not rows:
        yield Text.assemble((table, "bold"), ": no such row in its quarantine")
        return
    more = f"{len(rows):,} of {total:,}" if len(rows) < total else f"{total:,}"
    yield Text.assemble((table, "bold"), f": {more} rejected row{'s' * (total != 1)}, the newest first")
    for row in rows:
        yield Text("")
        yield from _row(row, full=full)


def _row(row: Row, *, full: bool) -> Iterator[Text]:
    yield Text.assemble((place(row), "bold"), "  ", (visible(row.reason or "no reason"), "red"))
    if row.detail:
        yield _fact("detail", visible(row.detail))
    yield _fact("rejected", f"{_time(row.rejected_at)} UTC, in batch {row.generation}.{row.batch}")
    if row.kafka_timestamp is not None:
        yield _fact("in Kafka", f"{_time(row.kafka_timestamp)} UTC")
    if row.key is not None:
        yield _fact("key", _payload(row.key, None if full else _KEY))
    yield _fact("value", "null" if row.value is None else _payload(row.value, None if full else _VALUE))
    if row.headers:
        most = None if full else _KEY
        yield _fact("headers", ", ".join(f"{visible(name)}: {_header(value, most)}" for name, value in row.headers))


def _fact(name: str, text: str) -> Text:
    return Text.assemble((f"  {name:<9} ", "dim"), text)


def place(row: Row) -> str:
    """`orders-2 offset 1042`, `in/a.json row 7`, `version 12 (deleted)`."""
    source = row.source or {}
    if source.get("topic") is not None:
        return f"{visible(str(source['topic']))}-{source.get('partition')} offset {source.get('offset')}"
    if source.get("file") is not None:
        number = "" if source.get("row") is None else f" row {source['row']}"
        return f"{visible(str(source['file']))}{number}"
    if source.get("version") is not None:
        return f"version {source['version']}{' (deleted)' if source.get('deleted') else ''}"
    return "no coordinates"


def _payload(payload: Payload, most: int | None) -> str:
    if payload.text == "":
        return '""'
    if payload.text is not None:
        whole = most is None or (len(payload.text) <= most and len(payload.text.encode()) == payload.size)
        text = visible(payload.text if most is None else payload.text[:most])
        return text if whole else f"{shortened(text, most or 0).rstrip('…')}… ({payload.size:,} bytes)"
    data = payload.data or b""
    if most is None or len(data) <= _BYTES:
        return f"0x{data.hex()}" + ("" if payload.size == len(data) else f"… ({payload.size:,} bytes)")
    return f"0x{data[:_BYTES].hex()}… ({payload.size:,} bytes)"


def _header(value: bytes | None, most: int | None) -> str:
    if value is None:
        return "null"
    try:
        return _payload(Payload(value.decode(), None, len(value)), most)
    except UnicodeDecodeError:
        return _payload(Payload(None, value, len(value)), most)


def _percent(share: float | None) -> str:
    percent = 100 * (share or 0)
    return f"{percent:.1f}%" if percent >= 0.1 else f"{percent:.2g}%"


def _time(at: Time | None) -> str:
    if at is None:
        return "?"
    utc = at.text if isinstance(at, FarTime) else at.replace(tzinfo=UTC).isoformat(timespec="microseconds")
    return utc.partition(".")[0].replace("T", " ")
