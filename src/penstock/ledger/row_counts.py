"""What became of the rows that a table read: counted by batch, added up in the ledger, and the identity they obey.

    read + reshaped = written + rejected + duplicates + superseded + dropped + forgotten

A batch cannot count itself, so its numbers stand in the next entry; until then in a file beside its offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.ledger.checkpoint import read_batch_file, write_batch_file

if TYPE_CHECKING:
    from penstock.ledger.entry import RowCounts
    from penstock.storage.stores import Store

BATCHES = "batches"
"""How many batches were counted: with fewer than there were, a crash took the numbers of some."""
READ = "read"
RESHAPED = "reshaped"
"""Rows that the transform made, less those that it was given."""
REJECTED = "rejected"
"""To quarantine."""
DROPPED = "dropped"
DUPLICATES = "duplicates"
SUPERSEDED = "superseded"
"""Of a merged table: changes that a newer one of their key had overtaken, or that say what is there already."""
FORGOTTEN = "forgotten"
"""Of a subject that shall be forgotten: left out, or taken out of the table or its quarantine later."""
CONFLICTS = "conflicts"
"""Among the changes of a merged table: those that had the sequence of another one of their key, and another content."""
UNMET = "unmet:"
"""Before the name of an expectation: rows that did not meet it, whatever its action."""
NOT_WRITTEN = {
    REJECTED: "in quarantine",
    DUPLICATES: "duplicates",
    SUPERSEDED: "superseded",
    DROPPED: "dropped",
    FORGOTTEN: "forgotten",
}
"""What else may become of a row that was read, in words."""


def unexplained(counts: RowCounts, written: int) -> int:
    """Rows that were read and of which nothing is known, by the identity above; below 0, rows from nowhere."""
    known = written + sum(counts.get(name, 0) for name in NOT_WRITTEN)
    return counts.get(READ, 0) + counts.get(RESHAPED, 0) - known


def add_counts(one: RowCounts, other: RowCounts) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def store_row_counts(store: Store, folder: str, batch: int, counts: RowCounts) -> None:
    write_batch_file(store, folder, "fates", batch, counts)


def read_row_counts(store: Store, folder: str, batch: int) -> RowCounts:
    """Empty if nobody has counted, or a crash came first."""
    return read_batch_file(store, folder, "fates", batch) or {}


@dataclass(frozen=True)
class Conserved:
    """The counts of a whole table."""

    read: int
    reshaped: int
    written: int
    rejected: int
    dropped: int
    duplicates: int
    superseded: int = 0
    forgotten: int = 0
    conflicts: int = 0
    uncounted: int = 0
    """Batches whose numbers a crash took."""

    @property
    def left_out(self) -> int:
        """Records that are in neither the table nor its quarantine, and should not be."""
        return self.dropped + self.duplicates

    @property
    def unexplained(self) -> int:
        return unexplained(vars(self), self.written)

    @property
    def said(self) -> str:
        """`1,000 read = 980 written + 15 in quarantine + 5 duplicates`."""
        made = f" + {self.reshaped:,} made by its stages" if self.reshaped > 0 else ""
        said = f"{self.read:,} read{made} = {' + '.join(self._parts())}"
        return f"{said}; {self.conflicts:,} contradicted another of their sequence" if self.conflicts else said

    def _parts(self) -> Iterator[str]:
        yield f"{self.written:,} written"
        yield from (f"{vars(self)[name]:,} {words}" for name, words in NOT_WRITTEN.items() if vars(self)[name])
        if self.reshaped < 0:
            yield f"{-self.reshaped:,} left out or joined by its stages"


def conserved_counts(counts: RowCounts, written: int, *, batches: int | None) -> Conserved:
    """Of a table whose ledger holds these counts; `batches` are those that it has had, None if nobody knows."""
    names = (READ, RESHAPED, REJECTED, DROPPED, DUPLICATES, SUPERSEDED, FORGOTTEN, CONFLICTS)
    uncounted = max(0, batches - counts.get(BATCHES, 0)) if batches is not None else 0
    return Conserved(written=written, uncounted=uncounted, **{name: counts.get(name, 0) for name in names})
