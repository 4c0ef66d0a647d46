"""`penstock forget`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.options import AsJson, Directory, DryRun, Yes, load_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from rich.console import Console

    from penstock.engine.forget.list import SuppressionList
    from penstock.engine.store import Store
    from penstock.errors import PenstockError
    from penstock.ops.forget.asked import Name
    from penstock.ops.forget.model import Done
    from penstock.plan.model import Plan, TablePlan

WAIT = "10 minutes"


def command(
    subject: Annotated[
        list[str] | None,
        typer.Option("--subject", metavar="KEY=VALUE", help="Whom: a subject of the project and a name. Repeatable."),
    ] = None,
    subjects: Annotated[
        str | None,
        typer.Option("--subjects", metavar="FILE", help="The same from a file, one a line; - is standard input."),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="PATH", help="Write the certificate to PATH.json and PATH.html too."),
    ] = None,
    wait: Annotated[
        str, typer.Option("--wait", metavar="TIME", help="How long to wait for tables that another process runs.")
    ] = WAIT,
    not_a_name: Annotated[
        list[str] | None,
        typer.Option(
            "--not-a-name",
            metavar="TABLE.COLUMN",
            help="This column holds no names: what looks like one there is another thing. Repeatable.",
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show who was ordered to be forgotten, by hash.")] = False,
    directory: Directory = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Erase somebody from every table, every file and every log, and prove it.

    Tables say under `subjects` where they hold names. Rows go, in one commit per table; what is made of them is
    computed again; files and log entries that hold them are deleted or written anew; and whatever comes again, from
    Kafka or by a replay, is left out. Streams run on. Killed anywhere, give the command again. The name itself is kept
    nowhere.
    """
    from penstock.cli.console import people, print_json
    from penstock.engine.forget.list import SuppressionList
    from penstock.engine.stores import open_store
    from penstock.errors import UsageError
    from penstock.ops.forget.asked import known_places, names

    plan = load_plan(directory)
    store = open_store(plan)
    if list_:
        _list(plan, store, as_json)
        return
    patience = _seconds(wait)
    asked = names(plan, subject or [], _read(subjects), "standard input" if subjects == "-" else subjects or "")
    not_names = known_places(plan, not_a_name or [])
    if subjects == "-" and not yes and not dry_run:
        raise UsageError("standard input is read, so nobody can be asked", hint="add --yes, after a --dry-run")
    assert plan.forget is not None
    listed = SuppressionList(plan.forget, store)
    console = people(as_json)
    if not console.is_terminal:
        console.width = 160
    done, outlook = _forget(plan, store, listed, asked, not_names, console, patience, dry_run=dry_run, yes=yes)
    if done is None:
        if as_json:
            print_json({**outlook, "done": False})
        return
    document = _certify(plan, done, certificate, console)
    if as_json:
        print_json({**document, "done": True})
    raise typer.Exit(0 if done.proven else 1)


def _forget(
    plan: Plan,
    store: Store,
    listed: SuppressionList,
    asked: list[Name],
    not_names: list[str],
    console: Console,
    patience: float,
    *,
    dry_run: bool,
    yes: bool,
) -> tuple[Done | None, dict[str, Any]]:
    from penstock.cli.forget_view import done_view, outlook_view
    from penstock.engine.forget.matching import Wanted
    from penstock.engine.session import logs_folder, spark_session
    from penstock.engine.upkeep.session import beside_a_runner
    from penstock.ops.forget.carry_out import Forgetting
    from penstock.ops.forget.look import document, look, provisional
    from penstock.runtime.causes import explain

    log = str(logs_folder(plan))
    outlook: dict[str, Any] = {}
    try:
        with console.status("starting Spark …") as status, spark_session(beside_a_runner(plan), log="forget") as spark:

            def told(table: str, what: str) -> None:
                status.update(f"{table}: {what} …" if table else f"{what} …")

            if dry_run or not yes:
                status.update("reading every table that can hold them …")
                found = look(spark, plan, store, provisional(listed, asked))
                outlook = document(found)
                status.stop()
                console.print(outlook_view(found))
                if dry_run:
                    return None, outlook
                typer.confirm("Go on?", abort=True, err=True)
                status.start()
            orders = tuple(listed.add(name.subject, name.value) for name in asked)
            forgetting = Forgetting(
                spark,
                plan,
                store,
                Wanted(listed.key, orders),
                asked,
                run=_runs(spark, plan, told),
                told=told,
                explain=lambda error, table: explain(error, table, log),
                patience=patience,
                not_names=not_names,
            )
            done = forgetting.carry_out()
            status.stop()
            console.print(done_view(done))
            return done, outlook
    except typer.Abort:
        raise
    except Exception as error:
        raise explain(error, plan.name, log) from error


def _runs(
    spark: SparkSession, plan: Plan, told: Callable[[str, str], None]
) -> Callable[[TablePlan], PenstockError | None]:
    from penstock.cli.quiet import Quiet
    from penstock.runtime.runner import run_in

    def run(table: TablePlan) -> PenstockError | None:
        return run_in(spark, plan, [table], Quiet(told), once=True).errors.get(table.name)

    return run


def _certify(plan: Plan, done: Done, path: Path | None, console: Console) -> dict[str, Any]:
    """Into the lake, and to the path if there is one."""
    from penstock.engine.stores import open_store
    from penstock.ops.forget.certificate import document, folder
    from penstock.ops.forget.page import page

    made = document(plan, done)
    text, shown = json.dumps(made, indent=2, ensure_ascii=False), page(made)
    store, own = open_store(plan), f"{folder(plan)}/{done.id}"
    store.write(f"{own}.html", shown)
    store.write(f"{own}.json", text)
    where = own
    if path is not None:
        base = path.with_suffix("") if path.suffix in (".json", ".html") else path
        base.parent.mkdir(parents=True, exist_ok=True)
        Path(f"{base}.json").write_text(text, encoding="utf-8")
        Path(f"{base}.html").write_text(shown, encoding="utf-8")
        where = str(base)
    console.print(f"certificate: {where}.html, {where}.json", soft_wrap=True, markup=False, highlight=False)
    return made


def _list(plan: Plan, store: Store, as_json: bool) -> None:
    from penstock.cli.console import people, print_json
    from penstock.cli.forget_view import orders_view
    from penstock.engine.forget.list import SuppressionList
    from penstock.ops.forget.certificate import states
    from penstock.ops.forget.look import order_document

    orders = SuppressionList(plan.forget, store).orders() if plan.forget is not None else ()
    proven = states(plan, store)
    people(as_json).print(orders_view(orders, proven))
    if as_json:
        print_json({"orders": [{**order_document(one), "proven": proven.get(one.id)} for one in orders]})


def _read(path: str | None) -> str | None:
    from penstock.errors import UsageError

    if path is None:
        return None
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--subjects {path}: {error.strerror}", hint="name a file with one KEY=VALUE a line") from None
    except UnicodeDecodeError:
        raise UsageError(f"--subjects {path} is not UTF-8 text", hint="save it as UTF-8") from None


def _seconds(text: str) -> float:
    from penstock.errors import UsageError
    from penstock.spec.finding import Wrong
    from penstock.spec.quantity import seconds

    try:
        return float(seconds(text))
    except Wrong as error:
        raise UsageError(f"--wait: {error.findings[0].message}", hint=error.findings[0].hint) from None
