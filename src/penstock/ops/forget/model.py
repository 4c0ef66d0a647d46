"""What a forget has found and done: the content of its certificate. Numbers, hashes and places; no names."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.forget.order import Order
from penstock.ops.forget.elsewhere import Searched
from penstock.ops.forget.readers import Waited
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
    """Tables made of one that declares, and that declare nothing: they were not searched."""
    outdated: dict[str, str] = field(default_factory=dict)
    """Tables whose runner may not know of the subject."""
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
        return found

    @property
    def proven(self) -> bool:
        return not self.problems
