"""What the tables of a runner share, what a runner reports, triggers, and growing delays between attempts."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from penstock.operations.causes import explain, jvm_died, seems_dead
from penstock.spark.gateway import jvm_end
from penstock.spark.jvm import gateway_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.errors import PenstockError
    from penstock.ledger.writer import Written
    from penstock.plan.model import Plan, TablePlan
    from penstock.runtime.signals import StopSignals
    from penstock.storage.stores import Store

Outcome = Literal["finished", "stopped", "failed"]


class Listener(Protocol):
    def message(self, table: str, message: str) -> None:
        """Something happened that people should know: created, healed, a foreign commit, a retry."""

    def batch(self, table: str, written: Written, seconds: float) -> None: ...

    def failed(self, table: str, error: PenstockError) -> None:
        """With an empty table name, the error ended all tables: the JVM died."""

    def ended(self, table: str, outcome: Outcome) -> None: ...


@dataclass(frozen=True)
class Result:
    outcomes: dict[str, Outcome]
    errors: dict[str, PenstockError]
    unfinished: bool = False
    """A table did not end within the bound of a stop: its thread still waits for a JVM that is about to be killed."""

    @property
    def exit_code(self) -> int:
        return 3 if self.errors else 0


JVM_PATIENCE = 5.0
"""Seconds to wait, after the first failed call, for a dying JVM to end."""


@dataclass(frozen=True)
class RunContext:
    spark: SparkSession
    plan: Plan
    store: Store
    listener: Listener
    once: bool
    log: str
    starts: threading.Semaphore
    """Limits how many queries start at a time: each start costs a second of a core."""
    stopping: threading.Event
    signals: StopSignals | None = None

    @property
    def stop_asked(self) -> bool:
        """A signal asked to stop: what fails from now on is not a failure of a table."""
        return self.signals is not None and self.signals.stop_asked

    def jvm_end(self, patience: float = 0.0) -> str | None:
        """How the JVM ended; None while it runs."""
        return jvm_end(gateway_of(self.spark), patience)

    def explain(self, error: BaseException, table: str) -> PenstockError:
        """Like `causes.explain`, but every error after the end of the JVM has that one cause."""
        jvm_exit = self.jvm_end(JVM_PATIENCE if seems_dead(error) else 0.0)
        return jvm_died(self.log, jvm_exit) if jvm_exit is not None else explain(error, table, self.log)


def trigger_of(table: TablePlan, *, once: bool) -> dict[str, Any]:
    if once or table.trigger.kind == "available-now":
        return {"availableNow": True}
    if table.trigger.kind == "once":  # one batch, and the first of a query that keeps state is empty
        return {"availableNow": True} if table.stream is not None else {"once": True}
    return {"processingTime": f"{round((table.trigger.seconds or 0) * 1000)} milliseconds"}


# Growing delays between attempts, and slots that keep many tables from starting their batches at the same moment.


FIRST_DELAY, LONGEST = 1.0, 60.0
SLOT = 0.1
"""Seconds between the batches of two tables with the same trigger: about the cost of a small batch, so none is late."""


class Backoff:
    """1, 2, 4 … 60 seconds, each plus up to a fifth, so that many tables do not retry at the same moment."""

    def __init__(self) -> None:
        self.tries = 0

    def reset(self) -> None:
        self.tries = 0

    def next(self) -> float:
        self.tries += 1
        return min(LONGEST, FIRST_DELAY * 2.0 ** min(self.tries - 1, 10)) * random.uniform(1.0, 1.2)


def slot_delay(index: int, tables: int, interval: float, *, now: float | None = None) -> float:
    """Seconds that table `index` waits before its batch. Spark fires all triggers of the same interval together, at its
    multiples since the epoch; a batch that is already past its slot does not wait."""
    if interval < 2 or tables < 2:
        return 0.0
    slot = index * min(SLOT, interval / 3 / tables)
    phase = (time.time() if now is None else now) % interval
    return max(0.0, slot - phase)
