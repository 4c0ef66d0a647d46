"""What the walk along a table's ledger found: its breaks, what people decided, and what the table should hold.

A person may move a table's position (an entry that opens a generation): what that skips or reads again is listed with
its note and is no loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.protocol.log import Origin
from penstock.engine.protocol.position import Offsets, Range
from penstock.ops.verify.expected import Expected, Key
from penstock.ops.verify.spans import Spans


@dataclass(frozen=True)
class Foreign:
    """A commit that Penstock did not make and that added or changed rows."""

    version: int
    operation: str
    origin: Origin
    rows: int
    restored_to: int | None
    accepted_in: int | None = None
    """The version of the entry by which a person went on from it."""

    @property
    def undecided(self) -> bool:
        return self.origin is Origin.FOREIGN_CHANGE and self.accepted_in is None


@dataclass(frozen=True)
class Accepted:
    """A position set by a person, or by topics that the project named anew."""

    version: int
    generation: int
    note: str | None
    skipped: tuple[Range, ...] = ()
    """Never landed, or removed from the table by others."""
    again: tuple[Range, ...] = ()
    dropped: tuple[str, ...] = ()
    """Topics that are no longer read."""
    remade: tuple[str, ...] = ()
    """Topics that were deleted and made again: their offsets began anew."""


@dataclass
class Chain:
    first_version: int
    last_version: int
    from_genesis: bool = False
    began: tuple[str, ...] = ()
    """Where the table began to read, if that is known."""
    known_from: int = -1
    """The version of the first entry that the log still has."""
    entries: int = 0
    batches: int = 0
    broken: list[str] = field(default_factory=list)
    accepted: list[Accepted] = field(default_factory=list)
    foreign: list[Foreign] = field(default_factory=list)
    expected: Expected = field(default_factory=Expected)
    assumed: Offsets = field(default_factory=dict)
    """Where the first known entry starts, if the log no longer reaches back to the genesis. What lies before it was
    landed by commits that are no longer there; it is taken to have begun at 0 until the table says better."""
    earlier_rows: int = 0
    """Rows that were in the table before its ledger began; nothing is said about them."""
    earlier_without: int = 0
    unclear: list[tuple[str, dict[Key, Spans]]] = field(default_factory=list)
    """Accepted changes whose removed rows cannot be told any more: why, and among which offsets."""
