"""Files that are in no version of a table and hold a data subject; and names in logs and states."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.erasure.rewrite import Rewrite, finding, sought
from penstock.erasure.search import GONE
from penstock.erasure.text_search import MASK
from penstock.ledger.delta_log import DeltaLog
from penstock.maintenance.retention import needs, still_needed
from penstock.maintenance.tables import all_places
from penstock.maintenance.vacuum import now_ms, within
from penstock.storage.locks import acquire_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.erasure.rewrite import Find, SubjectRows
    from penstock.erasure.search import FileSeen, KnownTable, LakeSearch
    from penstock.erasure.text_search import NameSearch
    from penstock.maintenance.tables import MaintainedTable
    from penstock.plan.model import Plan
    from penstock.storage.stores import Store
    from penstock.tables.session import TableSession
    from penstock.tables.subject_columns import SubjectMatch

# Files in the folder of a table that are in no version of it and hold somebody: deleted, once no reader needs them.


_END = b"PAR1"
PATIENCE = 600.0


@dataclass(frozen=True)
class Beside:
    """What was found beside the versions of a table, or of its quarantine."""

    place: str
    files: int = 0
    """That were decoded."""
    held: int = 0
    """Rows of somebody in them."""
    removed: tuple[str, ...] = ()
    bytes: int = 0
    needed: Mapping[str, int] = field(default_factory=dict)
    """How many files that hold somebody each reader still needs."""


def remove_files(plan: Plan, work: TableSession, wanted: SubjectMatch, *, delete: bool) -> list[Beside]:
    """The files are read before the table's batches have to wait; then, under its commit lock, only what is new since:
    what is in no version while no batch is at work is nobody's."""
    mine = [
        (place, finding(work.table, subjects, wanted))
        for place, subjects in sought(work.table, work.store, wanted).items()
        if DeltaLog(work.store, place.uri, place.name).versions()
    ]
    seen = {place.name: _read(work, place, find, _Read()) for place, find in mine}
    acquire_commit(work.lock, work.table.name, patience=PATIENCE)
    try:
        return [_remove(plan, work, place, _read(work, place, find, seen[place.name]), delete) for place, find in mine]
    finally:
        work.lock.release()


def remove_named(plan: Plan, work: TableSession, known: KnownTable, search: LakeSearch) -> Beside:
    """The same by the search of all columns, for files of any table, declared or not. What it has found in files of the
    newest version is learnt from, and stays."""

    def named(found: Mapping[str, FileSeen]) -> list[str]:
        broken = {name for name, one in found.items() if one.trouble not in (None, GONE)}
        return [n for n, one in found.items() if n in broken or any(search.holds(known, seen) for seen in one.seen)]

    place = next(one for one in all_places(work.table, work.store) if one.name == known.name)
    _beside(work, known, search)
    if place.kind == "files":  # written to without a lock: a file that is in no version may be about to get into one
        return Beside(known.name)
    acquire_commit(work.lock, work.table.name, patience=PATIENCE)
    try:
        found, sizes = _beside(work, known, search)
        goes = named(found)
        needed = _needed(plan, work, place, goes)
        removed = [name for name in goes if not any(name in files for files in needed.values())]
        for name in removed:
            delete_file(work.store, known.uri, name)
        _without_empty(known.uri)
    finally:
        work.lock.release()
    waits = {reader: len(files) for reader, files in needed.items() if files}
    return Beside(known.name, len(found), 0, tuple(removed), sum(sizes[name] for name in removed), waits)


def _beside(work: TableSession, known: KnownTable, search: LakeSearch) -> tuple[dict[str, FileSeen], dict[str, int]]:
    """What was seen in the files that are in no version."""
    listed = work.store.listing(known.uri)
    data = {name: about for name, about in listed.items() if name.endswith(".parquet") and not _of_log(name)}
    active = {within(name, known.uri) for name in Rewrite(work.spark.newSession(), known.uri).files}
    search.learn_alike(known, search.data(known, [name for name in data if name in active], data))
    others = [name for name in data if name not in active]
    return search.data(known, others, data), {name: data[name].size for name in others}


def _without_empty(uri: str) -> None:
    """Folders of partitions in which no file is left: their names are values of rows."""
    if "://" in uri:
        return
    for folder, _, _ in sorted(os.walk(uri), reverse=True):
        if "=" in Path(folder).name:
            with suppress(OSError):  # not empty
                Path(folder).rmdir()


@dataclass(frozen=True)
class _Read:
    others: tuple[str, ...] = ()
    """In no version."""
    whole: frozenset[str] = frozenset()
    """Those that could be read."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Rows of somebody."""
    sizes: Mapping[str, int] = field(default_factory=dict)


def _read(work: TableSession, place: MaintainedTable, find: Find, before: _Read) -> _Read:
    rewrite = Rewrite(work.spark.newSession(), place.uri)
    listed = work.store.listing(place.uri)
    active = {within(name, place.uri) for name in rewrite.files}
    others = [name for name in listed if name.endswith(".parquet") and name not in active and not _of_log(name)]
    readable = frozenset(name for name in others if "://" in place.uri or whole(place.uri, name))
    held = dict(before.held) | rewrite.held_beside(find, [name for name in readable if name not in before.whole])
    there = {name: count for name, count in held.items() if name in readable}
    return _Read(tuple(others), readable, there, {name: listed[name].size for name in others})


def _remove(plan: Plan, work: TableSession, place: MaintainedTable, read: _Read, delete: bool) -> Beside:
    broken = [name for name in read.others if name not in read.whole]  # their writers are dead: the lock is ours
    goes = [*read.held, *broken]
    store = work.store
    needed = _needed(plan, work, place, goes)
    removed = [name for name in goes if not any(name in files for files in needed.values())]
    for name in removed if delete else ():
        delete_file(store, place.uri, name)
    return Beside(
        place.name,
        len(read.others),
        sum(read.held.values()),
        tuple(removed),
        sum(read.sizes[name] for name in removed),
        {reader: len(files & read.held.keys()) for reader, files in needed.items() if files & read.held.keys()},
    )


def _needed(plan: Plan, work: TableSession, place: MaintainedTable, goes: Sequence[str]) -> dict[str, set[str]]:
    """By reader, those of the files that it still needs."""
    found: dict[str, set[str]] = {}
    for need in needs(plan, work.table, place, work.store, now_ms()) if goes else ():
        files = set(goes) & still_needed(work.store, place.uri, [need]).keys()
        found[need.who] = found.get(need.who, set()) | files
    return found


def delete_file(store: Store, uri: str, name: str) -> None:
    """With the checksum that Hadoop keeps beside it."""
    folder, _, last = name.rpartition("/")
    store.delete(f"{uri}/{name}")
    store.delete(f"{uri}/{f'{folder}/' if folder else ''}.{last}.crc")


def whole(uri: str, name: str) -> bool:
    """Whether its writer came to the end; one that died has left a file that nobody can read."""
    try:
        with (Path(uri) / name).open("rb") as file:
            file.seek(0, 2)
            if file.tell() < 2 * len(_END):
                return False
            file.seek(-len(_END), 2)
            return file.read() == _END
    except FileNotFoundError:
        return True  # gone since it was listed


def current(spark: SparkSession, work: TableSession, wanted: SubjectMatch) -> dict[str, tuple[int, SubjectRows]]:
    """Of every place: how many files its newest version has, and what they hold; nothing is changed."""
    found = {}
    for place, subjects in sought(work.table, work.store, wanted).items():
        if DeltaLog(work.store, place.uri, place.name).versions():
            rewrite = Rewrite(spark.newSession(), place.uri)
            looked = rewrite.look(finding(work.table, subjects, wanted))
            found[place.name] = (len(looked.seen), looked.held)
    return found


def _of_log(name: str) -> bool:
    return name.startswith("_delta_log/")


# Names in what Penstock tells people: its logs, and the states of tables, which quote errors. In a log a name is
# overwritten where it stands, in the same length: a process may be writing to it.


_CHUNK = 1 << 20
_OWN = ".penstock"


@dataclass(frozen=True)
class Searched:
    files: int = 0
    masked: tuple[str, ...] = ()
    """Logs in which a name was overwritten."""
    held: tuple[str, ...] = ()
    """Files that still have one."""
    strangers: tuple[str, ...] = ()
    """Folders of the lake that belong to no table of the project."""


def search(plan: Plan, store: Store, needles: Sequence[NameSearch], folders: Sequence[str], *, mask: bool) -> Searched:
    """`folders` are those of the tables. What is left in files is found by the search of everything."""
    telling = [one for one in needles if one.telling]
    masked: list[str] = []
    files = 0
    for path in _files(plan, folders):
        files += 1
        spans = list(_spans(path, needles)) if path.suffix == ".log" else []
        if spans and mask:
            _overwrite(path, spans)
            masked.append(str(path))
    states = f"{plan.system}/state"
    for name in store.names(states):
        text = store.read(f"{states}/{name}") if name.endswith(".json") and mask else None
        if text is not None and any(one.in_text(text) for one in telling):
            for needle in telling:
                text = needle.masked(text)
            store.write(f"{states}/{name}", text)
            masked.append(f"{states}/{name}")
    return Searched(files, tuple(masked), (), tuple(_strangers(plan, store, folders)))


def _files(plan: Plan, folders: Sequence[str]) -> Iterator[Path]:
    """Those on this machine."""
    begin = [Path(plan.root) / _OWN]
    if plan.local:
        begin += [path for path in sorted(Path(plan.lake).glob("*")) if not _of_tables(str(path), folders)]
        begin += [path for path in sorted(Path(plan.lake).glob("*/*")) if not _of_tables(str(path), folders)]
    seen: set[Path] = set()
    for one in begin:
        for path in sorted(one.rglob("*")) if one.is_dir() else [one]:
            if path.is_file() and path not in seen:
                seen.add(path)
                yield path


def _of_tables(path: str, folders: Sequence[str]) -> bool:
    """A table, or a folder in which there is one."""
    return any(one == path or one.startswith(f"{path}/") or path.startswith(f"{one}/") for one in folders)


def _strangers(plan: Plan, store: Store, folders: Sequence[str]) -> Iterator[str]:
    for layer in store.names(plan.lake):
        if f"{plan.lake}/{layer}" == plan.system:
            continue
        for name in store.names(f"{plan.lake}/{layer}"):
            place = f"{plan.lake}/{layer}/{name}"
            if place not in folders and store.names(f"{place}/_delta_log"):
                yield place


def _spans(path: Path, needles: Sequence[NameSearch]) -> Iterator[tuple[int, int]]:
    """In pieces that overlap, so that none is cut in two."""
    if not needles:
        return
    overlap = max(one.longest for one in needles)
    at, tail = 0, b""
    try:
        with path.open("rb") as file:
            while piece := file.read(_CHUNK):
                content = tail + piece
                begin = at - len(tail)
                ended = len(piece) < _CHUNK
                for needle in needles:
                    for first, last in needle.spans(content):
                        if ended or last < len(content):  # else it may go on, and be another word
                            yield begin + first, begin + last
                at += len(piece)
                tail = content[-overlap:]
    except FileNotFoundError:
        return


def _overwrite(path: Path, spans: Sequence[tuple[int, int]]) -> None:
    with path.open("r+b") as file:
        for first, last in spans:
            file.seek(first)
            file.write(MASK * (last - first))
