"""The data files of a table: whether each that the log names is there, with as many rows and bytes as it says."""

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

# What the commits of a table say of their own rows: do their numbers fit each other?
#
# A commit that says it changes no row must put as many rows in as it takes out; a batch of a table that only grows
# takes none out; and each entry counts what the batch before it wrote.


def only_grows(table: TablePlan) -> bool:
    """Its batches add rows, and never take one out."""
    streamed = table.stream is not None and table.stream.output != "append"
    return table.write.merge is None and table.aggregate is None and not streamed


@dataclass
class _Files:
    """Rows of each file that is in the table, as far as the log tells: by path, None where it has no statistics."""

    rows: dict[str, int | None] = field(default_factory=dict)

    def taken(self, actions: list[dict[str, Any]]) -> int | None:
        """Rows of the files that a commit removes; None if one of them is not known."""
        paths = [one["remove"]["path"] for one in actions if "remove" in one]
        found = [self.rows.get(path) for path in paths]
        return None if None in found else sum(one or 0 for one in found)

    def follow(self, actions: list[dict[str, Any]]) -> None:
        for one in actions:
            if "remove" in one:
                self.rows.pop(one["remove"]["path"], None)
        for one in actions:
            if "add" in one:
                self.rows[one["add"]["path"]] = rows_of(one["add"])


def rows_of(add: Mapping[str, Any]) -> int | None:
    """Of a file, without those that a deletion vector has taken out."""
    stats = json.loads(add.get("stats") or "{}")
    gone = (add.get("deletionVector") or {}).get("cardinality", 0)
    return int(stats["numRecords"]) - int(gone) if "numRecords" in stats else None


def count_problems(store: Store, table: TablePlan, first: int, last: int) -> Iterator[str]:
    """Of the versions from `first` to `last`, which the log has without a hole."""
    files, before = _Files(), None
    grows = only_grows(table)
    for version in range(first, last + 1):
        text = store.read(f"{table.uri}/_delta_log/{version:020d}.json")
        if text is None:  # log retention took it meanwhile
            files, before = _Files(), None
            continue
        actions = [json.loads(line) for line in text.split("\n") if line]
        commit = read_commit(version, text, table.name)
        yield from _of_files(commit, actions, files, grows=grows and table.sink is None)
        files.follow(actions)
        entry = commit.entry if commit.origin is Origin.LEDGER else None
        if entry is not None:
            yield from _of_entries(before, commit, entry)
            before = (commit, entry)


def _of_files(commit: Commit, actions: list[dict[str, Any]], files: _Files, *, grows: bool) -> Iterator[str]:
    adds = [one["add"] for one in actions if "add" in one]
    removes = [one["remove"] for one in actions if "remove" in one]
    counts = [rows_of(add) for add in adds]
    put = None if None in counts else sum(one or 0 for one in counts)
    if (adds or removes) and not any(one["dataChange"] for one in (*adds, *removes)):
        taken = files.taken(actions)
        if taken is not None and put is not None and taken != put:
            yield (
                f"version {commit.version} ({commit.operation}) says that it changes no row, and puts {put:,} rows in "
                f"the place of {taken:,}"
            )
        return
    entry = commit.entry
    if entry is None or entry.kind != "batch" or commit.origin is not Origin.LEDGER or not grows:
        return
    named = f"version {commit.version} (batch {entry.generation}.{entry.batch})"
    if removes:
        yield f"{named} takes {len(removes):,} files out of a table that only grows"
    elif put is not None and entry.applied is None and put != commit.rows:
        yield f"{named} says that it wrote {commit.rows:,} rows, its files have {put:,}"


def _of_entries(before: tuple[Commit, Entry] | None, commit: Commit, entry: Entry) -> Iterator[str]:
    if before is None or entry.kind != "batch" or entry.generation != before[1].generation:
        return
    earlier, last = before
    if last.kind not in ("batch", "genesis", "carry") or last.key == entry.key:
        return
    total = LedgerHead(last, earlier, ()).counts.total
    if entry.counts.total != total:
        yield (
            f"version {commit.version} (batch {entry.generation}.{entry.batch}) counts {entry.counts.total:,} rows "
            f"before it, the entry of version {earlier.version} makes that {total:,}"
        )


# The data files of a table: whether each that the log names is there, as large as it says, and who added it.


@dataclass(frozen=True)
class LoggedFile:
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


def data_files(uri: str, version: int | None) -> list[LoggedFile]:
    """Those of a version."""
    from deltalake import DeltaTable

    from penstock.storage.stores import storage_options

    table = DeltaTable(uri, version=version, storage_options=storage_options(uri) or None)
    adds: Any = table.get_add_actions(flatten=True)
    names = set(adds.schema.names)

    def column(name: str) -> list[Any]:
        return list(adds.column(name).to_pylist()) if name in names else [None] * adds.num_rows

    parts = zip(column("path"), column("size_bytes"), column("num_records"), strict=True)
    return [LoggedFile(str(path), int(size), None if rows is None else int(rows)) for path, size, rows in parts]


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


def _sizes(store: Store, uri: str, files: Iterable[LoggedFile]) -> dict[str, int]:
    if "://" in uri:
        return {LoggedFile.named(path): one.size for path, one in store.listing(uri).items()}
    found = {}
    for one in files:
        plain = one.path.removeprefix("file://")
        for path in (Path(uri) / plain, Path(uri) / unquote(plain)):
            if path.is_file():
                found[one.name] = path.stat().st_size
                break
    return found


def origin_of(store: Store, uri: str, file: LoggedFile) -> str:
    """`part-0.parquet (12 rows, added in version 7 by batch 1.6)`."""
    rows = "" if file.rows is None else f"{file.rows:,} rows, "
    return f"{file.path} ({rows}{_added(store, uri, file)})"


def _added(store: Store, uri: str, file: LoggedFile) -> str:
    for version, _, info in _adds(store, uri, file):
        return f"added in version {version}{_by(info)}"
    return "added before the log begins"


def living_in(store: Store, uri: str, file: LoggedFile, version: int | None) -> int | None:
    """Its rows without those that a deletion vector has taken out; None if the log no longer says it."""
    found = None
    for at, add, _ in _adds(store, uri, file):
        if version is None or at <= version:
            found = rows_of(add)
    return found


def _adds(store: Store, uri: str, file: LoggedFile) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
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
            if "add" in one and LoggedFile.named(one["add"]["path"]) == file.name:
                yield version, one["add"], info


def _by(info: dict[str, Any]) -> str:
    entry = parse_entry(info.get("userMetadata"))
    if entry is None or info.get("operation") == "OPTIMIZE":
        return f" ({info.get('operation', 'unknown')})"
    return f" by {entry.kind} {entry.generation}.{entry.batch}"


def name_in(files: Sequence[LoggedFile], text: str) -> LoggedFile | None:
    """The file that an error is about."""
    plain = unquote(text)
    return next((one for one in files if one.name in plain), None)


def own_file(uri: str, version: int | None, text: str) -> str | None:
    try:
        found = name_in(data_files(uri, version), text)
    except Exception:  # the log itself may be what cannot be read
        return None
    return found.path if found is not None else None
