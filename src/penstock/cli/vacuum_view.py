"""What `vacuum` shows: how far each table may go and who needs what, then what would go, then what went."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from penstock.cli.sizes import size_text
from penstock.errors import PenstockError
from penstock.ops.vacuum.carry_out import Vacuumed
from penstock.ops.vacuum.guard import Horizon, Need, span_text, time_text
from penstock.ops.vacuum.look import Looked
from penstock.spec.quantity import counted

READERS_OF = 5
"""Up to so many tables, everybody who needs something is named; of more, only those that keep files."""


def look_view(found: Sequence[Looked], old: Sequence[str]) -> RenderableType:
    if not found:
        return Text("the project has no tables")
    few = len({one.table.name for one in found}) <= READERS_OF
    parts: list[RenderableType] = []
    for one in found:
        parts.append(_head(one))
        if one.horizon is not None:
            parts.append(Padding(_needs(one, one.horizon, everybody=few), (0, 0, 0, 2)))
    if old:
        parts.append(Text(f"{counted(len(old), 'checkpoint')} of old generations, to delete too"))
    files, size = sum(len(one.files) for one in found), sum(one.bytes for one in found)
    last = f"{counted(files, 'file')}, {size_text(size)}, to delete" if files else "no file to delete"
    return Group(*parts, Text(""), Text(last, style="bold" if files else "green"))


def done_view(done: Collection[Vacuumed], errors: Mapping[str, PenstockError]) -> RenderableType:
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column(Text("table"), overflow="fold")
    for title in ("deleted", "size"):
        grid.add_column(Text(title), justify="right", no_wrap=True)
    for one in done:
        grid.add_row(Text(one.place.name, style="bold"), f"{one.files:,}", size_text(one.bytes))
    failed = [Text.assemble(("failed ", "bold red"), str(error)) for error in errors.values()]
    return Group(*([grid] if done else []), *failed)


def _head(one: Looked) -> Text:
    name, made = (f"{one.place.name}  ", "bold"), one.horizon
    if one.problem is not None:
        return Text.assemble(name, (one.problem.message, "red"))
    if made is None:
        return Text.assemble(name, ("not created yet", "dim"))
    if made.at_ms is None:
        return Text.assemble(name, ("nothing may go", "yellow"), f": {made.why}")
    what = f"{counted(len(one.files), 'file')}, {size_text(one.bytes)}" if one.files else "nothing to delete"
    return Text.assemble(name, (what, "" if one.files else "dim"))


def _needs(one: Looked, made: Horizon, *, everybody: bool) -> RenderableType:
    """From when on removed files are kept, and for whom; the first is what counts."""
    limits = made.limits
    asked = Need("", "asked for", made.asked_ms)
    shown = [need for need in made.needs if need in limits or (everybody and need.version is not None)]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    ordered = sorted([*shown, asked], key=lambda need: -1 if need.since_ms is None else need.since_ms)
    for index, need in enumerate(ordered):
        style = "" if index == 0 else "dim"
        since = "all" if need.since_ms is None else f"since {time_text(need.since_ms)} UTC"
        grid.add_row(Text(f"kept {since}", style=style), Text(str(need).strip(), style=style))
    if one.remember_ms is not None:
        grid.add_row("", Text(f"removed files will be remembered for {span_text(one.remember_ms)} from now on"))
    return grid
