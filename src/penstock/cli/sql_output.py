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
from typing import IO, TYPE_CHECKING, Literal, cast

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType, VariantType
from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.cli.console import err, fold, left, out, plain_table, print_view, right, visible, visible_json
from penstock.errors import PenstockError
from penstock.spark.sql_text import quote
from penstock.spec.quantity import counted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType
    from rich.console import RenderableType

    from penstock.sql.reader import QueryResult, SqlReader
    from penstock.sql.versions import Readable

# Values as text for people and as JSON for programs. Spark writes both: in Python a time would be in the machine's zone
# and in a small range of years, and a decimal would become a double.


Values = tuple[str | None, ...]
_COLLECTED = 10_000
"""Up to this many rows are collected at once; more of them come partition by partition."""
_NESTED = (ArrayType, MapType, StructType, VariantType)
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def texts(frame: DataFrame, limit: int | None) -> Iterator[Values]:
    """Each value as text, None for NULL; nested values as JSON, bytes as hexadecimal digits. Yields one row more than
    `limit`, if there is one, so that the caller sees that there are more."""
    return _rows(frame, limit, _text)


def json_values(frame: DataFrame, limit: int | None) -> Iterator[list[str]]:
    """Each value as a piece of JSON; bytes as base64. One row more than `limit`, as in `texts`."""
    for row in _rows(frame, limit, _json):
        yield [cast(str, value)[1:-1] for value in row]


def _rows(frame: DataFrame, limit: int | None, to_text: Callable[[Column, DataType], Column]) -> Iterator[Values]:
    types = [field.dataType for field in frame.schema.fields]
    names = [f"c{number}" for number in range(len(types))]  # the query's own names may be duplicate or empty
    rows = frame.toDF(*names).select(
        *(to_text(F.col(name), data_type).alias(name) for name, data_type in zip(names, types, strict=True))
    )
    if limit is not None and limit <= _COLLECTED:
        return (tuple(row) for row in rows.take(limit + 1))
    rows = rows if limit is None else rows.limit(limit + 1)
    return (tuple(row) for row in rows.toLocalIterator())


def _text(value: Column, data_type: DataType) -> Column:
    if isinstance(data_type, BinaryType):
        return F.hex(value)
    return F.to_json(value, _JSON) if isinstance(data_type, _NESTED) else value.cast("string")


def _json(value: Column, _: DataType) -> Column:
    return F.to_json(F.array(value), _JSON)


# Output for programs: JSON or CSV, complete or nothing at all. It is buffered until it is complete.


_IN_MEMORY = 8 << 20


@contextmanager
def buffered_stdout() -> Iterator[IO[str]]:
    """A file whose content goes to standard output at the end, unless there is an error."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8", newline="") as aside:
        yield aside
        aside.seek(0)
        try:
            shutil.copyfileobj(aside, sys.stdout)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader has closed the pipe; Python would report that once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_json(answer: QueryResult, limit: int | None, output: IO[str]) -> bool:
    """Values as Spark writes them: a decimal keeps its digits. Returns whether there are more rows than `limit`."""
    columns = visible_json(json.dumps(answer.frame.columns, ensure_ascii=False))
    output.write(f'{{\n  "columns": {columns},\n  "rows": [')
    truncated = False
    for index, row in enumerate(json_values(answer.frame, limit)):
        if index == limit:
            truncated = True
            break
        output.write(f"{',' if index else ''}\n    [{visible_json(', '.join(row))}]")
    read = [{"table": pinned.table.name, "version": pinned.version} for pinned in answer.table_versions]
    output.write(f'\n  ],\n  "truncated": {json.dumps(truncated)},\n  "read": {json.dumps(read)}\n}}\n')
    return truncated


def write_csv(answer: QueryResult, limit: int | None, output: IO[str]) -> bool:
    """With a header. NULL is an empty field, an empty text `""`. Returns whether there are more rows than `limit`."""
    output.write(",".join(map(_field, answer.frame.columns)) + "\n")
    for index, row in enumerate(texts(answer.frame, limit)):
        if index == limit:
            return True
        output.write(",".join(map(_field, row)) + "\n")
    return False


def _field(value: str | None) -> str:
    if value is None:
        return ""
    if not value or any(sign in value for sign in ',"\r\n') or value != value.strip():
        return '"' + value.replace('"', '""') + '"'
    return value


# Output for people: rows as a table, or one below the other if a table does not fit.


_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_NARROWEST = 12
"""A narrower column shows nothing useful."""
PIPED = 1_000_000
"""Width of a pipe: each row stays on one line, for grep."""
_TABLES_NAMED = 4
TRUNCATED_HINT = "there are more: --limit 0 shows all"


def ask_people(reader: SqlReader, query: str, limit: int | None, ready: Callable[[], None]) -> None:
    """Runs the query and shows its rows; `ready` is called in between. The row count goes to standard error."""
    started = time.monotonic()
    with reader.ask(query) as answer:
        rows = list(texts(answer.frame, limit))
        columns = [(field.name, field.dataType.simpleString()) for field in answer.frame.schema.fields]
    ready()
    truncated = limit is not None and len(rows) > limit
    rows = rows[:limit]
    print_view(rows_view(columns, rows, out.width if out.is_terminal else None), piped=PIPED)
    err.print(
        Text(row_count_text(answer, len(rows), truncated, time.monotonic() - started), style="dim"), soft_wrap=True
    )


def rows_view(columns: Sequence[tuple[str, str]], rows: Sequence[Values], width: int | None) -> RenderableType:
    """`columns` are names and types; `width` is the terminal's, None without one."""
    names = [visible(name) for name, _ in columns]
    cells = [[None if value is None else visible(value) for value in row] for row in rows]
    if not names:
        return Text("no columns", style="dim")
    widths = [
        max(cell_len(name), *(cell_len(row[index] or "NULL") for row in cells), 0) for index, name in enumerate(names)
    ]
    if width is not None:
        space = width - 1 - 3 * len(names)
        if sum(min(column_width, _NARROWEST) for column_width in widths) > space:
            return Group(*_records(names, cells))
        widths = _fit_widths(widths, space)
    table = Table(header_style="bold")
    for (_, data_type), name, column_width in zip(columns, names, widths, strict=True):
        side: Literal["left", "right"] = "right" if data_type.startswith(_NUMBERS) else "left"
        table.add_column(Text(name), justify=side, no_wrap=True, overflow="ellipsis", width=column_width)
    for row in cells:
        table.add_row(*map(_cell, row))
    return table


def _fit_widths(widths: Sequence[int], space: int) -> list[int]:
    """Cuts only the widest columns, all to the same width."""
    limit = max(widths)
    while sum(min(width, limit) for width in widths) > space:
        limit -= 1
    return [min(width, limit) for width in widths]


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


def row_count_text(answer: QueryResult, shown: int, truncated: bool, seconds: float) -> str:
    """Says how many rows of which tables are shown."""
    versions = answer.table_versions
    tables = f" of {', '.join(map(str, versions[:_TABLES_NAMED]))}" if versions else ""
    tables += f" and {len(versions) - _TABLES_NAMED} more" if len(versions) > _TABLES_NAMED else ""
    rows = f"{first_rows_text(shown)}{tables}; {TRUNCATED_HINT}" if truncated else f"{counted(shown, 'row')}{tables}"
    return f"{rows} ({seconds:.1f} s)"


def first_rows_text(rows: int) -> str:
    return "the first row" if rows == 1 else f"the first {rows:,} rows"


# The tables of a project and their columns, as `\d` shows them.


def tables_view(reader: SqlReader) -> RenderableType:
    """For a table that cannot be read, its row shows why."""
    grid = plain_table(*left("table"), *right("version"), *fold("columns"))
    for table in reader.names.all:
        try:
            version, columns = _columns(reader, table)
            grid.add_row(Text(table.name), str(version), Text(visible(", ".join(columns))))
        except PenstockError as error:
            grid.add_row(Text(table.name), "", Text(visible(error.message), style="dim"))
    return grid


def columns_view(reader: SqlReader, name: str) -> RenderableType:
    table = reader.names.find([part.strip("`") for part in name.split(".")], "")
    grid = plain_table(*left("column"), *fold("type"))
    for column, data_type in _columns(reader, table)[1].items():
        grid.add_row(Text(visible(column)), Text(visible(data_type)))
    return grid


def _columns(reader: SqlReader, table: Readable) -> tuple[int, dict[str, str]]:
    """The newest version of a table, and its columns with their types."""
    with reader.ask(f"TABLE {'.'.join(map(quote, table.name.split('.')))}") as answer:
        fields = answer.frame.schema.fields
        return answer.table_versions[0].version, {field.name: field.dataType.simpleString() for field in fields}
