"""Options that several verbs share, so that they read the same everywhere."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store


Directory = Annotated[
    Path | None,
    typer.Option("-C", "--project", metavar="DIR", help="The project folder: where penstock.yml is.", show_default="."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the steps, and do nothing.")]
TableName = Annotated[str, typer.Argument(metavar="TABLE", help="The table.", show_default=False)]
Tables = Annotated[
    list[str] | None, typer.Argument(metavar="[TABLE]...", help="Only these tables.", show_default="all")
]


before_verb: ContextVar[Path | None] = ContextVar("before_verb", default=None)
"""The folder of `penstock -C DIR VERB`."""


def project_folder(directory: Path | None) -> Path:
    """The folder of the -C after the verb, else of the -C before it, else the working directory."""
    return directory or before_verb.get() or Path()


def load_plan(directory: Path | None) -> Plan:
    from penstock.plan.build import build_plan
    from penstock.spec.load import load_project

    return build_plan(load_project(project_folder(directory)))


def load_tables(directory: Path | None, tables: list[str] | None) -> tuple[Plan, list[TablePlan], Store]:
    """The plan, the named tables (all, if none is named) and the store of the lake."""
    from penstock.plan.build import select_tables
    from penstock.storage.stores import open_store

    plan = load_plan(directory)
    return plan, select_tables(plan, tables or []), open_store(plan)


def load_table(directory: Path | None, table: str) -> tuple[Plan, TablePlan, Store]:
    plan, (table_plan,), store = load_tables(directory, [table])
    return plan, table_plan, store


def duration(option: str, text: str) -> float:
    """Seconds of `10 minutes` or `12h`; a UsageError names the option."""
    from penstock.errors import UsageError
    from penstock.spec.base_model import FindingsError
    from penstock.spec.quantity import seconds

    try:
        return float(seconds(text))
    except FindingsError as error:
        raise UsageError(f"{option}: {error.findings[0].message}", hint=error.findings[0].hint) from None
