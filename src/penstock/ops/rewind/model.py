"""What a rewind would do, before it does it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from penstock.plan.model import TablePlan
from penstock.plan.readers import Reader

Fate = Literal["follows", "jumps", "past"]
"""follows: it reads the changes, and gets what is undone. jumps: it has read no row that goes; it steps over those.
past: it has."""


@dataclass(frozen=True)
class Behind:
    """A table or sink that reads the table."""

    reader: Reader
    fate: Fate
    version: int
    """Up to which it has read."""

    @property
    def name(self) -> str:
        return self.reader.table.name

    @property
    def halts(self) -> bool:
        """It is stopped before, and steps over what is undone. What a sink has sent stays sent."""
        return self.fate == "jumps" or (self.fate == "past" and self.reader.how == "sent")


@dataclass(frozen=True)
class Planned:
    table: TablePlan
    version: int
    newest: int
    time_ms: int
    """Of the version."""
    until_ms: int
    """When the first commit after it was made."""
    batches: int
    """That are undone."""
    rows: tuple[int, int]
    """Now and then, as the ledger counts them."""
    rejected: tuple[int, int]
    after: str
    """Where it goes on."""
    again: str
    """What it reads again, as far as the position tells."""
    running: int | None
    """The process that runs the table meanwhile."""
    owed: bool
    """A rewind of it was cut off: this one takes its place."""
    readers: tuple[Behind, ...]
    cascade: tuple[Reader, ...]
    """Made anew as well, in this order."""
    takes_along: bool
    """Whether that was asked for, should a reader be past the version."""


def document(planned: Planned) -> dict[str, Any]:
    return {
        "table": planned.table.name,
        "version": planned.version,
        "newest": planned.newest,
        "batches": planned.batches,
        "rows": {"now": planned.rows[0], "then": planned.rows[1]},
        "quarantine": {"now": planned.rejected[0], "then": planned.rejected[1]},
        "after": planned.after,
        "again": planned.again,
        "running": planned.running,
        "resumes": planned.owed,
        "readers": [
            {"table": one.name, "how": one.reader.how, "fate": one.fate, "read_up_to": one.version}
            for one in planned.readers
        ],
        "cascade": [one.table.name for one in planned.cascade],
    }
