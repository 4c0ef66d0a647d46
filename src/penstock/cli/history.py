"""`penstock history`: a line per commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.options import AsJson, Directory, load_plan
from penstock.ledger.position import VERSIONS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.ledger.position import Range
    from penstock.operations.history import Line

# What `history` shows: a line per commit.


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


# `penstock history`.


def command(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The table.", show_default=False)],
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="At most so many commits; 0: all.")] = 20,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """The commits of a table with their ledger entries, newest first.

    Shows for every version who made it, its batch, its rows and the offsets that it read; also the commits that
    Penstock did not make. Goes back as far as Delta keeps its log, 30 days by default.
    """
    from penstock.operations.history import document, history
    from penstock.plan.build import choose
    from penstock.storage.stores import open_store

    plan = load_plan(directory)
    (chosen,) = choose(plan, [table])
    lines = history(chosen, open_store(plan), limit or None)
    if as_json:
        from penstock.cli.console import print_json

        print_json({"table": chosen.name, "commits": [document(line) for line in lines]})
        return
    from penstock.cli.console import out

    if not out.is_terminal:  # piped, there is no width to keep to: a commit stays on its line for grep
        out.width = 200
    out.print(history_view(chosen.name, lines))
