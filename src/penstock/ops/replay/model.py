"""What a replay would do, before it does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.plan.model import TablePlan
from penstock.plan.readers import Reader


@dataclass(frozen=True)
class Planned:
    table: TablePlan
    source: str
    """What is read: `bronze.orders, version 12`."""
    at: int | None
    """The version of the table upstream that was asked for."""
    position: str
    """Where the table is now."""
    after: str
    """Where it goes on."""
    rows: int
    """In the table now, as its ledger counts them."""
    running: int | None
    """The process that runs the table meanwhile."""
    outdated: bool
    """That process began by another definition."""
    owed: bool
    """A replay of it was cut off: this one takes its place."""
    readers: tuple[Reader, ...]
    cascade: tuple[Reader, ...]
    """Made anew as well, in this order."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """What the source no longer has, by topic: rows of it stay as they are."""
    passed_over: str | None = None
    """Changes upstream that the table has not read because an option says so, and whose effect a replay has."""

    @property
    def moves(self) -> bool:
        return self.position != self.after

    @property
    def stale(self) -> tuple[Reader, ...]:
        """What is made of the old rows afterwards."""
        made = {one.table.name for one in self.cascade}
        return tuple(one for one in self.readers if one.how != "follows" and one.table.name not in made)


def document(planned: Planned) -> dict[str, Any]:
    return {
        "table": planned.table.name,
        "reads": planned.source,
        "version": planned.at,
        "position": planned.position,
        "after": planned.after,
        "rows": planned.rows,
        "running": planned.running,
        "runner_is_outdated": planned.outdated,
        "resumes": planned.owed,
        "lost": dict(planned.lost),
        "passed_over": planned.passed_over,
        "cascade": [one.table.name for one in planned.cascade],
        "stale": [{"table": one.table.name, "how": one.how} for one in planned.stale],
        "follow": [one.table.name for one in planned.readers if one.how == "follows"],
    }
