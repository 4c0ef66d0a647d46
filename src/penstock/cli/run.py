"""`penstock run`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import AsJson, Directory, Tables, load_plan

if TYPE_CHECKING:
    from penstock.runtime.stopping import StopSignals


def command(
    tables: Tables = None,
    once: Annotated[bool, typer.Option("--once", help="Land what is there now, then end: for a scheduler.")] = False,
    directory: Directory = None,
    as_json: AsJson = False,
    spark_logs: Annotated[
        bool, typer.Option("--spark-logs", help="Show Spark's own log here, not in .penstock/logs.")
    ] = False,
    stop_timeout: Annotated[
        str,
        typer.Option(
            "--stop-timeout",
            metavar="DURATION",
            help="How long a stop by Ctrl-C or SIGTERM may take. Batches that are not finished by then are abandoned: "
            "the next start repeats them.",
        ),
    ] = "20s",
) -> None:
    """Run the tables: until stopped, or --once up to what is there now.

    Ctrl-C and SIGTERM end it after the batches in flight, but within --stop-timeout; a second one ends it at once. A
    table that fails leaves the others running; the exit code is 3 if any failed.
    """
    from penstock.runtime.stopping import StopNow, StoppedAtStart, StopSignals

    try:
        with StopSignals() as signals:
            signals.timeout = _seconds(stop_timeout)
            _run(tables or [], once, directory, as_json, spark_logs, signals)
    except (StoppedAtStart, KeyboardInterrupt):
        _stopped_at_start(tables or [], directory, as_json)
    except StopNow as now:
        _exit(128 + now.number)


def _run(
    tables: list[str], once: bool, directory: Path | None, as_json: bool, spark_logs: bool, signals: StopSignals
) -> None:
    from penstock.cli.console import people, print_json
    from penstock.cli.run_view import RunView
    from penstock.ops.care import look_after
    from penstock.plan.select import choose
    from penstock.runtime.runner import run

    plan = load_plan(directory)
    chosen = choose(plan, tables)
    with RunView(people(as_json), [table.name for table in chosen]) as view:
        result = run(plan, tables, view, once=once, show_logs=spark_logs, care=look_after, signals=signals)
    if as_json:
        print_json(view.document(result))
    else:
        view.summary(result)
    if result.unfinished:
        _exit(result.exit_code)
    raise typer.Exit(result.exit_code)


def _stopped_at_start(tables: list[str], directory: Path | None, as_json: bool) -> None:
    """A stop as any other, so it is no failure; the document is that of a run that did nothing."""
    from penstock.cli.console import people, print_json

    people(as_json).print("stopped while Spark was starting: no table had begun, nothing was written")
    if as_json:
        from penstock.cli.run_view import RunView
        from penstock.plan.select import choose
        from penstock.runtime.listener import Result

        names = [table.name for table in choose(load_plan(directory), tables)]
        print_json(RunView(people(True), names).document(Result(dict.fromkeys(names, "stopped"), {})))
    _exit(0)


def _exit(code: int) -> None:
    """Without waiting for threads that wait for a JVM."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(code)


def _seconds(text: str) -> float:
    from penstock.errors import UsageError
    from penstock.spec.finding import Wrong
    from penstock.spec.quantity import seconds

    try:
        return seconds(text)
    except Wrong as error:
        finding = error.findings[0]
        raise UsageError(f"--stop-timeout: {finding.message}", hint=finding.hint) from None
