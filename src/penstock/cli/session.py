"""The Spark session of a verb: its progress messages, its question to the user, and errors with an explanation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from penstock.cli.console import print_json, text_console, visible

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console
    from rich.status import Status

    from penstock.operations.rewind_plan import AbortedVerb
    from penstock.operations.steps import Step
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store


@dataclass(frozen=True)
class VerbSession:
    spark: SparkSession
    _status: Status

    def tell(self, table: str, activity: str) -> None:
        """Shows the current activity."""
        self._status.update(Text(f"{table}: {activity} …" if table else f"{activity} …"))

    def ask(self, yes: bool) -> None:
        """Asks whether to continue, unless `--yes` was given; ends the verb if the answer is no."""
        if not yes:
            self._status.stop()
            confirm(yes)
            self._status.start()


@contextmanager
def verb_session(plan: Plan, console: Console, where: str, *, log: str = "spark") -> Iterator[VerbSession]:
    """A session for the work of a verb. Errors raised inside are explained; `where` is the table that they name."""
    from penstock.operations.causes import explain
    from penstock.spark.session import logs_folder, spark_session

    try:
        with console.status("starting Spark …") as status, spark_session(plan, log=log) as spark:
            yield VerbSession(spark, status)
    except (typer.Abort, typer.Exit):
        raise
    except Exception as error:
        raise explain(error, where, str(logs_folder(plan))) from error


def confirm(yes: bool) -> None:
    """The same before there is a session."""
    if not yes:
        typer.confirm("Continue?", abort=True, err=True)


def steps_view(steps: Iterable[Step]) -> Text:
    """The steps that the verb carries out, numbered."""
    lines = [f"  {number}. {visible(step.describe())}" for number, step in enumerate(steps, 1)]
    return Text("\n".join(["steps:", *lines]) if lines else "steps: none")


def abort_verb(
    verb: AbortedVerb, plan: Plan, table: TablePlan, store: Store, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Carries out `--abort` of replay and rewind."""
    from penstock.operations.rewind_plan import abort_document, plan_abort, run_abort

    abort_plan, console = plan_abort(verb, table, store), text_console(as_json)
    console.print(Text.assemble((table.name, "bold"), f" keeps its rows: the {verb} is given up"))
    console.print(steps_view(abort_plan.steps), soft_wrap=True)
    if not dry_run:
        confirm(yes)
        with verb_session(plan, console, table.name) as session:
            generation = run_abort(session.spark, plan, abort_plan)
        console.print(f"  done: generation {generation}. `penstock run` continues from there")
    if as_json:
        print_json({**abort_document(abort_plan), "aborted": not dry_run})
