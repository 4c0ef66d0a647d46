"""`penstock shell`: queries at a prompt, with history and completion."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import Directory, load_plan
from penstock.cli.sql import SHOWN, Tombstones
from penstock.errors import PenstockError, SetupError, UsageError
from penstock.sql.statement import BEGINNINGS, split

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.sql.reader import SqlReader


# Lines typed at the prompt, put together to statements; remembered, and completed by the names of tables.


_REMEMBERED = 1000
_WORDS = (*BEGINNINGS, "WHERE", "GROUP BY", "ORDER BY", "HAVING", "JOIN", "LIMIT", "count(*)")
_COMMANDS = ("\\", "tables", "help", "quit", "exit")


def statements(read: Callable[[bool], str | None]) -> Iterator[str]:
    """Each statement with its `;`, and each command, which needs none. `read` gives a line, None at the end; it is told
    whether a statement has begun. What has begun then is one too."""
    begun = ""
    while (line := read(bool(begun))) is not None:
        if not begun and line.strip().startswith(_COMMANDS) and len(line.split()) <= 2:
            yield line.strip()
            continue
        done, begun = split(f"{begun}{line.rstrip()}\n")
        yield from (one.strip() for one in done)
    if begun.strip():
        yield begun.strip()


def lines(project: str, names: Sequence[str], history: Path) -> Iterator[str]:
    """Statements from the terminal. Ctrl-C forgets what was typed, Ctrl-D ends it."""
    memory = _Memory(names, history)

    def read(begun: bool) -> str | None:
        return input(f"{'':{len(project)}}| " if begun else f"{project}> ")

    while True:
        try:
            for one in statements(read):
                memory.add(one)
                yield one
        except KeyboardInterrupt:
            print()
        except EOFError:
            print()
            return


class _Memory:
    """History and completion, where Python has them."""

    def __init__(self, names: Sequence[str], history: Path) -> None:
        self._history = history
        self._readline: Any = None
        with suppress(ImportError):
            import readline

            self._readline = readline
            readline.set_auto_history(False)
            readline.set_history_length(_REMEMBERED)
            with suppress(OSError):
                readline.read_history_file(history)
            candidates = [*names, *_WORDS]
            readline.set_completer(lambda text, number: _complete(candidates, text, number))
            apple = "libedit" in (readline.__doc__ or "")
            readline.parse_and_bind("bind ^I rl_complete" if apple else "tab: complete")

    def add(self, statement: str) -> None:
        if self._readline is None:
            return
        # A comment to the end of its line would swallow what comes after it.
        for line in statement.splitlines() if "--" in statement else [" ".join(statement.splitlines())]:
            self._readline.add_history(line)
        with suppress(OSError):
            self._history.parent.mkdir(parents=True, exist_ok=True)
            os.close(
                os.open(self._history, os.O_CREAT | os.O_WRONLY, 0o600)
            )  # queries may hold what nobody else may see
            self._readline.write_history_file(self._history)


def _complete(candidates: Sequence[str], text: str, number: int) -> str | None:
    found = [one for one in candidates if one.casefold().startswith(text.casefold())]
    return found[number] if number < len(found) else None


# `penstock shell`.


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
    from penstock.sql.reader import open_reader

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

        err.print(f"{len(reader.names.all)} tables; \\d lists them, \\? helps, \\q leaves. A query ends with ;")
        history = Path(plan.root) / ".penstock" / "shell_history"
        shell.run(lines(plan.name, [one.name for one in reader.names.all], history), stop_at_error=False)


def _piped() -> Iterator[str]:
    """Statements and commands. What is left at the end is one too: there is nobody who could end it."""

    yield from statements(lambda _: next(sys.stdin, None))


class Shell:
    def __init__(self, reader: SqlReader, limit: int | None) -> None:
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
        from penstock.cli.sql_output import PIPED

        with self._err.status("reading …"):
            view = made()
        print_view(view, piped=PIPED)

    def _answer(self, given: str) -> None:
        from penstock.cli.sql_output import ask_people, columns_view, tables_view
        from penstock.sql.statement import read_statement

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
