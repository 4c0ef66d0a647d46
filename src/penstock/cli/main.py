"""The `penstock` command.

Each verb is one file beside this one, loaded when it is called: `--help` and `validate` start in a fraction of a second
because nothing here loads Spark, Delta or a Kafka client.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from penstock import __version__
from penstock.cli.options import before_verb
from penstock.errors import PenstockError, error_document

# The verbs in the order in which a user meets them. `--help` needs one line for each, so it is here: loading every file
# for it would take longer than everything else.


START, RUN, WATCH, DEV = "Start", "Run", "Look and prove", "Development"
VERBS = {
    "init": (START, "Write a small working project."),
    "validate": (START, "Check the project file, and say all that is wrong."),
    "plan": (START, "Show what run will do: tables, sources, settings and why."),
    "run": (RUN, "Run the tables: until stopped, or --once up to what is there now."),
    "replay": (RUN, "Rebuild a table from its source with its current definition."),
    "rewind": (RUN, "Take a table back to an earlier version, and read again from there."),
    "checkpoints": (RUN, "Inspect, repair or reset checkpoints."),
    "optimize": (RUN, "Rewrite small files as large ones, where it pays."),
    "vacuum": (RUN, "Delete files that no version and no reader needs any more."),
    "forget": (RUN, "Erase a person from every table, file and log, and prove it."),
    "status": (WATCH, "Per table: state, last batch, rows, position and lag."),
    "history": (WATCH, "The commits of a table with their ledger entries."),
    "dlq": (WATCH, "List, show and rerun rejected rows."),
    "verify": (WATCH, "Prove that every record is in its table once, and every number right."),
    "doctor": (WATCH, "What breaks in production, found before it does, with what to do."),
    "sql": (WATCH, "Query the tables by name, as of any version."),
    "shell": (WATCH, "Start an interactive SQL prompt."),
    "demo": (DEV, "All of this in a minute: a broker, events, tables, a proof."),
    "kafka": (DEV, "A Kafka broker for development, on this machine only."),
    "generate": (DEV, "Realistic events into a topic."),
    "jars": (DEV, "The jars of Spark's connectors and of the development broker."),
}


class Verbs(TyperGroup):
    """A verb's file has either `command` (one function) or `group` (a Typer with sub-verbs)."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {
            verb: TyperCommand(verb, help=line, rich_help_panel=panel, rich_markup_mode="rich")
            for verb, (panel, line) in VERBS.items()
        }
        self._for_help = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if self._for_help or cmd_name not in self.commands:
            return super().get_command(ctx, cmd_name)
        return _load(cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._for_help = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._for_help = False


def _load(verb: str) -> Any:
    module = importlib.import_module(f"penstock.cli.{verb}")
    if hasattr(module, "group"):
        loaded: Any = get_group(module.group)
        loaded.name = verb
        return loaded
    app = typer.Typer(add_completion=False, rich_markup_mode="rich")
    app.command(verb)(module.command)
    return get_command(app)


app = typer.Typer(
    name="penstock",
    cls=Verbs,
    help="Land Kafka topics in Delta Lake exactly once, and prove it.\n\n"
    "A project is a folder with a penstock.yml. [bold]init[/bold] writes one, [bold]validate[/bold] checks it, "
    "[bold]run[/bold] runs it, [bold]status[/bold] shows it, and [bold]verify[/bold] proves that every record "
    "is in its table once. [bold]demo[/bold] shows all of that in a minute.",
    epilog="Exit code: 0 fine, 1 the answer is no, 2 wrong use or a wrong project file, 3 a failure while running.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    directory: Annotated[Path | None, typer.Option("-C", metavar="DIR", help="The project folder.")] = None,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="The version.")] = False,
) -> None:
    before_verb.set(directory)


def main() -> None:
    # Py4J logs a dead JVM to the root logger, with a traceback; the user gets an error from Penstock instead.
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        app()
    except PenstockError as error:
        from penstock.cli.console import err, error_text, print_json

        if "--json" in sys.argv:
            print_json({"error": error_document(error)})
        err.print(error_text(error), soft_wrap=True)
        sys.exit(error.exit_code)
    except Exception as error:
        if os.environ.get("PENSTOCK_TRACEBACK"):
            raise
        from penstock.cli.console import visible_lines

        sys.stderr.write(visible_lines(f"error: something unexpected: {type(error).__name__}: {error}\n"))
        sys.stderr.write("  -> run it again with PENSTOCK_TRACEBACK=1 to see where, and please report it\n")
        sys.exit(3)


if __name__ == "__main__":
    main()
