"""`penstock history`: a line per commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from penstock.cli.console import fold, left, plain_table, print_json, print_view, right, visible
from penstock.cli.options import AsJson, Directory, TableName, load_table
from penstock.ledger.position import VERSIONS
from penstock.spec.quantity import time_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.ledger.position import Range
    from penstock.operations.history import HistoryLine

# What `history` prints. Operations, notes and positions are those of whoever committed: they pass `visible` first.


RANGES_SHOWN = 4
_STYLES = {"foreign append": "yellow", "foreign change": "bold red", "maintenance": "dim"}


def history_view(table: str, lines: Sequence[HistoryLine]) -> RenderableType:
    if not lines:
        return Text.assemble((table, "bold"), " is not created yet: `penstock run` makes it")
    grid = plain_table(*right("version"), *left("time (UTC)", "what", "batch"), *right("rows", "files"), *fold("read"))
    for line in lines:
        style = _STYLES.get(line.origin, "")
        grid.add_row(
            Text(str(line.version)),
            Text(time_text(line.timestamp_ms)),
            Text(visible(_origin_text(line)), style=style),
            Text("" if line.batch is None else f"{line.generation}.{line.batch}"),
            Text(f"{line.rows:,}" if line.rows else ""),
            Text(_files_text(line)),
            _read_text(line),
        )
    return grid


def _origin_text(line: HistoryLine) -> str:
    if line.kind is not None:
        return line.kind if line.origin in ("ledger", "maintenance") else f"{line.origin} ({line.operation})"
    return line.operation if line.origin == "maintenance" else f"{line.origin} ({line.operation})"


def _files_text(line: HistoryLine) -> str:
    return f"+{line.files_added}" * bool(line.files_added) + f" -{line.files_removed}" * bool(line.files_removed)


def _read_text(line: HistoryLine) -> Text:
    if line.kind == "genesis":
        return Text(visible(f"starts at {', '.join(line.position)}"), style="dim")
    text = Text(visible(_ranges_text(line.read)))
    if line.changed:
        text.append(("; " if text.plain else "") + _changes_text(line.changed), style="dim")
    if line.note:
        text.append(("; " if text.plain else "") + visible(line.note), style="yellow" if line.kind is None else "")
    return text


def _changes_text(numbers: Mapping[str, int]) -> str:
    """`3 inserted, 5 updated; 2 of 40 files looked at`."""
    kinds = ("inserted", "updated", "deleted", "redacted", "superseded", "conflicts")
    parts = [f"{numbers[kind]:,} {kind}" for kind in kinds if numbers.get(kind)]
    scanned = f"{numbers.get('scanned', 0):,} of {numbers['files']:,} files looked at" if "files" in numbers else ""
    return "; ".join(filter(None, (", ".join(parts), scanned)))


def _ranges_text(ranges: Sequence[Range]) -> str:
    """`orders 0 [5, 9), 1 [0, 3)` reads offsets 5 to 8 and 0 to 2."""
    topics: dict[str, list[str]] = {}
    for span in ranges[:RANGES_SHOWN]:
        is_delta = span.topic == VERSIONS
        interval = f"[{span.start}, {span.end})" if is_delta else f"{span.partition} [{span.start}, {span.end})"
        topics.setdefault("versions" if is_delta else span.topic, []).append(interval)
    more = f", and {len(ranges) - RANGES_SHOWN} more" if len(ranges) > RANGES_SHOWN else ""
    return "; ".join(f"{topic} {', '.join(parts)}" for topic, parts in topics.items()) + more


def command(
    table: TableName,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="At most this many commits; 0: all.")] = 20,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """The commits of a table with their ledger entries, newest first.

    Shows for every version who made it, its batch, its rows and the offsets that it read; also the commits that
    Penstock did not make. Goes back as far as Delta keeps its log, 30 days by default.
    """
    from penstock.operations.history import document, history

    _, table_plan, store = load_table(directory, table)
    lines = history(table_plan, store, limit or None)
    if as_json:
        print_json({"table": table_plan.name, "commits": [document(line) for line in lines]})
    else:
        print_view(history_view(table_plan.name, lines), piped=200)
