"""What a forget has found and done: the content of its certificate. Numbers, hashes and places; no names."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.forget.order import Order
from penstock.ops.forget.elsewhere import Searched
from penstock.ops.forget.readers import Waited
from penstock.ops.forget.search import Left
from penstock.plan.quarantine import MOVED_ASIDE
from penstock.spec.quantity import counted


@dataclass(frozen=True)
class Commit:
    version: int
    time_ms: int
    rows: int
    redacted: bool


@dataclass
class PlaceDone:
    """A table, or a quarantine."""

    name: str
    where: tuple[str, ...] = ()
    """Where it holds names: customer_id, $.customer_id of value."""
    rows: int = 0
    marked: int = 0
    files: int = 0
    """Written anew."""
    redacted: bool = False
    commits: list[Commit] = field(default_factory=list)
    """All of this order, those of an earlier run as well: from the table's log."""
    removed_files: int = 0
    removed_bytes: int = 0
    log_rewritten: int = 0
    log_removed: int = 0
    needed: dict[str, int] = field(default_factory=dict)
    """How many files that hold somebody each reader still needs."""
    problem: str | None = None
    decoded: int = 0
    """Files that the proof has decoded."""
    left: int = 0
    """Rows that it found."""
    log_files: int = 0
    log_left: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return not (self.left or self.log_left or self.problem or self.needed)


@dataclass
class Done:
    id: str
    orders: tuple[Order, ...]
    began_ms: int
    places: dict[str, PlaceDone] = field(default_factory=dict)
    readers: list[Waited] = field(default_factory=list)
    elsewhere: Searched = field(default_factory=Searched)
    outside: list[str] = field(default_factory=list)
    undeclared: tuple[str, ...] = ()
    """Tables made of one that declares, and that declare nothing: no row was taken out."""
    outdated: dict[str, str] = field(default_factory=dict)
    """Tables whose runner may not know of the subject."""
    not_names: tuple[str, ...] = ()
    """Places of which whoever gave the command says that they hold no names."""
    search: Left = field(default_factory=Left)
    """What the search of every file has found at the end."""
    ended_ms: int = 0

    @property
    def problems(self) -> list[str]:
        found = [f"{one.name}: {one.problem}" for one in self.places.values() if one.problem]
        found += [f"{one.name}: {one.left:,} rows are still there" for one in self.places.values() if one.left]
        found += [
            f"{one.name}: {reader} still needs {counted(files, 'file')} of it, and somebody is in there"
            for one in self.places.values()
            for reader, files in one.needed.items()
        ]
        found += [
            f"{one.name}: its log still has a name: {', '.join(one.log_left[:3])}"
            for one in self.places.values()
            if one.log_left
        ]
        found += [f"{one.table} {one.problem}" for one in self.readers if one.problem]
        found += [f"{table}: {why}" for table, why in self.outdated.items()]
        found += [f"{path} still has a name" for path in self.elsewhere.held]
        for (table, place), files in self.search.names.items():
            if not (table in self.places and self.places[table].log_left and files[0].startswith("_delta_log/")):
                found.append(
                    f"{table}: {place} still has the name, in {_files(files)}. {self._what_to_do(table, files)}"
                )
        found += [f"{path}: it cannot be searched, so nothing is known of it" for path in self.search.unreadable]
        return found

    def _what_to_do(self, table: str, files: list[str]) -> str:
        if table not in self.places:
            return "It belongs to no table of the project: delete it, or take the name out of it"
        if table.endswith(".files"):
            return (
                "A source file is called so. Its rows are left out, its name is not: rename such files at their source"
            )
        if all(one.startswith("_delta_log/") for one in files):
            return "Run the command again"
        if MOVED_ASIDE in table:
            return "It is of an earlier table of that name, and nothing reads it: delete its folder"
        return (
            "Rows of others hold it there. If it is a name, declare the place under `subjects` of that table and run "
            "the command again; if it is not, say so with --not-a-name"
        )

    @property
    def proven(self) -> bool:
        return not self.problems


def _files(files: list[str]) -> str:
    return files[0] if len(files) == 1 else f"{counted(len(files), 'file')}, {files[0]} among them"
