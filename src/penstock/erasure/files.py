"""Deletes files that are in no version of a table and hold a data subject, once no reader needs them; and removes names
from Penstock's logs and states."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.erasure.rewrite import Rewrite, created_places, paused_table
from penstock.erasure.search import DELETED
from penstock.erasure.text_search import MASK
from penstock.maintenance.retention import files_needed, needs
from penstock.maintenance.tables import all_maintained_tables
from penstock.maintenance.vacuum import within
from penstock.spec.quantity import now_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.erasure.rewrite import Find, SubjectRows
    from penstock.erasure.search import FileSeen, KnownTable, LakeSearch
    from penstock.erasure.text_search import NameSearch
    from penstock.maintenance.tables import MaintainedTable
    from penstock.plan.model import Plan
    from penstock.storage.stores import Store
    from penstock.tables.session import TableSession
    from penstock.tables.subject_columns import SubjectOrders

_PARQUET_END = b"PAR1"
_LOG = "_delta_log/"


@dataclass(frozen=True)
class UnlistedFiles:
    """What was found in files that are in no version of a table or of a place beside it."""

    place: str
    files: int = 0
    """Files that were decoded."""
    subject_rows: int = 0
    """Rows of the subject in them."""
    removed: tuple[str, ...] = ()
    bytes: int = 0
    needed_by: Mapping[str, int] = field(default_factory=dict)
    """By reader: the number of files with the subject that it still needs."""


def remove_files(plan: Plan, work: TableSession, matcher: SubjectOrders, *, delete: bool) -> list[UnlistedFiles]:
    """Reads the files before the table's batches have to wait; then, under its commit lock, only files that are new
    since: a file that is in no version while no batch runs belongs to nobody."""
    searches = list(created_places(work, matcher))
    earlier = {place.name: _read_unlisted(work, place, find, _UnlistedFiles()) for place, find in searches}
    with paused_table(work):
        return [
            _remove_subject(plan, work, place, _read_unlisted(work, place, find, earlier[place.name]), delete)
            for place, find in searches
        ]


def remove_files_with_names(plan: Plan, work: TableSession, table: KnownTable, search: LakeSearch) -> UnlistedFiles:
    """The same with a search of all columns, for files of any table, declared or not. Findings in files of the newest
    version are only used to learn which values belong to others; those files stay."""

    place = next(
        candidate for candidate in all_maintained_tables(work.table, work.store) if candidate.name == table.name
    )
    _search_unlisted(work, table, search)
    if place.kind == "files":  # written without a lock: a file in no version may be about to enter one
        return UnlistedFiles(table.name)
    with paused_table(work):
        searched, sizes = _search_unlisted(work, table, search)
        to_delete = [
            name
            for name, file_seen in searched.items()
            if file_seen.error not in (None, DELETED) or any(search.holds(table, hit) for hit in file_seen.hits)
        ]
        removed, needed = _remove_unneeded(plan, work, place, to_delete)
        _remove_empty_partitions(table.uri)
    waiting = {reader: len(files) for reader, files in needed.items() if files}
    return UnlistedFiles(table.name, len(searched), 0, removed, sum(sizes[name] for name in removed), waiting)


def _search_unlisted(
    work: TableSession, table: KnownTable, search: LakeSearch
) -> tuple[dict[str, FileSeen], dict[str, int]]:
    """Searches the files that are in no version; returns what it found, and their sizes."""
    listing = work.store.listing(table.uri)
    data = {name: file for name, file in listing.items() if name.endswith(".parquet") and not name.startswith(_LOG)}
    active = {within(name, table.uri) for name in Rewrite(work.spark.newSession(), table.uri).files}
    search.learn_alike(table, search.search_table(table, [name for name in data if name in active], data))
    unlisted = [name for name in data if name not in active]
    return search.search_table(table, unlisted, data), {name: data[name].size for name in unlisted}


def _remove_empty_partitions(uri: str) -> None:
    """Removes partition folders without files: their names are values of rows."""
    if "://" in uri:
        return
    for folder, _, _ in sorted(os.walk(uri), reverse=True):
        if "=" in Path(folder).name:
            with suppress(OSError):  # not empty
                Path(folder).rmdir()


@dataclass(frozen=True)
class _UnlistedFiles:
    """Files that are in no version."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    readable: frozenset[str] = frozenset()
    subject_rows: Mapping[str, int] = field(default_factory=dict)
    """Rows of the subject, by file; only files that have some."""


def _read_unlisted(work: TableSession, place: MaintainedTable, find: Find, earlier: _UnlistedFiles) -> _UnlistedFiles:
    rewrite = Rewrite(work.spark.newSession(), place.uri)
    listing = work.store.listing(place.uri)
    active = {within(name, place.uri) for name in rewrite.files}
    sizes = {
        name: file.size
        for name, file in listing.items()
        if name.endswith(".parquet") and name not in active and not name.startswith(_LOG)
    }
    readable = frozenset(name for name in sizes if "://" in place.uri or is_complete_parquet(place.uri, name))
    new = [name for name in readable if name not in earlier.readable]
    counts = dict(earlier.subject_rows) | rewrite.count_unlisted(find, new)
    return _UnlistedFiles(sizes, readable, {name: count for name, count in counts.items() if name in readable})


def _remove_subject(
    plan: Plan, work: TableSession, place: MaintainedTable, unlisted: _UnlistedFiles, delete: bool
) -> UnlistedFiles:
    # The writers of broken files are dead: we hold the lock.
    broken = [name for name in unlisted.sizes if name not in unlisted.readable]
    with_subject = unlisted.subject_rows.keys()
    removed, needed = _remove_unneeded(plan, work, place, [*with_subject, *broken], delete=delete)
    return UnlistedFiles(
        place.name,
        len(unlisted.sizes),
        sum(unlisted.subject_rows.values()),
        removed,
        sum(unlisted.sizes[name] for name in removed),
        {reader: len(files & with_subject) for reader, files in needed.items() if files & with_subject},
    )


def _remove_unneeded(
    plan: Plan, work: TableSession, place: MaintainedTable, names: Sequence[str], *, delete: bool = True
) -> tuple[tuple[str, ...], dict[str, set[str]]]:
    """Deletes those of the files that no reader needs. Returns them; and by reader, those that it still needs."""
    needed: dict[str, set[str]] = {}
    for need in needs(plan, work.table, place, work.store, now_ms()) if names else ():
        files = set(names) & files_needed(work.store, place.uri, [need]).keys()
        needed[need.reader] = needed.get(need.reader, set()) | files
    removed = tuple(name for name in names if not any(name in files for files in needed.values()))
    for name in removed if delete else ():
        delete_file(work.store, place.uri, name)
    return removed, needed


def delete_file(store: Store, uri: str, name: str) -> None:
    """Deletes the file and the checksum file that Hadoop keeps beside it."""
    folder, _, last = name.rpartition("/")
    store.delete(f"{uri}/{name}")
    store.delete(f"{uri}/{f'{folder}/' if folder else ''}.{last}.crc")


def is_complete_parquet(uri: str, name: str) -> bool:
    """Whether its writer finished; a writer that died has left a file that cannot be read."""
    try:
        with (Path(uri) / name).open("rb") as file:
            file.seek(0, 2)
            if file.tell() < 2 * len(_PARQUET_END):
                return False
            file.seek(-len(_PARQUET_END), 2)
            return file.read() == _PARQUET_END
    except FileNotFoundError:
        return True  # deleted since it was listed


def search_current(
    spark: SparkSession, work: TableSession, matcher: SubjectOrders
) -> dict[str, tuple[int, SubjectRows]]:
    """By place: the number of files in its newest version and the subject's rows in them. Changes nothing."""
    places = {}
    for place, find in created_places(work, matcher):
        searched = Rewrite(spark.newSession(), place.uri).find_subject(find)
        places[place.name] = (len(searched.names), searched.subject_rows)
    return places


# Names in Penstock's own output: its logs, and the states of tables, which quote errors. In a log a name is overwritten
# in place, in the same length, because a process may be writing to it.


_CHUNK = 1 << 20
_PENSTOCK_FOLDER = ".penstock"


@dataclass(frozen=True)
class OutputSearch:
    files: int = 0
    masked: tuple[str, ...] = ()
    """Logs in which a name was overwritten."""
    foreign_tables: tuple[str, ...] = ()
    """Folders of the lake that belong to no table of the project."""


def clean_output(plan: Plan, store: Store, needles: Sequence[NameSearch], folders: Sequence[str]) -> OutputSearch:
    """`folders` are those of the tables. Names that stay in files are found later by `LakeSearch.search_all`."""
    unambiguous = [needle for needle in needles if needle.is_unambiguous]
    masked: list[str] = []
    files = 0
    for path in _local_files(plan, folders):
        files += 1
        spans = list(_name_spans(path, needles)) if path.suffix == ".log" else []
        if spans:
            _overwrite(path, spans)
            masked.append(str(path))
    states = f"{plan.system}/state"
    for name in store.names(states):
        text = store.read(f"{states}/{name}") if name.endswith(".json") else None
        if text is not None and any(needle.in_text(text) for needle in unambiguous):
            for needle in unambiguous:
                text = needle.masked(text)
            store.write(f"{states}/{name}", text)
            masked.append(f"{states}/{name}")
    return OutputSearch(files, tuple(masked), tuple(_foreign_tables(plan, store, folders)))


def _local_files(plan: Plan, folders: Sequence[str]) -> Iterator[Path]:
    """Files on this machine that belong to no table."""
    starts = [Path(plan.root) / _PENSTOCK_FOLDER]
    if plan.local:
        paths = [*sorted(Path(plan.lake).glob("*")), *sorted(Path(plan.lake).glob("*/*"))]
        starts += [path for path in paths if not _overlaps_table(str(path), folders)]
    seen: set[Path] = set()
    for start in starts:
        for path in sorted(start.rglob("*")) if start.is_dir() else [start]:
            if path.is_file() and path not in seen:
                seen.add(path)
                yield path


def _overlaps_table(path: str, folders: Sequence[str]) -> bool:
    """Whether the path is in a table, is a table, or is a folder that contains one."""
    return any(folder == path or folder.startswith(f"{path}/") or path.startswith(f"{folder}/") for folder in folders)


def _foreign_tables(plan: Plan, store: Store, folders: Sequence[str]) -> Iterator[str]:
    for layer in store.names(plan.lake):
        if f"{plan.lake}/{layer}" == plan.system:
            continue
        for name in store.names(f"{plan.lake}/{layer}"):
            place = f"{plan.lake}/{layer}/{name}"
            if place not in folders and store.names(f"{place}/_delta_log"):
                yield place


def _name_spans(path: Path, needles: Sequence[NameSearch]) -> Iterator[tuple[int, int]]:
    """Reads in overlapping pieces, so that no name is cut in two."""
    if not needles:
        return
    overlap = max(needle.longest for needle in needles)
    position, tail = 0, b""
    try:
        with path.open("rb") as file:
            while piece := file.read(_CHUNK):
                content = tail + piece
                piece_start = position - len(tail)
                is_last = len(piece) < _CHUNK
                for needle in needles:
                    for first, last in needle.spans(content):
                        if is_last or last < len(content):  # else the word may continue in the next piece
                            yield piece_start + first, piece_start + last
                position += len(piece)
                tail = content[-overlap:]
    except FileNotFoundError:
        return


def _overwrite(path: Path, spans: Sequence[tuple[int, int]]) -> None:
    with path.open("r+b") as file:
        for first, last in spans:
            file.seek(first)
            file.write(MASK * (last - first))
