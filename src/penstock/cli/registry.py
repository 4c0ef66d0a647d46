"""The verbs in the order in which a user meets them, each loaded only when it is called.

`--help` needs one line for each, so it is here: loading every file for it would take longer than everything else.
"""

from __future__ import annotations

import importlib
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

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
