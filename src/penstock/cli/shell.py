"""`penstock shell`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import Directory, load_plan
from penstock.cli.sql import SHOWN, Tombstones
from penstock.errors import PenstockError, SetupError, UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.ops.sql.reader import Reader

HELP = r"""A query ends with ; and may take several lines. A version or a time stands behind a name:
  SELECT * FROM silver.orders@v12;    SELECT * FROM silver.orders@"2026-05-14 09:00";
\d or tables   the tables and their columns
\d NAME        the columns of one table, with their types
\q             leave (also Ctrl-D). Ctrl-C ends a query that runs, or forgets what was typed
"""
_LEAVE = (r"\q", "quit", "exit")


def command(
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Rows shown of each answer; 0: all.")] = SHOWN,
    tombstones: Tombstones = False,
    directory: Directory = None,
) -> None:
    """Ask queries at a prompt, in one session: the first answer takes seconds, the next ones do not.

    A query ends with a semicolon. \\d lists the tables, \\q leaves, \\? says the rest. What `penstock sql --help` says
    about names and versions holds here too. Without a terminal the queries are read from standard input, and the first
    one that fails ends it.
    """
    from penstock.cli.console import err
    from penstock.ops.sql.reader import open_reader

    plan = load_plan(directory)
    with (
        err.status("starting Spark …") as status,
        open_reader(plan, tombstones=tombstones, say=status.update) as reader,
    ):
        status.stop()
        shell = Shell(reader, limit or None)
        if not sys.stdin.isatty():
            shell.run(_piped(), stop_at_error=True)
            return
        from penstock.cli.shell_line import lines

        err.print(f"{len(reader.names.all)} tables; \\d lists them, \\? helps, \\q leaves. A query ends with ;")
        history = Path(plan.root) / ".penstock" / "shell_history"
        shell.run(lines(plan.name, [one.name for one in reader.names.all], history), stop_at_error=False)


def _piped() -> Iterator[str]:
    """Statements and commands. What is left at the end is one too: there is nobody who could end it."""
    from penstock.cli.shell_line import statements

    yield from statements(lambda _: next(sys.stdin, None))


class Shell:
    def __init__(self, reader: Reader, limit: int | None) -> None:
        from penstock.cli.console import err, out

        self._reader, self._limit = reader, limit
        self._out, self._err = out, err

    def run(self, given: Iterator[str], *, stop_at_error: bool) -> None:
        """Until there is no more, or `\\q`."""
        for one in given:
            if one.rstrip("; ") in _LEAVE:
                return
            try:
                self._answer(one)
            except KeyboardInterrupt:
                self._err.print("ended")
            except PenstockError as error:
                if stop_at_error or isinstance(error, SetupError):
                    raise
                from rich.text import Text

                self._err.print(Text.assemble(("error: ", "bold red"), str(error)), soft_wrap=True)

    def _show(self, made: Callable[[], RenderableType]) -> None:
        from penstock.cli.console import print_view
        from penstock.cli.sql_view import PIPED

        with self._err.status("reading …"):
            view = made()
        print_view(view, piped=PIPED)

    def _answer(self, given: str) -> None:
        from penstock.cli.sql_view import ask_people
        from penstock.cli.tables_view import columns_view, tables_view
        from penstock.ops.sql.statement import read_statement

        words = given.rstrip("; ").split()
        if not words:
            return
        if words[0] in (r"\?", r"\h", "help"):
            self._out.print(HELP, end="", markup=False)
        elif words in ([r"\d"], ["tables"]):
            self._show(lambda: tables_view(self._reader))
        elif words[0] == r"\d" and len(words) == 2:
            self._show(lambda: columns_view(self._reader, words[1]))
        elif words[0].startswith("\\"):
            raise UsageError(f"{words[0]} is no command", hint=r"\d lists tables, \q leaves, \? helps")
        else:
            statement = read_statement(given)
            with self._err.status("reading …") as status:
                ask_people(self._reader, statement, self._limit, status.stop)
