"""`penstock shell`: queries at a prompt, with history and completion."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from penstock.cli.console import err, error_text, out, print_view
from penstock.cli.options import Directory, load_plan
from penstock.cli.sql import SHOWN, Tombstones
from penstock.errors import PenstockError, SetupError, UsageError
from penstock.spark.jvm import jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import RenderableType

    from penstock.sql.reader import SqlReader


# Reading statements from the prompt, with history and completion of table names.


_REMEMBERED = 1000
_WORDS = (
    *("SELECT", "WITH", "FROM", "VALUES", "TABLE", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "JOIN", "LIMIT"),
    *("VERSION AS OF", "TIMESTAMP AS OF", "count(*)"),
)
_COMMANDS = ("\\", "tables", "help", "quit", "exit")
Split = Callable[[str], tuple[list[str], str]]


def split(session: SparkSession, text: str) -> tuple[list[str], str]:
    """The statements that end with `;`, as Spark's own lexer sees them, and the unfinished rest."""
    from py4j.java_gateway import get_field

    jvm = jvm_of(session)
    parser = jvm.org.apache.spark.sql.catalyst.parser
    characters = parser.UpperCaseCharStream(jvm.org.antlr.v4.runtime.CharStreams.fromString(text))
    lexer = parser.SqlBaseLexer(characters)
    complete: list[str] = []
    start, in_statement = 0, False
    for token in lexer.getAllTokens():
        if token.getChannel() != 0:  # white space, or a comment
            continue
        in_statement = True
        if token.getText() in ("'", '"', "`"):  # a string or quoted name that is not closed yet
            break
        if token.getText() == ";":
            end = int(token.getStopIndex()) + 1
            complete.append(text[start:end])
            start, in_statement = end, False
    in_statement = in_statement or get_field(lexer, "has_unclosed_bracketed_comment")
    return complete, text[start:] if in_statement else ""


def statements(read: Callable[[bool], str | None], splitter: Split) -> Iterator[str]:
    """Each statement with its `;`, and each command, which needs none. `read` returns a line, or None at the end; its
    argument says whether a statement has begun. An unfinished statement at the end is yielded too."""
    pending = ""
    while (line := read(bool(pending))) is not None:
        if not pending and line.strip().startswith(_COMMANDS) and len(line.split()) <= 2:
            yield line.strip()
            continue
        pending += f"{line.rstrip()}\n"
        if ";" in line or pending.count("\n") == 1:
            complete, pending = splitter(pending)
            yield from (statement.strip() for statement in complete)
    if pending.strip():
        yield pending.strip()


def prompt_statements(project: str, names: Sequence[str], history: Path, splitter: Split) -> Iterator[str]:
    """Statements from the terminal. Ctrl-C discards what was typed, Ctrl-D ends the prompt."""
    memory = _Memory(names, history)

    def read(continued: bool) -> str | None:
        return input(f"{'':{len(project)}}| " if continued else f"{project}> ")

    while True:
        try:
            for statement in statements(read, splitter):
                memory.add(statement)
                yield statement
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
            is_libedit = "libedit" in (readline.__doc__ or "")
            readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")

    def add(self, statement: str) -> None:
        if self._readline is None:
            return
        # Joined to one line, a `--` comment would swallow everything after it.
        for line in statement.splitlines() if "--" in statement else [" ".join(statement.splitlines())]:
            self._readline.add_history(line)
        with suppress(OSError):
            self._history.parent.mkdir(parents=True, exist_ok=True)
            # Queries may contain data that other users must not see.
            os.close(os.open(self._history, os.O_CREAT | os.O_WRONLY, 0o600))
            self._readline.write_history_file(self._history)


def _complete(candidates: Sequence[str], text: str, number: int) -> str | None:
    matches = [candidate for candidate in candidates if candidate.casefold().startswith(text.casefold())]
    return matches[number] if number < len(matches) else None


# The command.


HELP = r"""A query ends with ; and may take several lines. A version or a time follows a table's name:
  SELECT * FROM silver.orders VERSION AS OF 12;
  SELECT * FROM silver.orders TIMESTAMP AS OF '2026-05-14 09:00';
\d or tables   the tables and their columns
\d NAME        the columns of one table, with their types
\q             leave (also Ctrl-D). Ctrl-C ends a query that runs, or discards what was typed
"""
_LEAVE = (r"\q", "quit", "exit")


def command(
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Rows shown of each answer; 0: all.")] = SHOWN,
    tombstones: Tombstones = False,
    directory: Directory = None,
) -> None:
    """Start an interactive SQL prompt: Spark starts once, so only the first answer takes seconds.

    A query ends with a semicolon. \\d lists the tables, \\q leaves, \\? shows help. Names and versions are written as
    for `penstock sql`. Without a terminal the queries are read from standard input, and the first error ends it.
    """
    from penstock.sql.reader import open_reader

    plan = load_plan(directory)
    with (
        err.status("starting Spark …") as status,
        open_reader(plan, tombstones=tombstones, say=lambda text: status.update(Text(text))) as reader,
    ):
        status.stop()
        shell, splitter = Shell(reader, limit or None), partial(split, reader.session)
        if not sys.stdin.isatty():
            shell.run(statements(lambda _: next(sys.stdin, None), splitter), stop_at_error=True)
            return

        names = [table.name for table in reader.names.all]
        err.print(f"{len(names)} tables; \\d lists them, \\? helps, \\q leaves. A query ends with ;")
        history = Path(plan.root) / ".penstock" / "shell_history"
        shell.run(prompt_statements(plan.name, names, history, splitter), stop_at_error=False)


class Shell:
    def __init__(self, reader: SqlReader, limit: int | None) -> None:
        self._reader, self._limit = reader, limit

    def run(self, inputs: Iterator[str], *, stop_at_error: bool) -> None:
        """Answers each statement, until there are no more or one is `\\q`."""
        for statement in inputs:
            if statement.rstrip("; ") in _LEAVE:
                return
            try:
                self._answer(statement)
            except KeyboardInterrupt:
                err.print("ended")
            except PenstockError as error:
                if stop_at_error or isinstance(error, SetupError):
                    raise
                err.print(error_text(error), soft_wrap=True)

    def _show(self, render: Callable[[], RenderableType]) -> None:
        from penstock.cli.sql_output import PIPED

        with err.status("reading …"):
            view = render()
        print_view(view, piped=PIPED)

    def _answer(self, statement: str) -> None:
        from penstock.cli.sql_output import ask_people, columns_view, tables_view

        words = statement.rstrip("; ").split()
        if not words:
            return
        if words[0] in (r"\?", r"\h", "help"):
            out.print(HELP, end="")
        elif words in ([r"\d"], ["tables"]):
            self._show(lambda: tables_view(self._reader))
        elif words[0] == r"\d" and len(words) == 2:
            self._show(lambda: columns_view(self._reader, words[1]))
        elif words[0].startswith("\\"):
            raise UsageError(f"{words[0]} is not a command", hint=r"\d lists tables, \q leaves, \? helps")
        else:
            with err.status("reading …") as status:
                ask_people(self._reader, statement, self._limit, status.stop)
