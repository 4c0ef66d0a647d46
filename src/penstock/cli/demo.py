"""`penstock demo`: a broker, events, tables and a proof, on this machine, in a minute."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from penstock.dev.examples import Example
    from penstock.plan.model import Plan


def command(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Which example.")] = "orders",
    count: Annotated[int, typer.Option("--count", min=1, help="How many events.")] = 50_000,
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", help="Leave the project and its lake there.", show_default=False),
    ] = None,
) -> None:
    """All of this in a minute: a real Kafka broker, events, the tables, and the proof.

    Starts its own broker on a free port of 127.0.0.1, sends events into it, runs the example until all is landed,
    shows the tables, verifies them, and stops and removes everything that it started.
    """
    from penstock.cli.console import err, out
    from penstock.dev.broker import Broker
    from penstock.dev.examples import copy_example, find_example
    from penstock.plan.build import build_plan
    from penstock.spec.load import load_project

    example = find_example(name)
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
        project = copy_example(example, keep or folder)
        _step("1/4", "start Kafka")
        with err.status("starting a Kafka broker …"):
            broker = Broker().start()
        with broker:
            out.print(f"    a real broker on {broker.bootstrap}")
            os.environ["KAFKA_BOOTSTRAP"] = broker.bootstrap
            plan = build_plan(load_project(project))
            _step("2/4", f"send {count:,} events")
            _generate(example, broker.bootstrap, count)
            _step("3/4", f"land them: penstock -C {project.name} run --once")
            code = _land(plan)
            _show_rows(plan)
            _step("4/4", f"prove it: penstock -C {project.name} verify")
            code = max(code, _verify(plan))
    except FileExistsError as error:
        from penstock.errors import UsageError

        raise UsageError(f"{error.filename} is there already", hint="name a new folder with --keep") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    out.print(
        "\nThe broker is stopped and its data removed." + (f" The project stays in {keep / name}." if keep else "")
    )
    raise typer.Exit(code)


def _step(number: str, what: str) -> None:
    from penstock.cli.console import out

    out.print(f"\n[bold cyan]{number}[/bold cyan] [bold]{what}[/bold]")


def _generate(example: Example, bootstrap: str, count: int) -> None:
    from datetime import UTC, datetime

    from penstock.cli.console import out
    from penstock.cli.generate_view import progress
    from penstock.dev.generate import Faults, events, produce

    faults = Faults(malformed=0.01, late=0.02, duplicates=0.01)
    for topic, kind in example.topics.items():
        with progress(f"sending {kind}", count, shown=True) as move:
            sent = produce(
                bootstrap, topic, events(kind, count, start=datetime.now(UTC), faults=faults), on_progress=move
            )
        spoilt = sum(many for label, many in sent.labels.items() if label.startswith("malformed"))
        out.print(
            f"    {sent.count:,} {kind} to the topic {topic} ({sent.topic.partitions} partitions), {spoilt:,} of them "
            "malformed on purpose"
        )


def _land(plan: Plan) -> int:
    from penstock.cli.console import out
    from penstock.cli.run_view import RunView
    from penstock.runtime.runner import run

    with RunView(out, [table.name for table in plan.tables]) as view:
        result = run(plan, [], view, once=True, keep_classes=True)
    view.summary(result)
    return result.exit_code


def _show_rows(plan: Plan, rows: int = 5) -> None:
    """A few rows of each table, read as any other reader of Delta would."""
    from deltalake import DeltaTable, QueryBuilder
    from rich.table import Table

    from penstock.cli.console import out

    shown = ("topic", "partition", "offset", "key", "value")
    for table in plan.tables:
        columns = [table.columns[column] for column in shown]
        quoted = ", ".join(f'"{column}"' for column in columns)
        query = f'SELECT {quoted} FROM t ORDER BY "{table.columns["offset"]}" LIMIT {rows}'
        found = QueryBuilder().register("t", DeltaTable(table.uri)).execute(query).read_all()
        view = Table(*columns, title=f"{table.name}: a few rows", title_justify="left")
        for number in range(found.num_rows):
            view.add_row(*(_short(found.column(i)[number].as_py()) for i in range(len(columns))))
        out.print(view)


def _short(value: object, width: int = 48) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= width else text[: width - 1] + "…"


def _verify(plan: Plan) -> int:
    from penstock.cli.console import out
    from penstock.cli.verify_view import Bar, report_view
    from penstock.engine.store import LocalStore
    from penstock.ops.verify.table import verify

    with Bar() as bar:
        reports = verify(plan.tables, LocalStore(), bar.step)
    for report in reports:
        out.print(report_view(report))
    return 0 if all(report.ok() for report in reports) else 1
