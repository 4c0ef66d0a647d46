"""`penstock sql`: one query over the tables of the project."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from penstock.cli.console import err
from penstock.cli.options import AsJson, Directory, load_plan
from penstock.errors import UsageError

SHOWN = 100
"""Rows shown to people by default."""

Tombstones = Annotated[
    bool, typer.Option("--tombstones", help="Also the deleted rows that merged tables keep: those with _deleted.")
]


def command(
    query: Annotated[
        str | None, typer.Argument(metavar="QUERY", help="One query; - reads it from standard input.")
    ] = None,
    file: Annotated[Path | None, typer.Option("-f", "--file", metavar="FILE", help="Read the query from here.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=0,
            help="At most this many rows; 0: all.",
            show_default=f"{SHOWN}; with --json or --csv all",
        ),
    ] = None,
    tombstones: Tombstones = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output, with a header.")] = False,
    as_json: AsJson = False,
    directory: Directory = None,
) -> None:
    """Query the tables by name, as of any version; nothing can be changed.

    Spark's SQL over the tables of the project, their quarantines (silver.orders__quarantine) and the ledgers of its
    sinks. A version or a time follows a name: silver.orders VERSION AS OF 12, silver.orders TIMESTAMP AS OF
    '2026-05-14 09:00'. Without one the newest version is read, the same for every mention within a query.
    """
    if as_csv and as_json:
        raise UsageError("--csv and --json at once", hint="choose one of them")
    text = _text(query, file)

    plan = load_plan(directory)

    from penstock.cli import sql_output
    from penstock.sql.reader import open_reader

    max_rows = (None if as_json or as_csv else SHOWN) if limit is None else limit or None
    with (
        err.status("starting Spark …") as status,
        open_reader(plan, tombstones=tombstones, say=lambda text: status.update(Text(text))) as reader,
    ):
        status.update("reading …")
        if not as_json and not as_csv:
            sql_output.ask_people(reader, text, max_rows, status.stop)
            return
        write = sql_output.write_json if as_json else sql_output.write_csv
        with sql_output.buffered_stdout() as aside:
            with reader.ask(text) as answer:
                truncated = write(answer, max_rows, aside)
            status.stop()
        if truncated and max_rows is not None:
            err.print(f"{sql_output.first_rows_text(max_rows)}; {sql_output.TRUNCATED_HINT}")


def _text(query: str | None, file: Path | None) -> str:
    """The query, from the command line, a file or standard input."""
    if query is not None and file is not None:
        raise UsageError("there are two queries: one on the command line, and one in a file", hint="choose one of them")
    try:
        text = file.read_text(encoding="utf-8") if file else sys.stdin.read() if query == "-" else query
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file or 'standard input'} is not UTF-8 text") from None
    if not text or not text.strip():
        raise UsageError(
            "there is no query",
            hint='write penstock sql "SELECT * FROM bronze.orders", or -f FILE, or - to read it from standard input',
        )
    return text
