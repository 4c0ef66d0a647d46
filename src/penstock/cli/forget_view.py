"""What `forget` shows: what it would do, what it has done, who was ordered to be forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.sizes import size_text
from penstock.engine.forget.order import Order
from penstock.ops.forget.look import Outlook
from penstock.ops.forget.model import Done, PlaceDone
from penstock.ops.vacuum.guard import time_text
from penstock.spec.quantity import counted

_SHOWN = 20


def outlook_view(outlook: Outlook) -> RenderableType:
    made = Table("table", *_right("files", "rows of theirs", "files to rewrite", "older files to delete"), box=None)
    for one in outlook.places:
        rows = f"{one.rows:,}" + (f" and {one.marked:,} marked" if one.marked else "")
        older = f"{one.beside:,}" + (f", {size_text(one.bytes)}" if one.beside else "")
        made.add_row(Text(one.name), f"{one.files:,}", rows, f"{one.held:,}", older)
    return Group(made, *(Text(line) for line in _afterwards(outlook)))


def _right(*names: str) -> list[Any]:
    from rich.table import Column

    return [Column(name, justify="right") for name in names]


def _afterwards(outlook: Outlook) -> Iterator[str]:
    if outlook.readers:
        yield f"  runs, up to what is there: {', '.join(outlook.readers)}"
    if outlook.waits:
        yield f"  waits for, in another process: {', '.join(outlook.waits)}"
    if outlook.anew:
        yield f"  made anew: {', '.join(outlook.anew)}"
    yield "  versions from before it can no longer be read or gone back to"


def done_view(done: Done) -> RenderableType:
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


def orders_view(orders: Sequence[Order], proven: dict[str, bool]) -> RenderableType:
    if not orders:
        return Text("nobody was forgotten yet")
    made = Table("order", "subject", "ordered (UTC)", "state", box=None)
    for order in orders:
        state = {True: "proven", False: "not complete"}.get(proven.get(order.id), "begun")  # type: ignore[arg-type]
        made.add_row(Text(order.id), order.subject, time_text(order.time_ms), state)
    return Group(made, Text(f"{counted(len(orders), 'order')}; the names are kept nowhere"))
