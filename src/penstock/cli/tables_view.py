"""The tables of a project and their columns, as `\\d` shows them."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.visible import visible
from penstock.errors import PenstockError
from penstock.ops.sql.reader import Reader


def tables_view(reader: Reader) -> RenderableType:
    """A table that cannot be read is said in its place."""
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("table", no_wrap=True)
    grid.add_column("version", justify="right")
    grid.add_column("columns", overflow="fold")
    for table in reader.names.all:
        try:
            found = reader.columns(table)
        except PenstockError as error:
            grid.add_row(Text(table.name), "", Text(error.message, style="red"))
            continue
        if found is None:
            grid.add_row(Text(table.name), "", Text("not created yet", style="dim"))
        else:
            version, columns = found
            grid.add_row(Text(table.name), str(version), Text(visible(", ".join(columns))))
    return grid


def columns_view(reader: Reader, name: str) -> RenderableType:
    table = reader.names.find([part.strip("`") for part in name.split(".")], "")
    found = reader.columns(table)
    if found is None:
        return Text(f"{table.name} is not created yet: `penstock run` makes it")
    grid = Table(box=None, pad_edge=False, header_style="dim")
    grid.add_column("column", no_wrap=True)
    grid.add_column("type", overflow="fold")
    for column, kind in found[1].items():
        grid.add_row(Text(visible(column)), Text(visible(kind)))
    return grid
