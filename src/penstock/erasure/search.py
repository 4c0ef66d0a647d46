"""The proof of a forget: every file of the lake searched for every form of the names, whatever the project says about
where they are. Parquet files, compressed ones and Spark's state are searched in the JVM (penstock/forget/Search.java),
text here. What is found and cannot be taken out, and what cannot be read, is told: then nothing is proven.

A plain name (erasure/text_search.py) can be another thing as well. Numbers count as the name in columns that the
project declares, or that are made of such a column and called the same; text counts in values of rows. All else with
the same digits is counted, told, and not taken for the name.
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

from penstock.erasure.log_redaction import OF_ROWS, STATISTICS, leaves, parsed
from penstock.erasure.text_search import CUT, NUMBER, Sighting, variants
from penstock.maintenance.tables import all_places
from penstock.plan.quarantine import in_quarantine
from penstock.spark.jvm import java_session, jvm_of
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
_PARQUET = ".parquet"
_BINARY = (".delta", ".snapshot", ".changelog", ".zip", ".sst", ".gz", ".zst", ".lz4")
_PACKED = (b"\x1f\x8b", b"LZ4Block", b"PK\x03\x04", b"\x28\xb5\x2f\xfd")
_NOT_ROWS = ("topic", "_source.topic")
_AT_ONCE = 5000
_TRIES, _MOMENT = 3, 1.0
GONE = "gone"


@dataclass(frozen=True)
class KnownTable:
    """What the project says of a Delta table."""

    name: str
    uri: str
    kind: str
    declared: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """By subject: columns, and paths into the JSON that they hold; a path of "" is the column itself."""
    numbers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By subject: columns in which a number is the name."""


@dataclass(frozen=True)
class NameSighting:
    """One name at one place of one file."""

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
    trouble: str | None = None
    seen: tuple[NameSighting, ...] = ()


@dataclass
class Left:
    """What a search has found, by the table or folder and the place in it: how often, and in which files."""

    files: int = 0
    bytes: int = 0
    names: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """Files in which the name is. Never shown in full where their own name has it."""
    same: dict[tuple[str, str], int] = field(default_factory=dict)
    """Numbers with the same digits."""
    unreadable: list[str] = field(default_factory=list)

    @property
    def nothing(self) -> bool:
        return not self.names and not self.unreadable


def known_places(plan: Plan, store: Store) -> list[KnownTable]:
    found = []
    for table in plan.tables:
        for place in all_places(table, store):
            subjects = in_quarantine(table) if place.kind == "quarantine" else table.subjects
            declared = {
                subject: frozenset((one.column.casefold(), _path(one.path)) for one in many)
                for subject, many in (subjects.items() if place.kind != "files" else ())
            }
            found.append(KnownTable(place.name, place.uri, place.kind, declared, _numbers(plan, table, place)))
    return found


def _path(path: str | None) -> str:
    return "" if path is None else "$" + "".join("[*]" if one.startswith("[") else one for one in steps(path))


def _numbers(plan: Plan, table: TablePlan, place: MaintainedTable) -> dict[str, frozenset[str]]:
    """Of a table that declares none: the columns of those that it is made of."""
    if place.kind != "table":
        return {}
    found: dict[str, frozenset[str]] = {}
    above: list[TablePlan] = [table]
    seen: set[str] = set()
    while above:
        one = above.pop()
        if one.name in seen:
            continue
        seen.add(one.name)
        for subject, many in one.subjects.items():
            if one is table or subject not in table.subjects:
                columns = frozenset(place.column.casefold() for place in many if place.path is None)
                found[subject] = found.get(subject, frozenset()) | columns
        names = [source.table for source in one.delta_sources if source.table is not None]
        above += [made for name in names if (made := plan.table(name)) is not None]
    return found


class LakeSearch:
    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        store: Store,
        needles: Sequence[NameSearch],
        excepted: Collection[str] = (),
    ) -> None:
        """`excepted` are places, as `silver.orders.quantity`, of which a person says that they hold no names."""
        self._spark, self._plan, self._store = spark, plan, store
        self.needles = tuple(needles)
        self._excepted = {one.casefold() for one in excepted}
        self.known = known_places(plan, store)
        self._read: dict[tuple[str, int, int], FileSeen] = {}
        self.others: set[str] = set()
        """Names of somebody else that have one of these in them: values of the declared places."""
        self._alike: set[tuple[str, int]] = set()
        """Tables with living values that begin like a long name."""

    # Parquet and other files of the JVM

    def look(self, files: Mapping[str, StoredFile]) -> dict[str, FileSeen]:
        """Of files by their full names. What was searched once is not searched again: files do not change, and one that
        was written again has another time."""
        keys = {name: (name, about.size, about.modified_ms) for name, about in files.items()}
        new = [name for name, key in keys.items() if key not in self._read]
        for begin in range(0, len(new), _AT_ONCE):
            for made in self._search(new[begin : begin + _AT_ONCE]):
                self._read[keys[made.file]] = made
        return {name: self._read[key] for name, key in keys.items()}

    def _search(self, files: Sequence[str]) -> Iterator[FileSeen]:
        jvm = jvm_of(self._spark)
        names = jvm.java.util.ArrayList()
        for needle in self.needles:
            names.add(needle.value)
        text = jvm.penstock.forget.Search.files(java_session(self._spark), "\n".join(files), names)
        for line in str(text).split("\n"):
            yield _file(json.loads(line))

    def data(self, known: KnownTable, names: Iterable[str], listed: Mapping[str, StoredFile]) -> dict[str, FileSeen]:
        """Of files in the folder of a table, by their names from there on; learns the names of others from them."""
        found = self.look({f"{known.uri}/{name}": listed[name] for name in names})
        made = {file[len(known.uri) + 1 :]: seen for file, seen in found.items()}
        for one in made.values():
            for seen in one.seen:
                subject = self.needles[seen.name].subject
                if self._is_declared(known, subject, seen) and not seen.sighting.alone and _is_text(seen):
                    self.others.add(seen.sighting.around)
        return made

    def _is_declared(self, known: KnownTable, subject: str, seen: NameSighting) -> bool:
        return (seen.column.casefold(), seen.path) in known.declared.get(subject, ())

    def holds(self, known: KnownTable, seen: NameSighting, *, log: bool = False) -> bool:
        """Whether it is the name; else it is a number with the same digits, or the name of somebody else."""
        needle, place = self.needles[seen.name], f".{seen.place}"
        if seen.sighting.kind == NUMBER:
            within = STATISTICS.search(place) if log else None
            column = within[1] if within is not None else seen.column
            return (not log or within is not None) and column.casefold() in known.numbers.get(needle.subject, ())
        if seen.sighting.kind == CUT:
            bound = log and STATISTICS.search(place) is not None and seen.sighting.at == 0
            return bound and (known.uri, seen.name) not in self._alike
        if seen.sighting.within(self.others):
            return False
        column = STATISTICS.search(place) if log else None
        if column is not None and column[1].casefold() in self.excepted_in(known):
            return False
        if needle.plain and log and place.endswith(".path"):
            before, behind = seen.sighting.around[: seen.sighting.at], seen.sighting.around[seen.sighting.at :]
            if "=" not in before.rpartition("/")[2] or "/" not in behind:  # not the folder of a partition
                return False
        if needle.plain and (OF_ROWS.search(place) is None if log else seen.column in _NOT_ROWS):
            return False
        if not log and self._is_declared(known, needle.subject, seen):
            return seen.sighting.alone
        return f"{known.name}.{seen.place}".casefold() not in self._excepted

    def in_bounds(self, seen: NameSighting) -> bool:
        """Whether it is, in any way, in statistics of a log."""
        return STATISTICS.search(f".{seen.place}") is not None and not seen.sighting.within(self.others)

    def excepted_in(self, known: KnownTable) -> frozenset[str]:
        begin = f"{known.name}.".casefold()
        return frozenset(one[len(begin) :] for one in self._excepted if one.startswith(begin))

    def same_digits(self, seen: NameSighting) -> bool:
        return self.needles[seen.name].plain and seen.sighting.kind != CUT and not seen.sighting.within(self.others)

    def learn_alike(self, known: KnownTable, active: Mapping[str, FileSeen]) -> None:
        for one in active.values():
            self._alike |= {(known.uri, seen.name) for seen in one.seen if seen.sighting.kind == CUT}

    # everything

    def everything(self, roots: Sequence[str]) -> Left:
        """Every file and every folder's name below these; `roots` are folders of the lake and on this machine."""
        left = Left()
        parts: list[tuple[str, str, StoredFile]] = []
        for root in roots:
            store = self._store if "://" in root or "://" not in self._plan.lake else None
            listed = store.listing(root) if store is not None else _listing(root)
            parts += [(root, name, about) for name, about in listed.items()]
            for name in {*listed, *_folders(root, left.unreadable)}:
                if self._path_named(root, name):
                    self._note(left, root, name, "its own name, or that of its folder")
        heavy = {f"{root}/{name}": about for root, name, about in parts if self._is_heavy(f"{root}/{name}")}
        for known in self.known:
            mine = {name: about for name, about in heavy.items() if name.startswith(f"{known.uri}/")}
            active = {name[len(known.uri) + 1 :]: about for name, about in mine.items() if f"/{_LOG}" not in name}
            self.data(known, active, active)
        light = {f"{root}/{name}": about for root, name, about in parts if f"{root}/{name}" not in heavy}
        texts = {path: self._text(path, about) for path, about in light.items()}
        binary = {path: light[path] for path, one in texts.items() if one is None}
        found = self._settled({**heavy, **binary})
        for root, name, about in parts:
            one = texts.get(f"{root}/{name}") or found[f"{root}/{name}"]
            left.files += 1
            if one.trouble == GONE:
                continue
            left.bytes += one.bytes or about.size
            if one.trouble is not None:
                left.unreadable.append(f"{self._shown(root, name)[1]} ({one.trouble})")
            self._sort(left, root, name, one)
        return left

    def _sort(self, left: Left, root: str, name: str, one: FileSeen) -> None:
        path = f"{root}/{name}"
        known = self.of(path)
        log = known is not None and path.startswith(f"{known.uri}/{_LOG}")
        for seen in one.seen:
            if known is None:
                is_name = seen.sighting.kind not in (NUMBER, CUT) and not seen.sighting.within(self.others)
                is_name = is_name and (not self.needles[seen.name].plain or path.endswith((_PARQUET, *_BINARY)))
            else:
                is_name = self.holds(known, seen, log=log)
            if is_name:
                self._note(left, root, name, seen.place or "its content")
            elif self.same_digits(seen):
                key = (known.name if known is not None else root, f"{_LOG}… " * log + seen.place)
                left.same[key] = left.same.get(key, 0) + seen.count

    def _settled(self, files: Mapping[str, StoredFile]) -> dict[str, FileSeen]:
        """A file that is being written cannot be read yet: it is given a moment."""
        found = self.look(files)
        for _ in range(_TRIES):
            pending = {path for path, one in found.items() if one.trouble not in (None, GONE)}
            if not pending:
                break
            time.sleep(_MOMENT)
            for key in [key for key in self._read if key[0] in pending]:
                del self._read[key]
            found |= self.look({path: files[path] for path in pending})
        return found

    def _note(self, left: Left, root: str, name: str, place: str) -> None:
        table, shown = self._shown(root, name)
        left.names.setdefault((table, place), []).append(shown)

    def _shown(self, root: str, name: str) -> tuple[str, str]:
        """The table, or the folder, and the file in it; a name in that is not shown."""
        known = self.of(f"{root}/{name}")
        shown = name if known is None else f"{root}/{name}"[len(known.uri) + 1 :]
        for needle in self.needles:
            if any(sighting.kind not in (NUMBER, CUT) for sighting in needle.sightings(shown)):
                shown = needle.masked(shown) if needle.masked(shown) != shown else "…"
        return known.name if known is not None else root, shown

    def of(self, path: str) -> KnownTable | None:
        found = [one for one in self.known if path.startswith(f"{one.uri}/")]
        return max(found, key=lambda one: len(one.uri), default=None)

    def _is_heavy(self, path: str) -> bool:
        return path.endswith((_PARQUET, *_BINARY))

    def _path_named(self, root: str, name: str) -> bool:
        known = self.of(f"{root}/{name}")
        excepted = self.excepted_in(known) if known is not None else frozenset()
        for part in name.split("/"):
            column, _, value = part.partition("=")
            if column.casefold() in excepted:
                continue
            for needle in self.needles:
                text = part if needle.telling else value
                for sighting in needle.sightings(text) if text else ():
                    if sighting.kind not in (NUMBER, CUT) and not sighting.within(self.others):
                        return True
        return False

    def _text(self, path: str, about: StoredFile) -> FileSeen | None:
        """None if it is no text."""
        try:
            content = self._content(path)
        except OSError as error:
            return FileSeen(path, about.size, trouble=error.strerror or type(error).__name__)
        if content is None:
            return FileSeen(path, trouble=GONE)
        if isinstance(content, bytes):
            if content.startswith(_PACKED):
                return None
            try:
                content = content.decode()
            except UnicodeDecodeError:
                return None
        return FileSeen(path, about.size, None, tuple(self.in_text(content)))

    def _content(self, path: str) -> bytes | str | None:
        if "://" in path:
            return self._store.read(path)
        file = Path(path)
        if file.exists() and not file.is_file() and not file.is_dir():  # to read a pipe would wait for ever
            raise OSError(errno.EINVAL, "it is no ordinary file")
        try:
            return file.read_bytes()
        except (FileNotFoundError, IsADirectoryError):
            return None

    @staticmethod
    def _possible(text: str, needles: Iterable[tuple[int, NameSearch]]) -> list[tuple[int, NameSearch]]:
        texts = variants(text)
        return [one for one in needles if one[1].possible(texts)]

    def in_text(self, text: str) -> Iterator[NameSighting]:
        """JSON in lines, or any text."""
        needles = self._possible(text, enumerate(self.needles))
        whole = parsed(text) if needles and "\n" in text else None
        for line in [text] if whole is not None else text.split("\n") if needles else []:
            mine = self._possible(line, needles)
            document = whole or (parsed(line) if mine else None)
            found: Iterable[tuple[str, Any]] = [("", line)] if mine else []
            if document is not None:
                found = leaves(document, keys=True)
            for place, value in found:
                for index, needle in mine:
                    if not isinstance(value, str):
                        if needle.equals(value):
                            yield NameSighting(index, "", place, 1, Sighting(NUMBER, True))
                        continue
                    for sighting in needle.sightings(value):
                        yield NameSighting(index, "", place, 1, sighting)


def _is_text(seen: NameSighting) -> bool:
    return seen.sighting.kind not in (NUMBER, CUT) and bool(seen.sighting.around)


def _file(document: dict[str, Any]) -> FileSeen:
    seen = tuple(
        NameSighting(
            one["name"],
            one["column"],
            one["path"],
            one["count"],
            Sighting(one["kind"], one["alone"], one["around"], one["at"]),
        )
        for one in document["hits"]
    )
    return FileSeen(document["file"], document["bytes"], document.get("trouble"), seen)


def _listing(root: str) -> dict[str, StoredFile]:
    from penstock.storage.stores import LocalStore

    return LocalStore().listing(root)


def _folders(root: str, unreadable: list[str]) -> Iterator[str]:
    """On this machine; elsewhere there are no folders without files. Those that cannot be listed are told."""

    def refused(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            unreadable.append(f"{error.filename} ({error.strerror})")

    for folder, names, _ in os.walk(root, onerror=refused) if "://" not in root else ():
        for name in names:
            yield str((Path(folder) / name).relative_to(root))
