"""The steps of replay, rewind, reset and redrive: planning lists them, `--dry-run` prints them, running does them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.ledger.position import describe_position
from penstock.spec.quantity import counted

if TYPE_CHECKING:
    from penstock.plan.model import TablePlan

Tell = Callable[[str, str], None]
"""Takes a table, and what is being done with it now."""


class Step(Protocol):
    def describe(self) -> str:
        """What the step does, in one plain English clause."""


@dataclass(frozen=True)
class RebuildTable:
    table: TablePlan
    source: str
    """What is read: `bronze.orders as of version 12`."""
    at: int | None = None
    """The requested version of the table upstream; None: what the table has read of it."""
    upstream: str | None = None
    """The table that an earlier step changes: it is read as of the version that the earlier step commits."""

    def describe(self) -> str:
        return f"rebuild {self.table.name} from {self.source}"


@dataclass(frozen=True)
class HaltReader:
    """Stops a reader: it reads nothing until the table upstream is restored."""

    table: TablePlan

    def describe(self) -> str:
        return f"stop {self.table.name}, which skips what is undone when it starts again"


@dataclass(frozen=True)
class RestoreTable:
    table: TablePlan
    version: int

    def describe(self) -> str:
        return f"restore {self.table.name} to version {self.version}, with its quarantine and its position"


@dataclass(frozen=True)
class OpenGeneration:
    table: TablePlan
    position: tuple[str, ...]
    emptied: bool = False

    def describe(self) -> str:
        where = ", ".join(map(describe_position, self.position))
        emptied = "empty it, and " if self.emptied else ""
        return f"{self.table.name}: {emptied}open a generation at {where}"


@dataclass(frozen=True)
class MakeCheckpoint:
    table: TablePlan

    def describe(self) -> str:
        return f"{self.table.name}: make the checkpoint of that generation"


@dataclass(frozen=True)
class FinishRedrive:
    table: TablePlan

    def describe(self) -> str:
        return f"{self.table.name}: finish the redrive that was cut off"


@dataclass(frozen=True)
class RunAgain:
    table: TablePlan
    reason: str
    rows: int

    def describe(self) -> str:
        return f"{self.table.name}: run {counted(self.rows, 'rejected row')} again: {self.reason}"


def rebuilds_after(table: str, below: tuple[TablePlan, ...]) -> tuple[RebuildTable, ...]:
    """One step per table downstream, in order; each reads a table that an earlier step has changed."""
    changed = [table]
    steps = []
    for reader in below:
        upstream = next(name for name in reader.upstream if name in changed)
        steps.append(RebuildTable(reader, f"{upstream} as it is then", upstream=upstream))
        changed.append(reader.name)
    return tuple(steps)
