"""The tables of a project, looked at from beside it: another reader than Spark, and the files of their log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltalake import DeltaTable, QueryBuilder


def place(folder: Path, table: str) -> Path:
    return folder / "lake" / table.replace(".", "/")


def commits(folder: Path, table: str) -> int:
    return len(list((place(folder, table) / "_delta_log").glob("*.json")))


def ask(folder: Path, table: str, query: str) -> list[tuple[Any, ...]]:
    """The rows that the query gives; in it the table is `t`."""
    found = QueryBuilder().register("t", DeltaTable(str(place(folder, table)))).execute(query).read_all()
    return list(zip(*(found.column(i).to_pylist() for i in range(found.num_columns)), strict=True))
