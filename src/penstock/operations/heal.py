"""What a start of a table would do with its checkpoint, and healing it now without waiting for a start."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.errors import BrokerAway, DataLoss, LockHeld, PenstockError, Terminal, Transient
from penstock.ledger import position
from penstock.ledger.checkpoint import heal
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.position import parse_version
from penstock.operations.checkpoint_state import CheckpointLook, inspect_checkpoint
from penstock.operations.status import ALIVE, is_gone, read_state
from penstock.sources.delta_changes import refuse_lost, table_id
from penstock.storage.locks import ProcessLock, acquire_commit, acquire_run, holder, lock_path, owner
from penstock.storage.stores import store_of

if TYPE_CHECKING:
    from penstock.ledger.entry import Entry
    from penstock.operations.staleness import DefinitionDrift
    from penstock.plan.model import Plan, TablePlan
    from penstock.plan.sources import TopicsSource, VersionsSource
    from penstock.storage.stores import Store

# What a start of a table would do now: go on, rebuild its checkpoint, open a generation, or refuse.


BROKER_TIMEOUT = 2.5
"""Seconds that a broker that is away may hold up the answer."""
Does = Literal["make the table", "go on", "rebuild", "open a generation", "wait", "refuse"]


@dataclass(frozen=True)
class StartForecast:
    does: Does
    why: str
    hint: str | None = None
    unknown: str | None = None
    """What could not be asked: a start asks it."""


def outlook(plan: Plan, seen: CheckpointLook, fits: DefinitionDrift, store: Store) -> StartForecast:
    """Asks the broker, or the table upstream, whether it still has what comes next; as `run` does."""
    if seen.refusal is not None:
        return StartForecast("refuse", seen.refusal.message, seen.refusal.hint)
    entry = seen.entry
    if entry is None:
        return StartForecast("make the table", "there is none yet")
    if fits.refused:
        return StartForecast("refuse", fits.follows)
    unknown = None
    try:
        _ask_source(seen.table, entry, store, same=fits.kind != "another source")
    except BrokerAway as error:
        unknown = error.message
    except Transient as error:
        return StartForecast("wait", error.message, error.hint)
    except PenstockError as error:
        return StartForecast("refuse", error.message, error.hint)
    if fits.kind == "another source":
        return StartForecast("open a generation", fits.follows, unknown=unknown)
    if not plan.local and entry.kind != "genesis":
        begins = f"without locks each runner has a generation of its own: {entry.generation + 1}"
        return StartForecast("open a generation", f"{begins}, at the ledger's position", unknown=unknown)
    if seen.why is not None:
        at = f"batch {entry.generation}.{entry.batch}"
        return StartForecast("rebuild", f"the checkpoint, from the ledger at {at}: {seen.why}", unknown=unknown)
    return StartForecast("go on", _goes_on(seen, entry), unknown=unknown)


def _goes_on(seen: CheckpointLook, entry: Entry) -> str:
    planned, committed = seen.planned or 0, seen.committed if seen.committed is not None else -1
    if planned > entry.batch:
        return f"with batch {planned}, which is planned and was not written"
    if committed < entry.batch and entry.batch > 0:
        return f"with batch {entry.batch} once more: its rows are in the table, and the rest of it is completed"
    return f"with batch {entry.batch + 1}"


def _ask_source(table: TablePlan, entry: Entry, store: Store, *, same: bool) -> None:
    """Raises what a start would raise because of what the table reads. `same`: it reads what it read before."""
    if table.topics is not None:
        _ask_broker(table, table.topics, entry, same=same)
    elif same and table.versions is not None:
        by_name = dict(table.stream.inputs) if table.stream is not None else {"": table.versions}
        order = entry.subscription.get("order") or list(by_name)
        for name, at in zip(order, entry.after, strict=False):
            _ask_upstream(table.name, by_name.get(name, table.versions), at, store)


def _ask_broker(table: TablePlan, source: TopicsSource, entry: Entry, *, same: bool) -> None:
    from penstock.sources.registry import open_client
    from penstock.sources.topics import refuse_lost as refuse_lost_records
    from penstock.sources.topics import require_topics

    admin = open_client(source, timeout=BROKER_TIMEOUT)
    topics = admin.topics(source)
    require_topics(source, topics, table.name)
    if same:
        at = position.parse(entry.after[0])
        refuse_lost_records(at, entry.topics, topics, admin, table.name, committed=source.reads_committed)


def _ask_upstream(table: str, source: VersionsSource, at: str, store: Store) -> None:
    called = source.label
    log = DeltaLog(store_of(source, store), source.uri, called)
    versions = log.versions()
    if source.as_files is not None and not versions:
        raise DataLoss(
            f"the list of files that were read, {source.uri}, is gone",
            hint=f"put it back, or `penstock checkpoints reset {table} --to latest|earliest`",
        )
    refuse_lost(parse_version(at), table_id(log, versions), versions, table, called)


# A checkpoint rebuilt from the ledger now, without waiting for a start.
#
# On a local lake under both locks of the table, as every writer takes them. On an object store there are none: there
# a runner that works is known by what it said last, and each start makes a checkpoint of its own anyway.


@dataclass(frozen=True)
class Healing:
    table: str
    folder: str
    entry: Entry
    why: str | None
    """What is wrong with the checkpoint; None: it is in step with the ledger, and nothing is to be done."""


def plan_heal(plan: Plan, table: TablePlan, store: Store) -> Healing | None:
    """What a heal would do; None if there is no table. Raises what a start would raise, and LockHeld while a runner
    works on the table."""
    _refuse_runner(plan, table, store)
    return _judge(inspect_checkpoint(table, store))


def run_heal(plan: Plan, table: TablePlan, store: Store) -> Healing | None:
    """The same, done; what was found wrong is in the answer. Killed anywhere, it can be run again: a folder that is
    half made is no checkpoint, and one that is missing is made."""
    with ExitStack() as held:
        if plan.local:
            path = lock_path(plan.system, table.name, "run")
            acquire_run(held.enter_context(closing(ProcessLock(path))), path, table.name)
            path = lock_path(plan.system, table.name, "commit")
            acquire_commit(held.enter_context(closing(ProcessLock(path))), table.name)
        else:
            _refuse_runner(plan, table, store)
        found = _judge(inspect_checkpoint(table, store))
        if found is None or found.why is None:
            return found
        heal(store, found.folder, found.entry)
        after = inspect_checkpoint(table, store)
        if not after.in_step:
            raise Terminal(
                f"the checkpoint was rebuilt, and is still not in step with the ledger: {after.why or after.refusal}",
                where=table.name,
                hint="another program writes to it: find out which, and run this again",
            )
        return found


def _judge(seen: CheckpointLook) -> Healing | None:
    if seen.refusal is not None:
        raise seen.refusal
    if seen.entry is None or seen.folder is None:
        return None
    if seen.table.stream is not None and seen.why is not None:
        raise Terminal(
            f"its checkpoint holds Spark's first, empty state, which Spark alone makes: {seen.why}",
            where=seen.table.name,
            hint=f"no row was written yet: `penstock run {seen.table.name}` begins it",
        )
    return Healing(seen.table.name, seen.folder, seen.entry, seen.why)


def _refuse_runner(plan: Plan, table: TablePlan, store: Store) -> None:
    if plan.local:
        path = lock_path(plan.system, table.name, "run")
        if holder(path) is not None:
            by = owner(path)
            raise _held(table.name, f"process {by.get('python')}, since {by.get('since')}")
        return
    said = read_state(store, plan.system, table.name)
    if said is not None and said.state in ALIVE and not is_gone(said):
        raise _held(table.name, f"process {said.process} on {said.host}, {said.state} since {said.since}")


def _held(table: str, who: str) -> LockHeld:
    return LockHeld(
        f"another penstock process works on this table ({who})",
        where=table,
        hint="a running table needs no heal: it compares its checkpoint when it starts. Stop that process first",
    )
