"""Proves an erasure: searches every file of the lake for every form of the names, wherever the project says that they
are. Parquet, compressed files and Spark's state are searched in the JVM (penstock/forget/Search.java), text here. Names
that cannot be removed and files that cannot be read are reported: then nothing is proven.

A plain name (erasure/text_search.py) can also be something else. Numbers count as the name in columns that the project
declares and in columns of the same name computed from them; text counts in values of rows. Everything else with the
same digits is counted and reported, but not taken for the name.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.erasure.log_redaction import OF_ROWS, STATISTICS, json_values, parse_json
from penstock.erasure.text_search import NUMBER, PREFIX, Sighting, variants
from penstock.maintenance.tables import all_maintained_tables
from penstock.plan.quarantine import subjects_in_quarantine
from penstock.spark.jvm import java_session, jvm_of
from penstock.storage.stores import LocalStore
from penstock.tables.subject_columns import steps

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.erasure.text_search import NameSearch
    from penstock.maintenance.tables import MaintainedTable
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store, StoredFile

FORMS = (
    "text, as a word of its own, in both normal forms of Unicode",
    "with the escapes of JSON (up to three times) and of web addresses",
    "base64, also within a longer text; hexadecimal; UTF-16",
    "numbers by value, whatever their type",
    "the first 32 characters, in statistics",
)
OWN = ".penstock"
_LOG = "_delta_log/"
_BINARY = (".parquet", ".delta", ".snapshot", ".changelog", ".zip", ".sst", ".gz", ".zst", ".lz4")
_COMPRESSED = (b"\x1f\x8b", b"LZ4Block", b"PK\x03\x04", b"\x28\xb5\x2f\xfd")
_NOT_ROWS = ("topic", "_source.topic")
_CHUNK_SIZE = 5000
_TRIES, _PAUSE = 3, 1.0
DELETED = "gone"


@dataclass(frozen=True)
class KnownTable:
    """What the project declares about a Delta table."""

    name: str
    uri: str
    kind: str
    declared: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """By subject: columns, and paths into the JSON that they hold; a path of "" is the column itself."""
    numbers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By subject: columns in which a number is the name."""


@dataclass(frozen=True)
class NameSighting:
    """One name at one place in one file."""

    name: int
    column: str
    path: str
    count: int
    sighting: Sighting

    @property
    def place(self) -> str:
        return f"{self.column}{self.path.removeprefix('$') if self.path else ''}"


@dataclass(frozen=True)
class FileSeen:
    file: str
    bytes: int = 0
    error: str | None = None
    hits: tuple[NameSighting, ...] = ()


@dataclass
class SearchFindings:
    """What a search found, by table (or folder) and place in it: how often, and in which files."""

    files: int = 0
    bytes: int = 0
    names: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Files that contain the name. A file name that contains it itself is masked."""
    same: dict[tuple[str, str], int] = field(default_factory=dict)
    """Numbers with the same digits."""
    unreadable: list[str] = field(default_factory=list)

    @property
    def nothing(self) -> bool:
        return not self.names and not self.unreadable


def lake_tables(plan: Plan, store: Store) -> list[KnownTable]:
    known_tables = []
    for table in plan.tables:
        for place in all_maintained_tables(table, store):
            subjects = subjects_in_quarantine(table) if place.kind == "quarantine" else table.subjects
            declared = {
                subject: frozenset((column.column.casefold(), _json_path(column.path)) for column in columns)
                for subject, columns in (subjects.items() if place.kind != "files" else ())
            }
            known_tables.append(
                KnownTable(place.name, place.uri, place.kind, declared, _number_columns(plan, table, place))
            )
    return known_tables


def _json_path(path: str | None) -> str:
    return "" if path is None else "$" + "".join("[*]" if step.startswith("[") else step for step in steps(path))


def _number_columns(plan: Plan, table: TablePlan, place: MaintainedTable) -> dict[str, frozenset[str]]:
    """By subject: the columns in which a number is the name. A table that declares none takes those of its upstream."""
    if place.kind != "table":
        return {}
    numbers: dict[str, frozenset[str]] = {}
    pending: list[TablePlan] = [table]
    visited: set[str] = set()
    while pending:
        current = pending.pop()
        if current.name in visited:
            continue
        visited.add(current.name)
        for subject, subject_columns in current.subjects.items():
            if current is table or subject not in table.subjects:
                columns = frozenset(column.column.casefold() for column in subject_columns if column.path is None)
                numbers[subject] = numbers.get(subject, frozenset()) | columns
        names = [source.table for source in current.delta_sources if source.table is not None]
        pending += [upstream for name in names if (upstream := plan.table(name)) is not None]
    return numbers


class LakeSearch:
    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        store: Store,
        needles: Sequence[NameSearch],
        excepted: Collection[str] = (),
    ) -> None:
        """`excepted`: places such as `silver.orders.quantity` that the user declared to hold no names."""
        self._spark, self._plan, self._store = spark, plan, store
        self.name_searches = tuple(needles)
        self._excepted_places = {place.casefold() for place in excepted}
        self.tables = lake_tables(plan, store)
        self._results: dict[tuple[str, int, int], FileSeen] = {}
        self.others: set[str] = set()
        """Names of other subjects that contain a searched name: values of the declared places."""
        self._shared_prefixes: set[tuple[str, int]] = set()
        """Tables, with the index of a long name, that have living values with the same beginning."""

    # Parquet and other files that the JVM reads

    def search_files(self, files: Mapping[str, StoredFile]) -> dict[str, FileSeen]:
        """Searches files by their full paths. A file is searched only once: files do not change, and one that was
        written again has another time."""
        keys = {name: (name, file.size, file.modified_ms) for name, file in files.items()}
        new = [name for name, key in keys.items() if key not in self._results]
        for start in range(0, len(new), _CHUNK_SIZE):
            for file_seen in self._search_in_jvm(new[start : start + _CHUNK_SIZE]):
                self._results[keys[file_seen.file]] = file_seen
        return {name: self._results[key] for name, key in keys.items()}

    def _search_in_jvm(self, files: Sequence[str]) -> Iterator[FileSeen]:
        jvm = jvm_of(self._spark)
        names = jvm.java.util.ArrayList()
        for needle in self.name_searches:
            names.add(needle.value)
        answer = jvm.penstock.forget.Search.files(java_session(self._spark), "\n".join(files), names)
        for line in str(answer).split("\n"):
            yield _parse_file_seen(json.loads(line))

    def search_table(
        self, table: KnownTable, names: Iterable[str], listed: Mapping[str, StoredFile]
    ) -> dict[str, FileSeen]:
        """Searches files in a table's folder, by relative path, and learns names of other subjects from them."""
        searched = self.search_files({f"{table.uri}/{name}": listed[name] for name in names})
        by_name = {file[len(table.uri) + 1 :]: result for file, result in searched.items()}
        for file_seen in by_name.values():
            for hit in file_seen.hits:
                subject = self.name_searches[hit.name].subject
                is_text = hit.sighting.is_name() and bool(hit.sighting.text)
                if self._is_declared(table, subject, hit) and not hit.sighting.alone and is_text:
                    self.others.add(hit.sighting.text)
        return by_name

    def _is_declared(self, table: KnownTable, subject: str, hit: NameSighting) -> bool:
        return (hit.column.casefold(), hit.path) in table.declared.get(subject, ())

    def holds(self, table: KnownTable, hit: NameSighting, *, log: bool = False) -> bool:
        """Whether the hit is the name; else it is a number with the same digits, or another subject's name."""
        needle, place = self.name_searches[hit.name], f".{hit.place}"
        statistics = STATISTICS.search(place) if log else None
        if hit.sighting.kind == NUMBER:
            column = statistics[1] if statistics is not None else hit.column
            return (not log or statistics is not None) and column.casefold() in table.numbers.get(needle.subject, ())
        if hit.sighting.kind == PREFIX:
            is_bound = statistics is not None and hit.sighting.offset == 0
            return is_bound and (table.uri, hit.name) not in self._shared_prefixes
        if hit.sighting.within(self.others):
            return False
        if statistics is not None and statistics[1].casefold() in self.excepted_in(table):
            return False
        if needle.plain and log and place.endswith(".path"):
            before, after = hit.sighting.text[: hit.sighting.offset], hit.sighting.text[hit.sighting.offset :]
            if "=" not in before.rpartition("/")[2] or "/" not in after:  # not the folder of a partition
                return False
        if needle.plain and (OF_ROWS.search(place) is None if log else hit.column in _NOT_ROWS):
            return False
        if not log and self._is_declared(table, needle.subject, hit):
            return hit.sighting.alone
        return f"{table.name}.{hit.place}".casefold() not in self._excepted_places

    def in_bounds(self, hit: NameSighting) -> bool:
        """Whether the hit, of whatever kind, is in statistics of a log."""
        return STATISTICS.search(f".{hit.place}") is not None and not hit.sighting.within(self.others)

    def excepted_in(self, table: KnownTable) -> frozenset[str]:
        prefix = f"{table.name}.".casefold()
        return frozenset(place[len(prefix) :] for place in self._excepted_places if place.startswith(prefix))

    def same_digits(self, hit: NameSighting) -> bool:
        return (
            self.name_searches[hit.name].plain and hit.sighting.kind != PREFIX and not hit.sighting.within(self.others)
        )

    def learn_alike(self, table: KnownTable, active: Mapping[str, FileSeen]) -> None:
        for file_seen in active.values():
            self._shared_prefixes |= {(table.uri, hit.name) for hit in file_seen.hits if hit.sighting.kind == PREFIX}

    # All files of the lake

    def search_all(self, roots: Sequence[str]) -> SearchFindings:
        """Searches every file and every folder name below `roots`, folders of the lake and on this machine."""
        findings = SearchFindings()
        files: list[tuple[str, str, StoredFile]] = []
        for root in roots:
            store = self._store if "://" in root or "://" not in self._plan.lake else LocalStore()
            listed = store.listing(root)
            files += [(root, name, file) for name, file in listed.items()]
            for name in {*listed, *_folders(root, findings.unreadable)}:
                if self._path_has_name(root, name):
                    self._add_name(findings, root, name, "its own name, or that of its folder")
        by_path = {f"{root}/{name}": file for root, name, file in files}
        heavy = {path: file for path, file in by_path.items() if path.endswith(_BINARY)}
        for table in self.tables:
            own_files = {name: file for name, file in heavy.items() if name.startswith(f"{table.uri}/")}
            active = {name[len(table.uri) + 1 :]: file for name, file in own_files.items() if f"/{_LOG}" not in name}
            self.search_table(table, active, active)
        texts = {path: self._search_text(path, file) for path, file in by_path.items() if path not in heavy}
        binary = {path: by_path[path] for path, file_seen in texts.items() if file_seen is None}
        searched = self._search_settled({**heavy, **binary})
        for root, name, file in files:
            file_seen = texts.get(f"{root}/{name}") or searched[f"{root}/{name}"]
            findings.files += 1
            if file_seen.error == DELETED:
                continue
            findings.bytes += file_seen.bytes or file.size
            if file_seen.error is not None:
                findings.unreadable.append(f"{self._masked_location(root, name)[1]} ({file_seen.error})")
            self._classify_hits(findings, root, name, file_seen)
        return findings

    def _classify_hits(self, findings: SearchFindings, root: str, name: str, file_seen: FileSeen) -> None:
        path = f"{root}/{name}"
        table = self.table_of(path)
        in_log = table is not None and path.startswith(f"{table.uri}/{_LOG}")
        for hit in file_seen.hits:
            if table is None:
                is_name = hit.sighting.is_name(self.others)
                is_name = is_name and (self.name_searches[hit.name].is_unambiguous or path.endswith(_BINARY))
            else:
                is_name = self.holds(table, hit, log=in_log)
            if is_name:
                self._add_name(findings, root, name, hit.place or "its content")
            elif self.same_digits(hit):
                key = (table.name if table is not None else root, f"{_LOG}… " * in_log + hit.place)
                findings.same[key] = findings.same.get(key, 0) + hit.count

    def _search_settled(self, files: Mapping[str, StoredFile]) -> dict[str, FileSeen]:
        """Retries after a pause: a file that is still being written cannot be read yet."""
        searched = self.search_files(files)
        for _ in range(_TRIES):
            pending = {path for path, file_seen in searched.items() if file_seen.error not in (None, DELETED)}
            if not pending:
                break
            time.sleep(_PAUSE)
            for key in [key for key in self._results if key[0] in pending]:
                del self._results[key]
            searched |= self.search_files({path: files[path] for path in pending})
        return searched

    def _add_name(self, findings: SearchFindings, root: str, name: str, place: str) -> None:
        table, masked_name = self._masked_location(root, name)
        findings.names.setdefault((table, place), []).append(masked_name)

    def _masked_location(self, root: str, name: str) -> tuple[str, str]:
        """The table or folder, and the file in it, with any name in the file's path masked."""
        table = self.table_of(f"{root}/{name}")
        masked_name = name if table is None else f"{root}/{name}"[len(table.uri) + 1 :]
        for needle in self.name_searches:
            if needle.in_text(masked_name):
                masked_name = needle.masked(masked_name) if needle.masked(masked_name) != masked_name else "…"
        return table.name if table is not None else root, masked_name

    def table_of(self, path: str) -> KnownTable | None:
        tables = [table for table in self.tables if path.startswith(f"{table.uri}/")]
        return max(tables, key=lambda table: len(table.uri), default=None)

    def _path_has_name(self, root: str, name: str) -> bool:
        table = self.table_of(f"{root}/{name}")
        excepted = self.excepted_in(table) if table is not None else frozenset()
        return any(
            needle.in_text(part if needle.is_unambiguous else part.partition("=")[2], self.others)
            for part in name.split("/")
            if part.partition("=")[0].casefold() not in excepted
            for needle in self.name_searches
        )

    def _search_text(self, path: str, file: StoredFile) -> FileSeen | None:
        """None if the file is not text."""
        try:
            content = self._content(path)
        except OSError as error:
            return FileSeen(path, file.size, error=error.strerror or type(error).__name__)
        if content is None:
            return FileSeen(path, error=DELETED)
        if isinstance(content, bytes):
            if content.startswith(_COMPRESSED):
                return None
            try:
                content = content.decode()
            except UnicodeDecodeError:
                return None
        return FileSeen(path, file.size, None, tuple(self.in_text(content)))

    def _content(self, path: str) -> bytes | str | None:
        if "://" in path:
            return self._store.read(path)
        file = Path(path)
        if file.exists() and not file.is_file() and not file.is_dir():  # reading a pipe would wait forever
            raise OSError(errno.EINVAL, "it is not a regular file")
        try:
            return file.read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            return None

    @staticmethod
    def _candidates(text: str, needles: Iterable[tuple[int, NameSearch]]) -> list[tuple[int, NameSearch]]:
        texts = variants(text)
        return [numbered for numbered in needles if numbered[1].possible(texts)]

    def in_text(self, text: str) -> Iterator[NameSighting]:
        """Searches JSON lines, one JSON document, or any text."""
        needles = self._candidates(text, enumerate(self.name_searches))
        whole_document = parse_json(text) if needles and "\n" in text else None
        for line in [text] if whole_document is not None else text.split("\n") if needles else []:
            candidates = self._candidates(line, needles)
            document = whole_document or (parse_json(line) if candidates else None)
            values: Iterable[tuple[str, Any]] = [("", line)] if candidates else []
            if document is not None:
                values = json_values(document, keys=True)
            for place, value in values:
                for index, needle in candidates:
                    if not isinstance(value, str):
                        if needle.equals(value):
                            yield NameSighting(index, "", place, 1, Sighting(NUMBER, True))
                        continue
                    for sighting in needle.sightings(value):
                        yield NameSighting(index, "", place, 1, sighting)


def _parse_file_seen(document: dict[str, Any]) -> FileSeen:
    def sighting(hit: dict[str, Any]) -> Sighting:
        return Sighting(hit["kind"], hit["alone"], hit["around"], hit["at"])

    hits = tuple(
        NameSighting(hit["name"], hit["column"], hit["path"], hit["count"], sighting(hit)) for hit in document["hits"]
    )
    return FileSeen(document["file"], document["bytes"], document.get("trouble"), hits)


def _folders(root: str, unreadable: list[str]) -> Iterator[str]:
    """Folders on this machine (object stores have no empty ones). Those that cannot be listed go to `unreadable`."""

    def report(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            unreadable.append(f"{error.filename} ({error.strerror})")

    for folder, names, _ in os.walk(root, onerror=report) if "://" not in root else ():
        for name in names:
            yield str((Path(folder) / name).relative_to(root))
