"""What `optimize` shows: the files of each table, what would be done, and what it came to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.sizes import size_text
from penstock.errors import PenstockError
from penstock.ops.optimize.carry_out import Optimized
from penstock.ops.optimize.look import Looked
from penstock.spec.quantity import counted


def look_view(found: Sequence[Looked]) -> RenderableType:
    if not found:
        return Text("the project has no tables")
    grid = _grid("table", "files", "size", "average")
    grid.add_column(Text("to do"), overflow="fold", ratio=1)
    for one in found:
        if not one.created:
            row = ("", "", "", Text("not created yet", style="dim"))
        elif one.problem is not None:
            row = ("", "", "", Text(one.problem.message, style="red"))
        else:
            row = (f"{one.files:,}", size_text(one.bytes), _average(one.bytes, one.files), _steps(one))
        grid.add_row(Text(one.place.name, style="bold"), *row)
    todo = [one for one in found if one.steps]
    last = _summary(todo) if todo else Text("nothing to do: no table has files that are worth a write", style="green")
    return Group(grid, Text(""), last)


def done_view(done: Collection[Optimized], errors: Mapping[str, PenstockError]) -> RenderableType:
    grid = _grid("table", "files", "now", "average", "now")
    for one in done:
        averages = _average(one.bytes_before, one.files_before), _average(one.bytes, one.files)
        grid.add_row(
            Text(one.place.name, style="bold"), f"{one.files_before:,}", f"{one.files:,}", averages[0], averages[1]
        )
    failed = [Text.assemble(("failed ", "bold red"), str(error)) for error in errors.values()]
    return Group(*([grid] if done else []), *failed)


def _grid(*titles: str) -> Table:
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column(Text(titles[0]), overflow="fold")
    for title in titles[1:]:
        grid.add_column(Text(title), justify="right", no_wrap=True)
    return grid


def _steps(one: Looked) -> Text:
    if not one.steps:
        return Text("nothing", style="dim")
    return Text("; ".join(f"{step.said}: {size_text(step.bytes)}, about {step.left:,} left" for step in one.steps))


def _summary(todo: Sequence[Looked]) -> Text:
    steps = [step for one in todo for step in one.steps]
    files, size = sum(step.files for step in steps), sum(step.bytes for step in steps)
    return Text(f"{counted(files, 'file')}, {size_text(size)}, to write anew; no row changes")


def _average(size: int, files: int) -> str:
    return size_text(size / files) if files else ""
