"""`penstock forget`: what it would do, what it has done, who was ordered to be forgotten."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from penstock.cli.console import size_text
from penstock.cli.options import AsJson, Directory, DryRun, Yes, duration, load_plan
from penstock.cli.session import running, steps_view
from penstock.erasure.forget import PlaceDone
from penstock.maintenance.retention import time_text
from penstock.spec.quantity import counted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from penstock.erasure.forget import ErasureResult
    from penstock.erasure.forget_plan import ForgetPreview
    from penstock.plan.model import Plan
    from penstock.storage.stores import Store
    from penstock.tables.suppression_list import Order


# What `forget` shows: what it would do, what it has done, who was ordered to be forgotten.


_SHOWN = 20


def render_preview(outlook: ForgetPreview) -> RenderableType:
    made = Table("table", *_right("files", "rows of theirs", "files to rewrite", "older files to delete"), box=None)
    for one in outlook.places:
        rows = f"{one.rows:,}" + (f" and {one.marked:,} marked" if one.marked else "")
        older = f"{one.beside:,}" + (f", {size_text(one.bytes)}" if one.beside else "")
        made.add_row(Text(one.name), f"{one.files:,}", rows, f"{one.held:,}", older)
    return Group(made, *(Text(line) for line in _afterwards(outlook)))


def _right(*names: str) -> list[Any]:
    from rich.table import Column

    return [Column(name, justify="right") for name in names]


def _afterwards(outlook: ForgetPreview) -> Iterator[str]:
    if outlook.readers:
        yield f"  runs, up to what is there: {', '.join(outlook.readers)}"
    if outlook.waits:
        yield f"  waits for, in another process: {', '.join(outlook.waits)}"
    if outlook.starts_over:
        yield f"  starts over: {', '.join(outlook.starts_over)}"
    yield "  versions from before it can no longer be read or gone back to"


def render_result(done: ErasureResult) -> RenderableType:
    made = Table("table", *_right("rows", "files rewritten", "files deleted", "log files", "files decoded", "left"))
    for one in done.places.values():
        rows = one.rows + one.marked
        log = one.log_rewritten + one.log_removed
        if not (one.where or one.removed_files or log or one.problem):  # it declares nothing, and nothing was found
            continue
        numbers = (one.files, one.removed_files, log, one.decoded, one.left)
        said = f"{rows:,}{' redacted' if rows and one.redacted else ''}"
        made.add_row(Text(one.name), said, *(f"{number:,}" for number in numbers))
    parts: list[RenderableType] = [made]
    if done.proven:
        parts.append(Text("proven: no file of the lake that can still be read holds them", style="bold green"))
        size = f"{counted(done.search.files, 'file')}, {size_text(done.search.bytes)}"
        parts.append(Text(f"  searched in every form: {size}"))
    else:
        parts.append(Text("not complete; run the command again when this is done:", style="bold red"))
        parts += [Text(f"  {problem}") for problem in done.problems[:_SHOWN]]
        if len(done.problems) > _SHOWN:
            parts.append(Text(f"  and {len(done.problems) - _SHOWN:,} more: the certificate has them"))
    parts += [Text(f"  went with the commits {line}") for line in _commits(done.places.values())]
    if done.search.same:
        times, where = sum(done.search.same.values()), counted(len(done.search.same), "place")
        parts.append(Text(f"  the same digits as another thing, {times:,} times in {where}: the certificate has them"))
    parts += [Text(f"  declares no such subject, so no row was taken out: {name}") for name in done.undeclared]
    parts += [Text(f"  outside: {line}") for line in done.outside]
    return Group(*parts)


def _commits(places: Any) -> Iterator[str]:
    for one in places:
        assert isinstance(one, PlaceDone)
        if one.commits:
            yield f"{one.name} {', '.join(f'v{commit.version}' for commit in one.commits)}"


def render_orders(orders: Sequence[Order], proven: dict[str, bool]) -> RenderableType:
    if not orders:
        return Text("nobody was forgotten yet")
    made = Table("order", "subject", "ordered (UTC)", "state", box=None)
    for order in orders:
        state = {True: "proven", False: "not complete"}.get(proven.get(order.id), "begun")  # type: ignore[arg-type]
        made.add_row(Text(order.id), order.subject, time_text(order.time_ms), state)
    return Group(made, Text(f"{counted(len(orders), 'order')}; the names are kept nowhere"))


# `penstock forget`.


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
    """Erase a person from every table, every file and every log, and prove it.

    Tables say under `subjects` where they hold names. Rows are erased, in one commit per table; what is made of them is
    computed again; files and log entries that hold them are deleted or rewritten; and whatever comes again, from Kafka
    or by a replay, is left out. Streams keep running. Killed anywhere, give the command again. The name itself is kept
    nowhere. --dry-run lists the steps, and counts rows and files.
    """
    from penstock.cli.console import people, print_json
    from penstock.erasure.forget import run_forget
    from penstock.erasure.forget_plan import document, plan_forget, preview_forget
    from penstock.erasure.request import known_places, names
    from penstock.errors import UsageError
    from penstock.maintenance.tables import beside_a_runner
    from penstock.runtime.runner import catch_up
    from penstock.storage.stores import open_store

    plan = load_plan(directory)
    store = open_store(plan)
    if list_:
        _list(plan, store, as_json)
        return
    patience = duration("--wait", wait)
    asked = names(plan, subject or [], _read(subjects), "standard input" if subjects == "-" else subjects or "")
    not_names = known_places(plan, not_a_name or [])
    if subjects == "-" and not yes and not dry_run:
        raise UsageError("standard input is read, so no question can be asked", hint="add --yes, after a --dry-run")
    console = people(as_json)
    if not console.is_terminal:
        console.width = 160
    planned = plan_forget(plan, store, asked, not_names)
    console.print(steps_view(planned.steps))
    answer: dict[str, Any] = {"steps": [step.describe() for step in planned.steps]}
    done: ErasureResult | None = None
    with running(beside_a_runner(plan), console, plan.name, log="forget") as session:
        if dry_run or not yes:
            session.tell("", "reading every table that can hold them")
            preview = preview_forget(session.spark, plan, store, planned)
            console.print(render_preview(preview))
            answer |= document(preview)
        if not dry_run:
            if not yes:
                session.ask()
            run = partial(catch_up, session.spark, plan, session.tell)
            done = run_forget(session.spark, plan, store, planned, run=run, tell=session.tell, patience=patience)
    if done is None:
        if as_json:
            print_json({**answer, "done": False})
        return
    console.print(render_result(done))
    certified = certify(plan, done, certificate, console)
    if as_json:
        print_json({**certified, "done": True})
    raise typer.Exit(0 if done.proven else 1)


def certify(plan: Plan, done: ErasureResult, path: Path | None, console: Console) -> dict[str, Any]:
    """Writes the certificate, as JSON and as a page, into the lake and to `path` if there is one."""
    from penstock.cli.console import visible_json
    from penstock.cli.pages import certificate_page
    from penstock.erasure.certificate import document, folder
    from penstock.storage.stores import open_store

    certified = document(plan, done)
    text = visible_json(json.dumps(certified, indent=2, ensure_ascii=False))
    store, where = open_store(plan), f"{folder(plan)}/{done.id}"
    store.write(f"{where}.json", text)  # first: whether it is proven is read from it, and the page shows the same
    page = certificate_page(certified)
    store.write(f"{where}.html", page)
    if path is not None:
        base = path.with_suffix("") if path.suffix in (".json", ".html") else path
        base.parent.mkdir(parents=True, exist_ok=True)
        Path(f"{base}.json").write_text(text, encoding="utf-8")
        Path(f"{base}.html").write_text(page, encoding="utf-8")
        where = str(base)
    console.print(f"certificate: {where}.html, {where}.json", soft_wrap=True, markup=False, highlight=False)
    return certified


def _list(plan: Plan, store: Store, as_json: bool) -> None:
    from penstock.cli.console import people, print_json
    from penstock.erasure.certificate import states
    from penstock.erasure.forget import order_document
    from penstock.tables.suppression_list import SuppressionList

    orders = SuppressionList(plan.forget, store).orders() if plan.forget is not None else ()
    proven = states(plan, store)
    people(as_json).print(render_orders(orders, proven))
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
