"""What `history` shows: a line per commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from penstock.engine.protocol.position import VERSIONS, Range
from penstock.ops.history import Line

RANGES_SHOWN = 4
_STYLES = {"foreign append": "yellow", "foreign change": "bold red", "maintenance": "dim"}


def history_view(table: str, lines: Sequence[Line]) -> RenderableType:
    if not lines:
        return Text.assemble((table, "bold"), " is not created yet: `penstock run` makes it")
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("version", justify="right")
    grid.add_column("time (UTC)", no_wrap=True)
    grid.add_column("what", no_wrap=True)
    grid.add_column("batch", no_wrap=True)
    grid.add_column("rows", justify="right", no_wrap=True)
    grid.add_column("files", justify="right", no_wrap=True)
    grid.add_column("read", overflow="fold", ratio=1)
    for line in lines:
        style = _STYLES.get(line.origin, "")
        grid.add_row(
            Text(str(line.version)),
            Text(_time(line.timestamp_ms)),
            Text(_what(line), style=style),
            Text("" if line.batch is None else f"{line.generation}.{line.batch}"),
            Text(f"{line.rows:,}" if line.rows else ""),
            Text(_files(line)),
            _read(line),
        )
    return grid


def _what(line: Line) -> str:
    if line.kind is not None:
        return line.kind if line.origin in ("ledger", "maintenance") else f"{line.origin} ({line.operation})"
    return line.operation if line.origin == "maintenance" else f"{line.origin} ({line.operation})"


def _files(line: Line) -> str:
    return f"+{line.files_added}" * bool(line.files_added) + f" -{line.files_removed}" * bool(line.files_removed)


def _read(line: Line) -> Text:
    if line.kind == "genesis":
        return Text(f"starts at {', '.join(line.position)}", style="dim")
    text = Text(_compact(line.read))
    if line.changed:
        text.append(("; " if text.plain else "") + _changed(line.changed), style="dim")
    if line.note:
        text.append(("; " if text.plain else "") + line.note, style="yellow" if line.kind is None else "")
    return text


def _changed(numbers: Mapping[str, int]) -> str:
    """`3 inserted, 5 updated; 2 of 40 files looked at`."""
    kinds = ("inserted", "updated", "deleted", "redacted", "superseded", "conflicts")
    parts = [f"{numbers[kind]:,} {kind}" for kind in kinds if numbers.get(kind)]
    looked = f"{numbers.get('scanned', 0):,} of {numbers['files']:,} files looked at" if "files" in numbers else ""
    return "; ".join(filter(None, (", ".join(parts), looked)))


def _compact(read: Sequence[Range]) -> str:
    """`orders 0 [5, 9), 1 [0, 3)` reads offsets 5 to 8 and 0 to 2."""
    topics: dict[str, list[str]] = {}
    for one in read[:RANGES_SHOWN]:
        versions = one.topic == VERSIONS
        place = f"[{one.start}, {one.end})" if versions else f"{one.partition} [{one.start}, {one.end})"
        topics.setdefault("versions" if versions else one.topic, []).append(place)
    more = f", and {len(read) - RANGES_SHOWN} more" if len(read) > RANGES_SHOWN else ""
    return "; ".join(f"{topic} {', '.join(parts)}" for topic, parts in topics.items()) + more


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
