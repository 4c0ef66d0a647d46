"""What `sql` and `shell` show to people: rows as a table, or one below the other where a table would not fit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.console import err, out, print_view
from penstock.cli.visible import visible
from penstock.ops.sql.reader import Answer, Reader
from penstock.ops.sql.statement import Statement
from penstock.ops.sql.values import Values, texts

_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_NARROWEST = 12
"""A column that is cut to less says nothing."""
PIPED = 1_000_000
"""Columns, if it is piped: a row stays on its line, whole, for grep."""
_TABLES_NAMED = 4
CUT = "there are more: --limit 0 shows all"


def ask_people(reader: Reader, statement: Statement, limit: int | None, ready: Callable[[], None]) -> None:
    """Asks, and shows the rows; `ready` is called in between. How many they are goes to standard error."""
    began = time.monotonic()
    with reader.ask(statement) as answer:
        rows = list(texts(answer.frame, limit))
        columns = [(field.name, field.dataType.simpleString()) for field in answer.frame.schema.fields]
    ready()
    truncated = limit is not None and len(rows) > limit
    rows = rows[:limit]
    print_view(rows_view(columns, rows, out.width if out.is_terminal else None), piped=PIPED)
    err.print(Text(note(answer, len(rows), truncated, time.monotonic() - began), style="dim"), soft_wrap=True)


def rows_view(columns: Sequence[tuple[str, str]], rows: Sequence[Values], width: int | None) -> RenderableType:
    """`columns` are names and types; `width` is that of the terminal, None where there is none to keep to."""
    names = [visible(name) for name, _ in columns]
    cells = [[None if value is None else visible(value) for value in row] for row in rows]
    if not names:
        return Text("no columns", style="dim")
    widths = [max(cell_len(name), *(cell_len(row[at] or "NULL") for row in cells), 0) for at, name in enumerate(names)]
    if width is not None:
        room = width - 1 - 3 * len(names)
        if sum(min(one, _NARROWEST) for one in widths) > room:
            return Group(*_records(names, cells))
        widths = _fitted(widths, room)
    table = Table(header_style="bold")
    for (_, kind), name, one in zip(columns, names, widths, strict=True):
        side: Literal["left", "right"] = "right" if kind.startswith(_NUMBERS) else "left"
        table.add_column(Text(name), justify=side, no_wrap=True, overflow="ellipsis", width=one)
    for row in cells:
        table.add_row(*map(_cell, row))
    return table


def _fitted(widths: Sequence[int], room: int) -> list[int]:
    """Only the widest are cut, all to the same width."""
    most = max(widths)
    while sum(min(one, most) for one in widths) > room:
        most -= 1
    return [min(one, most) for one in widths]


def _records(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> Iterator[RenderableType]:
    for number, row in enumerate(rows, 1):
        yield Text(f"row {number}", style="bold")
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True)
        grid.add_column(overflow="fold")
        for name, value in zip(names, row, strict=True):
            grid.add_row(Text(f"  {name}"), _cell(value))
        yield grid


def _cell(value: str | None) -> Text:
    return Text("NULL", style="dim") if value is None else Text(value)


def note(answer: Answer, shown: int, truncated: bool, seconds: float) -> str:
    """How much of what was shown."""
    rows = f"{shown:,} row{'' if shown == 1 else 's'}"
    of = f" of {', '.join(map(str, answer.read[:_TABLES_NAMED]))}" if answer.read else ""
    more = f" and {len(answer.read) - _TABLES_NAMED} more" if len(answer.read) > _TABLES_NAMED else ""
    said = f"{first(shown)}{of}{more}; {CUT}" if truncated else f"{rows}{of}{more}"
    return f"{said} ({seconds:.1f} s)"


def first(rows: int) -> str:
    return "the first row" if rows == 1 else f"the first {rows:,} rows"
