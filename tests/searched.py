"""A search that knows nothing of Penstock: every data file under a folder decoded, everything else byte by byte."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


def named(folder: Path, names: Sequence[str]) -> list[str]:
    """The files that have one of the names."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = b"\n".join(_texts(path)) if path.suffix == ".parquet" else path.read_bytes()
        found += [f"{path}: {name}" for name in names if name.encode() in content]
    return found


def _texts(path: Path) -> Iterator[bytes]:
    """Every value of a file, also of rows that are only marked as deleted, whatever its type."""
    for row in _rows(path):
        yield from _flat(row)


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    """As a table of this one file, so that no JVM is needed."""
    from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake

    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, Path(folder) / "part.parquet")
        convert_to_deltalake(folder)
        found = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT * FROM t").read_all()
    columns = {field.name: found.column(field.name).to_pylist() for field in found.schema}
    yield from (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))


def _flat(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _flat(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _flat(inner)
    elif isinstance(value, bytes):
        yield value
    elif value is not None:
        yield str(value).encode()
