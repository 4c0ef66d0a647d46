"""What became of the rows that a table read: added up over its batches in the ledger, as conservation asks for it:

    read + reshaped = written + rejected + dropped + duplicates + superseded + forgotten

A batch cannot count itself, so its numbers stand in the next entry; until then in a file beside its offsets.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.engine.protocol.beside import read_beside, write_beside
from penstock.engine.store import Store

Fates = Mapping[str, int]
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
"""Of somebody who shall be forgotten: left out, or taken out of the table or its quarantine later."""
CONFLICTS = "conflicts"
"""Among the changes of a merged table: those that had the sequence of another one of their key, and another content."""
UNMET = "unmet:"
"""Before the name of an expectation: rows that did not meet it, whatever its action."""


def added(one: Fates, other: Fates) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def store_fates(store: Store, folder: str, batch: int, fates: Fates) -> None:
    write_beside(store, folder, "fates", batch, fates)


def read_fates(store: Store, folder: str, batch: int) -> Fates:
    """Empty if nobody has counted, or a crash came first."""
    return read_beside(store, folder, "fates", batch) or {}
