"""Forecasts what a start of a table would do with its checkpoint; and heals it now, without a start."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.errors import BrokerAway, DataLoss, LockHeld, PenstockError, Terminal, Transient
from penstock.ledger import position
from penstock.ledger.checkpoint import heal
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.position import parse_version
from penstock.operations.checkpoint_state import CheckpointInspection, inspect_checkpoint
from penstock.operations.status import ALIVE, BROKER_TIMEOUT, has_ended, read_state, runner
from penstock.sources.delta_changes import refuse_lost, table_id
from penstock.sources.registry import open_client
from penstock.sources.topics import refuse_lost as refuse_lost_records
from penstock.sources.topics import require_topics
from penstock.storage.locks import ProcessLock, acquire_commit, acquire_run, lock_path, owner
from penstock.storage.stores import source_store

if TYPE_CHECKING:
    from penstock.ledger.entry import Entry
    from penstock.operations.staleness import DefinitionDrift
    from penstock.plan.model import Plan, TablePlan
    from penstock.plan.sources import TopicsSource, VersionsSource
    from penstock.storage.locks import RunLock
    from penstock.storage.stores import Store

Does = Literal["make the table", "go on", "rebuild", "open a generation", "wait", "refuse"]


@dataclass(frozen=True)
class StartForecast:
    does: Does
    why: str
    hint: str | None = None
    unknown: str | None = None
    """Why the broker did not answer; a start will ask it again."""


def forecast_start(plan: Plan, inspection: CheckpointInspection, drift: DefinitionDrift, store: Store) -> StartForecast:
    """Asks the broker, or the table upstream, whether it still has what the table reads next; as `run` does."""
    if inspection.refusal is not None:
        return StartForecast("refuse", inspection.refusal.message, inspection.refusal.hint)
    entry = inspection.entry
    if entry is None:
        return StartForecast("make the table", "there is none yet")
    if drift.refused:
        return StartForecast("refuse", drift.consequence)
    unknown = None
    try:
        _check_source(inspection.table, entry, store, same=drift.kind != "another source")
    except BrokerAway as error:
        unknown = error.message
    except Transient as error:
        return StartForecast("wait", error.message, error.hint)
    except PenstockError as error:
        return StartForecast("refuse", error.message, error.hint)
    if drift.kind == "another source":
        return StartForecast("open a generation", drift.consequence, unknown=unknown)
    if not plan.local and entry.kind != "genesis":
        reason = f"without locks each runner has a generation of its own: {entry.generation + 1}"
        return StartForecast("open a generation", f"{reason}, at the ledger's position", unknown=unknown)
    if inspection.why is not None:
        batch = f"batch {entry.generation}.{entry.batch}"
        return StartForecast(
            "rebuild", f"the checkpoint, from the ledger at {batch}: {inspection.why}", unknown=unknown
        )
    return StartForecast("go on", _describe_next_batch(inspection, entry), unknown=unknown)


def _describe_next_batch(inspection: CheckpointInspection, entry: Entry) -> str:
    planned, committed = inspection.planned or 0, inspection.committed if inspection.committed is not None else -1
    if planned > entry.batch:
        return f"with batch {planned}, which is planned and was not written"
    if committed < entry.batch and entry.batch > 0:
        return f"with batch {entry.batch} once more: its rows are in the table, and the rest of it is completed"
    return f"with batch {entry.batch + 1}"


def _check_source(table: TablePlan, entry: Entry, store: Store, *, same: bool) -> None:
    """Raises what a start would raise because of the table's source. `same`: the source is the one it read before."""
    if table.topics is not None:
        _check_broker(table, table.topics, entry, same=same)
    elif same and table.versions is not None:
        by_name = dict(table.stream.inputs) if table.stream is not None else {"": table.versions}
        order = entry.subscription.get("order") or list(by_name)
        for name, position_text in zip(order, entry.after, strict=False):
            _check_upstream(table.name, by_name.get(name, table.versions), position_text, store)


def _check_broker(table: TablePlan, source: TopicsSource, entry: Entry, *, same: bool) -> None:
    admin = open_client(source, timeout=BROKER_TIMEOUT)
    topics = admin.topics(source)
    require_topics(source, topics, table.name)
    if same:
        offsets = position.parse(entry.after[0])
        refuse_lost_records(offsets, entry.topics, topics, admin, table.name, committed=source.reads_committed)


def _check_upstream(table: str, source: VersionsSource, position_text: str, store: Store) -> None:
    label = source.label
    log = DeltaLog(source_store(source, store), source.uri, label)
    versions = log.versions()
    if source.as_files is not None and not versions:
        raise DataLoss(
            f"the list of files that were read, {source.uri}, is gone",
            hint=f"put it back, or `penstock checkpoints reset {table} --to latest|earliest`",
        )
    refuse_lost(parse_version(position_text), table_id(log, versions), versions, table, label)


# Rebuilding a checkpoint from the ledger now, without waiting for a start.
#
# On a local lake under both locks of the table, as every writer takes them. On an object store there are no locks: a
# working runner is known by the last state that it wrote, and each start makes its own checkpoint anyway.


@dataclass(frozen=True)
class Healing:
    table: str
    folder: str
    entry: Entry
    why: str | None
    """What is wrong with the checkpoint; None: it is in step with the ledger, and there is nothing to do."""


def plan_heal(plan: Plan, table: TablePlan, store: Store) -> Healing | None:
    """What a heal would do; None if there is no table. Raises what a start would raise, and LockHeld while a runner
    works on the table."""
    _refuse_runner(plan, table, store)
    return _healing_for(inspect_checkpoint(table, store))


def run_heal(plan: Plan, table: TablePlan, store: Store) -> Healing | None:
    """Heals the checkpoint; the answer says what was wrong. Killed anywhere, it can be run again: a half-written folder
    does not count as a checkpoint, and a missing one is made."""
    with table_locks(plan, table, ProcessLock):
        if not plan.local:
            _refuse_runner(plan, table, store)
        healing = _healing_for(inspect_checkpoint(table, store))
        if healing is None or healing.why is None:
            return healing
        heal(store, healing.folder, healing.entry)
        result = inspect_checkpoint(table, store)
        if not result.in_step:
            raise Terminal(
                f"the checkpoint was rebuilt, and is still not in step with the ledger: {result.why or result.refusal}",
                where=table.name,
                hint="another program writes to it: find out which, and run this again",
            )
        return healing


@contextmanager
def table_locks(plan: Plan, table: TablePlan, open_lock: Callable[[str], RunLock]) -> Iterator[None]:
    """Holds both locks of a table on a local lake; elsewhere there are none. LockHeld while a runner works on it."""
    with ExitStack() as locks:
        if plan.local:
            path = lock_path(plan.system, table.name, "run")
            acquire_run(locks.enter_context(closing(open_lock(path))), path, table.name)
            commit_lock = open_lock(lock_path(plan.system, table.name, "commit"))
            acquire_commit(locks.enter_context(closing(commit_lock)), table.name)
        yield


def _healing_for(inspection: CheckpointInspection) -> Healing | None:
    if inspection.refusal is not None:
        raise inspection.refusal
    if inspection.entry is None or inspection.folder is None:
        return None
    if inspection.table.stream is not None and inspection.why is not None:
        raise Terminal(
            f"its checkpoint holds Spark's first, empty state, which Spark alone makes: {inspection.why}",
            where=inspection.table.name,
            hint=f"no row was written yet: `penstock run {inspection.table.name}` begins it",
        )
    return Healing(inspection.table.name, inspection.folder, inspection.entry, inspection.why)


def _refuse_runner(plan: Plan, table: TablePlan, store: Store) -> None:
    if plan.local:
        if runner(plan, table) is not None:
            lock_owner = owner(lock_path(plan.system, table.name, "run"))
            raise _lock_held_error(table.name, f"process {lock_owner.get('python')}, since {lock_owner.get('since')}")
        return
    state = read_state(store, plan.system, table.name)
    if state is not None and state.state in ALIVE and not has_ended(state):
        raise _lock_held_error(
            table.name, f"process {state.process} on {state.host}, {state.state} since {state.since}"
        )


def _lock_held_error(table: str, runner: str) -> LockHeld:
    return LockHeld(
        f"another penstock process works on this table ({runner})",
        where=table,
        hint="a running table needs no heal: it compares its checkpoint when it starts. Stop that process first",
    )
