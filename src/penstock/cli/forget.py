"""`penstock forget`: erase a person from the lake, preview that, and list the orders."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from penstock.cli.console import print_json, size_text, text_console, visible, visible_json
from penstock.cli.options import AsJson, Directory, DryRun, Yes, duration, load_plan
from penstock.cli.session import steps_view, verb_session
from penstock.erasure.forget import ErasedPlace
from penstock.spec.quantity import counted, time_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from penstock.erasure.forget import ErasureResult
    from penstock.erasure.forget_plan import ForgetPreview
    from penstock.plan.model import Plan
    from penstock.storage.stores import Store
    from penstock.tables.suppression_list import ForgetOrder


_SHOWN = 20


def render_preview(preview: ForgetPreview) -> RenderableType:
    titles = ("files", "rows of theirs", "files to rewrite", "older files to delete")
    grid = Table("table", *_right_aligned(*titles), box=None)
    for place in preview.places:
        rows = f"{place.rows:,}" + (f" and {place.marked:,} marked" if place.marked else "")
        older = f"{place.files_to_delete:,}" + (f", {size_text(place.bytes)}" if place.files_to_delete else "")
        grid.add_row(Text(visible(place.name)), f"{place.files:,}", rows, f"{place.files_to_rewrite:,}", older)
    return Group(grid, *(Text(visible(line)) for line in _consequences(preview)))


def _right_aligned(*titles: str) -> Iterator[Column]:
    return (Column(title, justify="right") for title in titles)


def _consequences(preview: ForgetPreview) -> Iterator[str]:
    if preview.readers:
        yield f"  runs, up to what is there: {', '.join(preview.readers)}"
    if preview.waits:
        yield f"  waits for, in another process: {', '.join(preview.waits)}"
    if preview.starts_over:
        yield f"  starts over: {', '.join(preview.starts_over)}"
    yield "  versions from before it can no longer be read or gone back to"


def render_result(result: ErasureResult) -> RenderableType:
    titles = ("rows", "files rewritten", "files deleted", "log files", "files decoded", "left")
    grid = Table("table", *_right_aligned(*titles))
    for place in result.places.values():
        rows = place.rows + place.rows_marked_deleted
        log_files = place.log_rewritten + place.log_removed
        # It declares nothing, and nothing was found.
        if not (place.columns or place.removed_files or log_files or place.problem):
            continue
        numbers = (place.files, place.removed_files, log_files, place.decoded, place.rows_left)
        rows_text = f"{rows:,}{' redacted' if rows and place.redacted else ''}"
        grid.add_row(Text(visible(place.name)), rows_text, *(f"{number:,}" for number in numbers))
    parts: list[RenderableType] = [grid]
    if result.proven:
        parts.append(Text("proven: no file of the lake that can still be read holds them", style="bold green"))
        size = f"{counted(result.search.files, 'file')}, {size_text(result.search.bytes)}"
        parts.append(Text(f"  searched in every form: {size}"))
    else:
        parts.append(Text("not complete; run the command again when this is done:", style="bold red"))
        parts += [Text(f"  {visible(problem)}") for problem in result.problems[:_SHOWN]]
        if len(result.problems) > _SHOWN:
            parts.append(Text(f"  and {len(result.problems) - _SHOWN:,} more: the certificate has them"))
    parts += [Text(f"  went with the commits {visible(line)}") for line in _commits(result.places.values())]
    if result.search.same:
        times, places = sum(result.search.same.values()), counted(len(result.search.same), "place")
        parts.append(Text(f"  the same digits as another thing, {times:,} times in {places}: the certificate has them"))
    remarks = [f"declares no such subject, so no row was taken out: {name}" for name in result.undeclared]
    remarks += [f"outside: {line}" for line in result.outside]
    parts += [Text(f"  {visible(remark)}") for remark in remarks]
    return Group(*parts)


def _commits(places: Any) -> Iterator[str]:
    for place in places:
        assert isinstance(place, ErasedPlace)
        if place.commits:
            yield f"{place.name} {', '.join(f'v{commit.version}' for commit in place.commits)}"


def render_orders(orders: Sequence[ForgetOrder], proven: dict[str, bool]) -> RenderableType:
    if not orders:
        return Text("no subject was forgotten yet")
    grid = Table("order", "subject", "ordered (UTC)", "state", box=None)
    for order in orders:
        state = {True: "proven", False: "not complete"}.get(proven.get(order.id), "begun")  # type: ignore[arg-type]
        cells = (order.id, order.subject, time_text(order.time_ms), state)
        grid.add_row(*(Text(visible(cell)) for cell in cells))
    return Group(grid, Text(f"{counted(len(orders), 'order')}; the names are kept nowhere"))


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
    from penstock.erasure.forget import run_forget
    from penstock.erasure.forget_plan import document, plan_forget, preview_forget
    from penstock.erasure.request import known_places, names
    from penstock.errors import UsageError
    from penstock.maintenance.tables import with_commit_waiting
    from penstock.runtime.runner import catch_up
    from penstock.storage.stores import open_store

    plan = load_plan(directory)
    store = open_store(plan)
    if list_:
        _list(plan, store, as_json)
        return
    patience = duration("--wait", wait)
    requested_names = names(
        plan, subject or [], _read_subjects(subjects), "standard input" if subjects == "-" else subjects or ""
    )
    not_names = known_places(plan, store, not_a_name or [])
    if subjects == "-" and not yes and not dry_run:
        raise UsageError("standard input is read, so no question can be asked", hint="add --yes, after a --dry-run")
    console = text_console(as_json, piped=160)
    forget_plan = plan_forget(plan, store, requested_names, not_names)
    console.print(steps_view(forget_plan.steps))
    answer: dict[str, Any] = {"steps": [step.describe() for step in forget_plan.steps]}
    result: ErasureResult | None = None
    with verb_session(with_commit_waiting(plan), console, plan.name, log="forget") as session:
        if dry_run or not yes:
            session.tell("", "reading every table that can hold them")
            preview = preview_forget(session.spark, plan, store, forget_plan)
            console.print(render_preview(preview))
            answer |= document(preview)
        if not dry_run:
            session.ask(yes)
            run = partial(catch_up, session.spark, plan, session.tell)
            result = run_forget(session.spark, plan, store, forget_plan, run=run, tell=session.tell, patience=patience)
    if result is None:
        if as_json:
            print_json({**answer, "done": False})
        return
    console.print(render_result(result))
    certificate_document = certify(plan, result, certificate, console)
    if as_json:
        print_json({**certificate_document, "done": True})
    raise typer.Exit(0 if result.proven else 1)


def certify(plan: Plan, result: ErasureResult, path: Path | None, console: Console) -> dict[str, Any]:
    """Writes the certificate as JSON and as a page: into the lake, and to `path` if one is given."""
    from penstock.cli.pages import certificate_page
    from penstock.erasure.certificate import document, folder
    from penstock.storage.stores import open_store

    certificate = document(plan, result)
    text = visible_json(json.dumps(certificate, indent=2, ensure_ascii=False))
    store, location = open_store(plan), f"{folder(plan)}/{result.id}"
    # The JSON first: whether the order is proven is read from it, and the page shows the same.
    store.write(f"{location}.json", text)
    page = certificate_page(certificate)
    store.write(f"{location}.html", page)
    if path is not None:
        base = path.with_suffix("") if path.suffix in (".json", ".html") else path
        base.parent.mkdir(parents=True, exist_ok=True)
        Path(f"{base}.json").write_text(text, encoding="utf-8")
        Path(f"{base}.html").write_text(page, encoding="utf-8")
        location = str(base)
    console.print(Text(f"certificate: {visible(location)}.html, {visible(location)}.json"), soft_wrap=True)
    return certificate


def _list(plan: Plan, store: Store, as_json: bool) -> None:
    from penstock.erasure.certificate import states
    from penstock.erasure.forget import order_document
    from penstock.tables.suppression_list import SuppressionList

    orders = SuppressionList(plan.forget, store).orders() if plan.forget is not None else ()
    proven = states(plan, store)
    text_console(as_json).print(render_orders(orders, proven))
    if as_json:
        print_json({"orders": [{**order_document(order), "proven": proven.get(order.id)} for order in orders]})


def _read_subjects(path: str | None) -> str | None:
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
