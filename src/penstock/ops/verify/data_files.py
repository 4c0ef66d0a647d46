"""The data files of a table: whether each that the log names is there, as large as it says, and who added it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from penstock.engine.protocol.entry import parse as parse_entry
from penstock.engine.store import Store
from penstock.ops.verify.log_counts import rows_of


@dataclass(frozen=True)
class DataFile:
    path: str
    """As the log has it, below the table; or a whole address, if it lies elsewhere."""
    size: int
    rows: int | None
    """That were written into it: a deletion vector may have taken some out since."""

    @property
    def name(self) -> str:
        return self.named(self.path)

    @staticmethod
    def named(path: str) -> str:
        return unquote(path.rpartition("/")[2])


def data_files(uri: str, version: int | None) -> list[DataFile]:
    """Those of a version."""
    from deltalake import DeltaTable

    from penstock.engine.object_store import storage_options

    table = DeltaTable(uri, version=version, storage_options=storage_options(uri) or None)
    adds: Any = table.get_add_actions(flatten=True)
    names = set(adds.schema.names)

    def column(name: str) -> list[Any]:
        return list(adds.column(name).to_pylist()) if name in names else [None] * adds.num_rows

    parts = zip(column("path"), column("size_bytes"), column("num_records"), strict=True)
    return [DataFile(str(path), int(size), None if rows is None else int(rows)) for path, size, rows in parts]


def damaged(store: Store, uri: str, version: int | None) -> Iterator[str]:
    """Files that are not there, or not as large as the log says: each with who added it."""
    files = data_files(uri, version)
    sizes = _sizes(store, uri, files)
    for one in files:
        found = sizes.get(one.name)
        if found == one.size:
            continue
        wrong = "is not there" if found is None else f"has {found:,} bytes, the log says {one.size:,}"
        yield f"{origin_of(store, uri, one)} {wrong}"


def _sizes(store: Store, uri: str, files: Iterable[DataFile]) -> dict[str, int]:
    if "://" in uri:
        return {DataFile.named(path): one.size for path, one in store.listing(uri).items()}
    found = {}
    for one in files:
        plain = one.path.removeprefix("file://")
        for path in (Path(uri) / plain, Path(uri) / unquote(plain)):
            if path.is_file():
                found[one.name] = path.stat().st_size
                break
    return found


def origin_of(store: Store, uri: str, file: DataFile) -> str:
    """`part-0.parquet (12 rows, added in version 7 by batch 1.6)`."""
    rows = "" if file.rows is None else f"{file.rows:,} rows, "
    return f"{file.path} ({rows}{_added(store, uri, file)})"


def _added(store: Store, uri: str, file: DataFile) -> str:
    for version, _, info in _adds(store, uri, file):
        return f"added in version {version}{_by(info)}"
    return "added before the log begins"


def living_in(store: Store, uri: str, file: DataFile, version: int | None) -> int | None:
    """Its rows without those that a deletion vector has taken out; None if the log no longer says it."""
    found = None
    for at, add, _ in _adds(store, uri, file):
        if version is None or at <= version:
            found = rows_of(add)
    return found


def _adds(store: Store, uri: str, file: DataFile) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """The commits that added the file, oldest first: the version, how, and by whom."""
    folder = f"{uri}/_delta_log"
    stems = (name[:-5] for name in store.names(folder) if name.endswith(".json"))
    for version in sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdigit()):
        text = store.read(f"{folder}/{version:020d}.json") or ""
        if file.name not in unquote(text):
            continue
        actions = [json.loads(line) for line in text.split("\n") if line]
        info: dict[str, Any] = next((one["commitInfo"] for one in actions if "commitInfo" in one), {})
        for one in actions:
            if "add" in one and DataFile.named(one["add"]["path"]) == file.name:
                yield version, one["add"], info


def _by(info: dict[str, Any]) -> str:
    entry = parse_entry(info.get("userMetadata"))
    if entry is None or info.get("operation") == "OPTIMIZE":
        return f" ({info.get('operation', 'unknown')})"
    return f" by {entry.kind} {entry.generation}.{entry.batch}"


def name_in(files: Sequence[DataFile], text: str) -> DataFile | None:
    """The file that an error is about."""
    plain = unquote(text)
    return next((one for one in files if one.name in plain), None)


def own_file(uri: str, version: int | None, text: str) -> str | None:
    try:
        found = name_in(data_files(uri, version), text)
    except Exception:  # the log itself may be what cannot be read
        return None
    return found.path if found is not None else None
