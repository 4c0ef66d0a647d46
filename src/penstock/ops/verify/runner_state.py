"""Why a table is not further: what its runner said last, and whether it still lives."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.store import Store
from penstock.observe.state import State, read_state
from penstock.ops.status import ALIVE, is_gone
from penstock.plan.model import TablePlan


@dataclass(frozen=True)
class RunnerState:
    state: str
    """running, retrying, failed, stopped, finished, crashed, or never run."""
    reason: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        words = {
            "running": "it is running",
            "retrying": "it is retrying",
            "failed": "it failed",
            "stopped": "it was stopped",
            "finished": "its last run had finished",
            "crashed": "its process died without shutting down",
            "never run": "it has not been run",
        }
        said = words.get(self.state, self.state)
        return f"{said}: {self.reason}" if self.reason and self.state in ("failed", "retrying") else said


def runner_state(table: TablePlan, store: Store) -> RunnerState:
    system = table.checkpoints.rpartition("/checkpoints/")[0]
    said = read_state(store, system, table.name) if system else None
    if said is None:
        return RunnerState("never run")
    alive = said.state in ALIVE
    if alive and _dead(table, system, said):
        return RunnerState("crashed", hint="`penstock run` continues where the ledger ends")
    state = "running" if said.state == "starting" else said.state
    return RunnerState(state, said.reason, said.hint)


def _dead(table: TablePlan, system: str, said: State) -> bool:
    from penstock.engine.protocol.locks import holder, lock_path

    if "://" in table.uri:
        return is_gone(said)
    return holder(lock_path(system, table.name, "run")) is None
