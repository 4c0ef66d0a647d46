"""`penstock sql`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import AsJson, Directory, load_plan
from penstock.errors import UsageError

SHOWN = 100
"""Rows that people see if they do not say how many."""

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
            help="At most so many rows; 0: all.",
            show_default=f"{SHOWN}; with --json or --csv all",
        ),
    ] = None,
    tombstones: Tombstones = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output, with a header.")] = False,
    as_json: AsJson = False,
    directory: Directory = None,
) -> None:
    """Ask a query of the tables, by their names, as of any version; nothing can be changed.

    Spark's SQL over the tables of the project, their quarantines (silver.orders__quarantine) and the ledgers of its
    sinks. A version or a time stands behind a name: silver.orders@v12, silver.orders@"2026-05-14 09:00". Without one it
    is the newest, the same for every mention within a query.
    """
    if as_csv and as_json:
        raise UsageError("--csv and --json at once", hint="choose one of them")
    text = _text(query, file)

    from penstock.cli.console import err
    from penstock.sql.statement import read_statement, refuse_early

    plan = load_plan(directory)
    statement = read_statement(text)
    refuse_early(plan, statement)

    from penstock.cli.sql_output import CUT, ask_people, first, kept_aside, write_csv, write_json
    from penstock.sql.reader import open_reader

    most = (None if as_json or as_csv else SHOWN) if limit is None else limit or None
    with (
        err.status("starting Spark …") as status,
        open_reader(plan, tombstones=tombstones, say=status.update) as reader,
    ):
        status.update("reading …")
        if not as_json and not as_csv:
            ask_people(reader, statement, most, status.stop)
            return
        with kept_aside() as aside:
            with reader.ask(statement) as answer:
                cut = (write_json if as_json else write_csv)(answer, most, aside)
            status.stop()
        if cut and most is not None:
            err.print(f"{first(most)}; {CUT}")


def _text(query: str | None, file: Path | None) -> str:
    """The query from where it is: the command line, a file, standard input."""
    if (query is None) == (file is None):
        raise UsageError(
            "there is no query" if query is None else "there are two queries: one given, and one in a file",
            hint='write penstock sql "SELECT * FROM bronze.orders", or -f FILE, or - to read it from standard input',
        )
    try:
        if file is not None:
            return file.read_text(encoding="utf-8")
        return sys.stdin.read() if query == "-" else str(query)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file or 'standard input'} is no text in UTF-8") from None
