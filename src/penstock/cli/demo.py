"""`penstock demo`: a broker, events, tables and a proof, on this machine, in a minute."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.dev.examples import Example
    from penstock.dev.generate import Sent
    from penstock.ops.verify.report import Report
    from penstock.plan.model import Plan

PIPED_WIDTH = 140
"""Columns of the output where there is no terminal to keep to."""


def command(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Which example; --list shows them.")] = "orders",
    count: Annotated[
        int | None, typer.Option("--count", min=1, help="How many events.", show_default="30,000; customers: 3,000")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Leave the project and its lake there.", show_default=False),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="The examples there are, and no more.")] = False,
) -> None:
    """All of this in a minute: a real Kafka broker, events, the tables, and the proof.

    Starts its own broker on a free port of 127.0.0.1, sends events into it while all tables of the example run, waits
    until everything is carried through, shows the tables and what was rejected, verifies them, and stops and removes
    everything that it started.
    """
    from penstock.cli.console import out
    from penstock.dev.examples import EXAMPLES, find_example

    if listing:
        for example in EXAMPLES.values():
            out.print(f"{example.name:<12} {example.about}", markup=False, soft_wrap=True)
        return
    example = find_example(name)
    if not out.is_terminal:
        out.width = PIPED_WIDTH
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        code = _demonstrate(example, _copied(example, keep or folder), count or example.count)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    out.print(
        "\nWhat was started is stopped and its data removed."
        + (f" The project stays in {keep / name}." if keep else "")
    )
    raise typer.Exit(code)


def _copied(example: Example, folder: Path) -> Path:
    from penstock.dev.examples import copy_example
    from penstock.errors import UsageError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        return copy_example(example, folder)
    except FileExistsError as error:
        raise UsageError(f"{error.filename} is there already", hint="name a new folder with --keep") from None


def _demonstrate(example: Example, project: Path, count: int) -> int:
    """The exit code."""
    from penstock.cli.console import err, out
    from penstock.cli.demo_tables import show_tables
    from penstock.dev.broker import Broker
    from penstock.plan.build import build_plan
    from penstock.spec.load import load_project

    if example.database:
        return _demonstrate_database(example, project, count)
    _step("1/4", "start Kafka")
    with err.status("starting a Kafka broker …"):
        broker = Broker().start()
    with broker:
        out.print(f"    a real broker on {broker.bootstrap}")
        os.environ["KAFKA_BOOTSTRAP"] = broker.bootstrap
        plan = _quick(build_plan(load_project(project)))
        code, reports = _run(example, plan, broker.bootstrap, count)
        show_tables(plan)
        _step("4/4", f"prove it: penstock -C {example.name} verify")
        return max(code, _show(reports))


def _demonstrate_database(example: Example, project: Path, count: int) -> int:
    """A database is changed, and what comes out in the end is compared with it."""
    from penstock.cli.demo_customers import compare, parts, run
    from penstock.cli.demo_tables import show_tables
    from penstock.plan.build import build_plan
    from penstock.spec.load import load_project

    _step("1/4", "start Kafka, PostgreSQL and Debezium")
    with parts(project) as beside:
        plan = _quick(build_plan(load_project(project)))
        _step("2/4", f"make the tables: penstock -C {example.name} run --once")
        code, reports = run(beside, plan, count)
        show_tables(plan)
        _step("4/4", f"prove it: penstock -C {example.name} verify, and the copy against its source")
        return max(code, _show(reports), compare(beside))


def _quick(plan: Plan) -> Plan:
    """Without it a third of the CPU time of so short a run goes into compiling code for a speed that it never needs."""
    options = f"-XX:TieredStopAtLevel=1 {plan.conf.get('spark.driver.extraJavaOptions', '')}".strip()
    return replace(plan, conf={**plan.conf, "spark.driver.extraJavaOptions": options})


def _run(example: Example, plan: Plan, bootstrap: str, count: int) -> tuple[int, list[Report]]:
    """The exit code, and what `verify` says of the tables."""
    from penstock.cli.console import err, out
    from penstock.cli.demo_live import Feed, Live, prepare
    from penstock.cli.run_view import RunView

    _step("2/4", f"make the tables: penstock -C {example.name} run --once")
    _say_sent(prepare(example, plan, bootstrap))
    with RunView(out, [table.name for table in plan.tables], lines_every=5.0) as view, Live(plan, view) as live:
        result = live.make()
        if live.whole:
            _step("3/4", f"send {count:,} events while all tables run: penstock -C {example.name} run")
            stop = threading.Event()
            result = live.run(Feed(example, bootstrap, count, stop), stop)
            live.prove()
    _say_sent(live.sent)
    view.summary(result)
    if not live.whole:
        err.print("[bold red]stopped[/bold red] before everything was carried through")
    return result.exit_code if live.whole else 3, live.reports


def _step(number: str, what: str) -> None:
    from penstock.cli.console import out

    out.print(f"\n[bold cyan]{number}[/bold cyan] [bold]{what}[/bold]")


def _say_sent(sent: Iterable[Sent]) -> None:
    from penstock.cli.console import out

    for one in sent:
        spoilt = sum(many for label, many in one.labels.items() if label.startswith("malformed"))
        faults = [
            (spoilt, "malformed"),
            (one.labels.get("late", 0), "late"),
            (one.labels.get("duplicate", 0), "copies"),
        ]
        said = ", ".join(f"{many:,} {what}" for many, what in faults if many)
        out.print(
            f"    {one.count:,} events to the topic {one.topic.name} ({one.topic.partitions} partitions), "
            f"of them on purpose {said}"
        )


def _show(reports: Sequence[Report]) -> int:
    from penstock.cli.console import out
    from penstock.cli.verify_view import report_view

    for report in reports:
        out.print(report_view(report))
    return 0 if all(report.ok() for report in reports) else 1
