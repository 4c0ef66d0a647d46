"""Checks that every data file in a table's log exists, with as many rows and bytes as the log says."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.ledger.delta_log import Origin, read_commit
from penstock.ledger.entry import parse as parse_entry
from penstock.ledger.head import LedgerHead

if TYPE_CHECKING:
    from penstock.ledger.delta_log import Commit
    from penstock.ledger.entry import Entry
    from penstock.plan.model import TablePlan
    from penstock.storage.stores import Store

# Whether the row counts in the commits of a table fit each other.
#
# A commit that says it changes no row must add as many rows as it removes; a batch of a table that only grows removes
# none; and each entry counts what the batch before it wrote.


def only_grows(table: TablePlan) -> bool:
    """Whether its batches add rows and never remove any."""
    streamed = table.stream is not None and table.stream.output != "append"
    return table.write.merge is None and table.aggregate is None and not streamed


@dataclass
class _FileRows:
    """Row counts of the files in the table, by path; None where the log has no statistics."""

    rows: dict[str, int | None] = field(default_factory=dict)

    def taken(self, actions: list[dict[str, Any]]) -> int | None:
        """Rows of the files that a commit removes; None if one of them is not known."""
        paths = [action["remove"]["path"] for action in actions if "remove" in action]
        counts = [self.rows.get(path) for path in paths]
        return None if None in counts else sum(count or 0 for count in counts)

    def follow(self, actions: list[dict[str, Any]]) -> None:
        for action in actions:
            if "remove" in action:
                self.rows.pop(action["remove"]["path"], None)
        for action in actions:
            if "add" in action:
                self.rows[action["add"]["path"]] = rows_of(action["add"])


def rows_of(add: Mapping[str, Any]) -> int | None:
    """Row count of a file without the rows that a deletion vector has removed; None if the log does not say."""
    stats = json.loads(add.get("stats") or "{}")
    deleted = (add.get("deletionVector") or {}).get("cardinality", 0)
    return int(stats["numRecords"]) - int(deleted) if "numRecords" in stats else None


def count_problems(store: Store, table: TablePlan, first: int, last: int) -> Iterator[str]:
    """Describe row counts that do not fit, in the versions from `first` to `last`, which the log has without a hole."""
    files, previous = _FileRows(), None
    grows = only_grows(table)
    for version in range(first, last + 1):
        text = store.read(f"{table.uri}/_delta_log/{version:020d}.json")
        if text is None:  # log retention removed it meanwhile
            files, previous = _FileRows(), None
            continue
        actions = [json.loads(line) for line in text.split("\n") if line]
        commit = read_commit(version, text, table.name)
        yield from _file_problems(commit, actions, files, grows=grows and table.sink is None)
        files.follow(actions)
        entry = commit.entry if commit.origin is Origin.LEDGER else None
        if entry is not None:
            yield from _entry_problems(previous, commit, entry)
            previous = (commit, entry)


def _file_problems(commit: Commit, actions: list[dict[str, Any]], files: _FileRows, *, grows: bool) -> Iterator[str]:
    adds = [action["add"] for action in actions if "add" in action]
    removes = [action["remove"] for action in actions if "remove" in action]
    counts = [rows_of(add) for add in adds]
    added = None if None in counts else sum(count or 0 for count in counts)
    if (adds or removes) and not any(action["dataChange"] for action in (*adds, *removes)):
        removed = files.taken(actions)
        if removed is not None and added is not None and removed != added:
            yield (
                f"version {commit.version} ({commit.operation}) says that it changes no row, and puts {added:,} rows "
                f"in the place of {removed:,}"
            )
        return
    entry = commit.entry
    if entry is None or entry.kind != "batch" or commit.origin is not Origin.LEDGER or not grows:
        return
    label = f"version {commit.version} (batch {entry.generation}.{entry.batch})"
    if removes:
        yield f"{label} takes {len(removes):,} files out of a table that only grows"
    elif added is not None and entry.applied is None and added != commit.rows:
        yield f"{label} says that it wrote {commit.rows:,} rows, its files have {added:,}"


def _entry_problems(previous: tuple[Commit, Entry] | None, commit: Commit, entry: Entry) -> Iterator[str]:
    if previous is None or entry.kind != "batch" or entry.generation != previous[1].generation:
        return
    previous_commit, previous_entry = previous
    if previous_entry.kind not in ("batch", "genesis", "carry") or previous_entry.key == entry.key:
        return
    total = LedgerHead(previous_entry, previous_commit, ()).counts.total
    if entry.counts.total != total:
        yield (
            f"version {commit.version} (batch {entry.generation}.{entry.batch}) counts {entry.counts.total:,} rows "
            f"before it, the entry of version {previous_commit.version} makes that {total:,}"
        )


# Whether every data file in the log exists and is as large as the log says, and who added it.


@dataclass(frozen=True)
class LoggedFile:
    path: str
    """As the log has it: relative to the table, or a full address if it lies elsewhere."""
    size: int
    rows: int | None
    """Rows written into it; a deletion vector may have removed some since."""

    @property
    def name(self) -> str:
        return self.name_of(self.path)

    @staticmethod
    def name_of(path: str) -> str:
        return unquote(path.rpartition("/")[2])


def data_files(uri: str, version: int | None) -> list[LoggedFile]:
    """The data files of a version."""
    from deltalake import DeltaTable

    from penstock.storage.stores import storage_options

    table = DeltaTable(uri, version=version, storage_options=storage_options(uri) or None)
    adds: Any = table.get_add_actions(flatten=True)
    names = set(adds.schema.names)

    def column(name: str) -> list[Any]:
        return list(adds.column(name).to_pylist()) if name in names else [None] * adds.num_rows

    parts = zip(column("path"), column("size_bytes"), column("num_records"), strict=True)
    return [LoggedFile(str(path), int(size), None if rows is None else int(rows)) for path, size, rows in parts]


def damaged_files(store: Store, uri: str, version: int | None) -> Iterator[str]:
    """Describe files that are missing or not as large as the log says, each with who added it."""
    files = data_files(uri, version)
    sizes = _sizes(store, uri, files)
    for file in files:
        actual_size = sizes.get(file.name)
        if actual_size == file.size:
            continue
        problem = "is not there" if actual_size is None else f"has {actual_size:,} bytes, the log says {file.size:,}"
        yield f"{origin_of(store, uri, file)} {problem}"


def _sizes(store: Store, uri: str, files: Iterable[LoggedFile]) -> dict[str, int]:
    if "://" in uri:
        return {LoggedFile.name_of(path): listed_file.size for path, listed_file in store.listing(uri).items()}
    sizes = {}
    for file in files:
        local_path = file.path.removeprefix("file://")
        for path in (Path(uri) / local_path, Path(uri) / unquote(local_path)):
            if path.is_file():
                sizes[file.name] = path.stat().st_size
                break
    return sizes


def origin_of(store: Store, uri: str, file: LoggedFile) -> str:
    """Describe a file: `part-0.parquet (12 rows, added in version 7 by batch 1.6)`."""
    rows = "" if file.rows is None else f"{file.rows:,} rows, "
    addition = "added before the log begins"
    for version, _, info in _add_actions(store, uri, file):
        addition = f"added in version {version}{_describe_author(info)}"
        break
    return f"{file.path} ({rows}{addition})"


def live_row_count(store: Store, uri: str, file: LoggedFile, version: int | None) -> int | None:
    """Row count of the file without the rows that a deletion vector has removed; None if the log no longer says it."""
    rows = None
    for added_in, add, _ in _add_actions(store, uri, file):
        if version is None or added_in <= version:
            rows = rows_of(add)
    return rows


def _add_actions(store: Store, uri: str, file: LoggedFile) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
    """The commits that added the file, oldest first: version, `add` action and `commitInfo`."""
    folder = f"{uri}/_delta_log"
    stems = (name[:-5] for name in store.names(folder) if name.endswith(".json"))
    for version in sorted(int(stem) for stem in stems if len(stem) == 20 and stem.isdigit()):
        text = store.read(f"{folder}/{version:020d}.json") or ""
        if file.name not in unquote(text):
            continue
        actions = [json.loads(line) for line in text.split("\n") if line]
        info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
        for action in actions:
            if "add" in action and LoggedFile.name_of(action["add"]["path"]) == file.name:
                yield version, action["add"], info


def _describe_author(info: dict[str, Any]) -> str:
    entry = parse_entry(info.get("userMetadata"))
    if entry is None or info.get("operation") == "OPTIMIZE":
        return f" ({info.get('operation', 'unknown')})"
    return f" by {entry.kind} {entry.generation}.{entry.batch}"


def file_named_in(files: Sequence[LoggedFile], text: str) -> LoggedFile | None:
    """The file that an error message names."""
    decoded = unquote(text)
    return next((file for file in files if file.name in decoded), None)


def path_named_in(uri: str, version: int | None, text: str) -> str | None:
    try:
        file = file_named_in(data_files(uri, version), text)
    except Exception:  # the log itself may be what cannot be read
        return None
    return file.path if file is not None else None
