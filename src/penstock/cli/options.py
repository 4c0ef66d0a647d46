"""Options that several verbs share, so that they read the same everywhere."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.plan.model import Plan


Directory = Annotated[
    Path | None,
    typer.Option("-C", "--project", metavar="DIR", help="The project folder: where penstock.yml is.", show_default="."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the steps, and do nothing.")]
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


def duration(option: str, text: str) -> float:
    """Seconds of `10 minutes` or `12h`; a UsageError names the option."""
    from penstock.errors import UsageError
    from penstock.spec.base_model import FindingsError
    from penstock.spec.quantity import seconds

    try:
        return float(seconds(text))
    except FindingsError as error:
        raise UsageError(f"{option}: {error.findings[0].message}", hint=error.findings[0].hint) from None
