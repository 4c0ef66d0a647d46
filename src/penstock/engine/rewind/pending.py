"""What is owed because of a rewind. It stands in the ledgers, so that whoever starts a table next can finish it.

The table itself owes its rows of then. A table that reads it, and had not read beyond that version, is stopped before
and owes a jump: over the versions whose rows are gone, which a stream would read all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.engine.protocol.entry import Entry

_REWIND, _HALT, _UNTIL = "rewind", "halt", "until"


@dataclass(frozen=True)
class Rewind:
    version: int
    since: int
    """The generation before it, which counts until the table is back."""
    position: tuple[str, ...]
    """Where the table was."""


@dataclass(frozen=True)
class Halt:
    """Of a reader: it waits for the table that it reads to go back."""

    seen: int
    """The newest version of that table when the reader was stopped."""


@dataclass(frozen=True)
class Until:
    """Of a reader: it reads up to one position, and goes on at another."""

    at: str
    to: str
    base: int
    """The version of the table upstream from which on its rows count as made of."""


def rewind_document(rewind: Rewind) -> dict[str, Any]:
    return {_REWIND: {"version": rewind.version, "since": rewind.since, "position": list(rewind.position)}}


def pending_rewind(entry: Entry) -> Rewind | None:
    asked = entry.pending.get(_REWIND)
    return None if asked is None else Rewind(asked["version"], asked["since"], tuple(asked["position"]))


def halt_document(halt: Halt) -> dict[str, Any]:
    return {_HALT: {"seen": halt.seen}}


def pending_halt(entry: Entry) -> Halt | None:
    asked = entry.pending.get(_HALT)
    return None if asked is None else Halt(asked["seen"])


def until_document(until: Until) -> dict[str, Any]:
    return {_UNTIL: {"at": until.at, "to": until.to, "base": until.base}}


def pending_until(entry: Entry) -> Until | None:
    asked = entry.pending.get(_UNTIL)
    return None if asked is None else Until(asked["at"], asked["to"], asked["base"])


def owes_jump(entry: Entry) -> bool:
    return _HALT in entry.pending or _UNTIL in entry.pending
