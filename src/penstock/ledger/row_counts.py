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
"""How many batches were counted: if there were more, a crash lost the numbers of some."""
READ = "read"
RESHAPED = "reshaped"
"""Rows that the transform returned, less those that it was given."""
REJECTED = "rejected"
"""Rows sent to quarantine."""
DROPPED = "dropped"
DUPLICATES = "duplicates"
SUPERSEDED = "superseded"
"""For a merged table: changes that a newer one of their key had superseded, or that repeat what the table already
has."""
FORGOTTEN = "forgotten"
"""Rows of a subject to be forgotten: left out, or removed later from the table or its quarantine."""
CONFLICTS = "conflicts"
"""Among the changes of a merged table: those with the same sequence as another one of their key, and different
content."""
UNMET = "unmet:"
"""Prefix of the name of an expectation: rows that did not meet it, whatever its action."""
NOT_WRITTEN = {
    REJECTED: "in quarantine",
    DUPLICATES: "duplicates",
    SUPERSEDED: "superseded",
    DROPPED: "dropped",
    FORGOTTEN: "forgotten",
}
"""What else may become of a row that was read, in words."""


def unexplained(counts: RowCounts, written: int) -> int:
    """Rows that were read and that the identity above does not account for; below 0, rows of unknown origin."""
    accounted = written + sum(counts.get(name, 0) for name in NOT_WRITTEN)
    return counts.get(READ, 0) + counts.get(RESHAPED, 0) - accounted


def add_counts(first: RowCounts, second: RowCounts) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in {**first, **second}}


def store_row_counts(store: Store, folder: str, batch: int, counts: RowCounts) -> None:
    write_batch_file(store, folder, "fates", batch, counts)


def read_row_counts(store: Store, folder: str, batch: int) -> RowCounts:
    """Empty if nothing was counted, or a crash came first."""
    return read_batch_file(store, folder, "fates", batch) or {}


@dataclass(frozen=True)
class RowBalance:
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
    """Batches whose numbers a crash lost."""

    @property
    def left_out(self) -> int:
        """Records that are in neither the table nor its quarantine, and should not be."""
        return self.dropped + self.duplicates

    @property
    def unexplained(self) -> int:
        return unexplained(vars(self), self.written)

    @property
    def description(self) -> str:
        """`1,000 read = 980 written + 15 in quarantine + 5 duplicates`."""
        reshaped = f" + {self.reshaped:,} made by its stages" if self.reshaped > 0 else ""
        text = f"{self.read:,} read{reshaped} = {' + '.join(self._parts())}"
        return f"{text}; {self.conflicts:,} contradicted another of their sequence" if self.conflicts else text

    def _parts(self) -> Iterator[str]:
        yield f"{self.written:,} written"
        yield from (f"{vars(self)[name]:,} {words}" for name, words in NOT_WRITTEN.items() if vars(self)[name])
        if self.reshaped < 0:
            yield f"{-self.reshaped:,} left out or joined by its stages"


def row_balance(counts: RowCounts, written: int, *, batches: int | None) -> RowBalance:
    """The totals of a table whose ledger holds these counts; `batches` is how many it has had, None if unknown."""
    names = (READ, RESHAPED, REJECTED, DROPPED, DUPLICATES, SUPERSEDED, FORGOTTEN, CONFLICTS)
    uncounted = max(0, batches - counts.get(BATCHES, 0)) if batches is not None else 0
    return RowBalance(written=written, uncounted=uncounted, **{name: counts.get(name, 0) for name in names})
