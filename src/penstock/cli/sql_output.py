"""What `sql` and `shell` print: rows as a table for people, JSON or CSV for programs, tables and their columns."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Literal

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.cli.console import err, out, print_view, visible, visible_json
from penstock.errors import PenstockError
from penstock.sql.reader import json_values, texts

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.sql.reader import QueryResult, SqlReader, Values
    from penstock.sql.statement import Statement

# What `sql` writes for programs: JSON or CSV. All of it or nothing: it is kept aside until it is whole.


_IN_MEMORY = 8 << 20


@contextmanager
def kept_aside() -> Iterator[IO[str]]:
    """What is written to it goes to standard output at the end, unless there was an error."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8", newline="") as aside:
        yield aside
        aside.seek(0)
        try:
            shutil.copyfileobj(aside, sys.stdout)
            sys.stdout.flush()
        except BrokenPipeError:  # who reads it has enough; Python would complain once more as it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_json(answer: QueryResult, limit: int | None, out: IO[str]) -> bool:
    """Values as Spark writes them: a decimal keeps its digits. Whether there are more rows than `limit`."""
    columns = visible_json(json.dumps(answer.frame.columns, ensure_ascii=False))
    out.write(f'{{\n  "columns": {columns},\n  "rows": [')
    truncated = False
    for number, row in enumerate(json_values(answer.frame, limit)):
        if number == limit:
            truncated = True
            break
        out.write(f"{',' if number else ''}\n    [{visible_json(', '.join(row))}]")
    read = [{"table": one.table.name, "version": one.version} for one in answer.read]
    out.write(f'\n  ],\n  "truncated": {json.dumps(truncated)},\n  "read": {json.dumps(read)}\n}}\n')
    return truncated


def write_csv(answer: QueryResult, limit: int | None, out: IO[str]) -> bool:
    """With a header. NULL is nothing at all, an empty text is `""`. Whether there are more rows than `limit`."""
    out.write(",".join(map(_field, answer.frame.columns)) + "\n")
    for number, row in enumerate(texts(answer.frame, limit)):
        if number == limit:
            return True
        out.write(",".join(map(_field, row)) + "\n")
    return False


def _field(value: str | None) -> str:
    if value is None:
        return ""
    if not value or any(sign in value for sign in ',"\r\n') or value != value.strip():
        return '"' + value.replace('"', '""') + '"'
    return value


# What `sql` and `shell` show to people: rows as a table, or one below the other where a table would not fit.


_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_NARROWEST = 12
"""A column that is cut to less says nothing."""
PIPED = 1_000_000
"""Columns, if it is piped: a row stays on its line, whole, for grep."""
_TABLES_NAMED = 4
CUT = "there are more: --limit 0 shows all"


def ask_people(reader: SqlReader, statement: Statement, limit: int | None, ready: Callable[[], None]) -> None:
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


def note(answer: QueryResult, shown: int, truncated: bool, seconds: float) -> str:
    """How much of what was shown."""
    rows = f"{shown:,} row{'' if shown == 1 else 's'}"
    of = f" of {', '.join(map(str, answer.read[:_TABLES_NAMED]))}" if answer.read else ""
    more = f" and {len(answer.read) - _TABLES_NAMED} more" if len(answer.read) > _TABLES_NAMED else ""
    said = f"{first(shown)}{of}{more}; {CUT}" if truncated else f"{rows}{of}{more}"
    return f"{said} ({seconds:.1f} s)"


def first(rows: int) -> str:
    return "the first row" if rows == 1 else f"the first {rows:,} rows"


# The tables of a project and their columns, as `\d` shows them.


def tables_view(reader: SqlReader) -> RenderableType:
    """A table that cannot be read is said in its place."""
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("table", no_wrap=True)
    grid.add_column("version", justify="right")
    grid.add_column("columns", overflow="fold")
    for table in reader.names.all:
        try:
            found = reader.columns(table)
        except PenstockError as error:
            grid.add_row(Text(table.name), "", Text(error.message, style="red"))
            continue
        if found is None:
            grid.add_row(Text(table.name), "", Text("not created yet", style="dim"))
        else:
            version, columns = found
            grid.add_row(Text(table.name), str(version), Text(visible(", ".join(columns))))
    return grid


def columns_view(reader: SqlReader, name: str) -> RenderableType:
    table = reader.names.find([part.strip("`") for part in name.split(".")], "")
    found = reader.columns(table)
    if found is None:
        return Text(f"{table.name} is not created yet: `penstock run` makes it")
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("column", no_wrap=True)
    grid.add_column("type", overflow="fold")
    for column, kind in found[1].items():
        grid.add_row(Text(visible(column)), Text(visible(kind)))
    return grid
