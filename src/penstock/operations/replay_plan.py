"""What a replay would do, from the ledgers and the broker without a JVM; and running it, with the tables
downstream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.errors import LockHeld, Terminal, UsageError
from penstock.ledger import position
from penstock.ledger.checkpoint import start_over_hint
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.head import read_head
from penstock.ledger.pending import began_of, forgotten_after, pending_replay
from penstock.ledger.position import Version, parse_version
from penstock.operations.replay import replay
from penstock.operations.steps import RebuildTable, rebuilds_after
from penstock.plan.build import made_of, readers_of
from penstock.sources.delta_changes import changes_read_past
from penstock.sources.registry import open_client
from penstock.sources.topics import held_from
from penstock.storage.locks import JvmLock, NoLock, holder, lock_path, owner
from penstock.storage.stores import HadoopStore, LocalStore, store_of
from penstock.tables.session import TableSession
from penstock.tables.sources import Sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.head import LedgerHead
    from penstock.operations.replay import Filled
    from penstock.operations.steps import Tell
    from penstock.plan.build import TableReader
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.locks import Lock
    from penstock.storage.stores import Store

# What is made anew with a table, as far as it was ever made: a table that is new begins with what is there then.


def downstream_of(plan: Plan, name: str, store: Store) -> list[TableReader]:
    """Upstream before downstream."""
    return [one for one in made_of(plan, name) if read_head(DeltaLog(store, one.table.uri, one.table.name)) is not None]


# What a replay would do, before it does it.


@dataclass(frozen=True)
class ReplayPlan:
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
    readers: tuple[TableReader, ...]
    cascade: tuple[TableReader, ...]
    """Made anew as well, in this order."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """What the source no longer has, by topic: rows of it stay as they are."""
    passed_over: str | None = None
    """Changes upstream that the table has not read because an option says so, and whose effect a replay has."""

    @property
    def moves(self) -> bool:
        return self.position != self.after

    @property
    def steps(self) -> tuple[RebuildTable, ...]:
        first = RebuildTable(self.table, self.source, self.at)
        return (first, *rebuilds_after(self.table.name, tuple(reader.table for reader in self.cascade)))

    @property
    def stale(self) -> tuple[TableReader, ...]:
        """What is made of the old rows afterwards."""
        made = {one.table.name for one in self.cascade}
        return tuple(one for one in self.readers if one.how != "follows" and one.table.name not in made)


def document(planned: ReplayPlan) -> dict[str, Any]:
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
        "steps": [step.describe() for step in planned.steps],
    }


# What a replay of a table would do: without a JVM, from the ledgers and the broker.


def plan_replay(
    plan: Plan, table: TablePlan, store: Store, *, version: int | None, as_of: datetime | None, cascade: bool
) -> ReplayPlan:
    """Raises UsageError where it cannot be done so, Terminal where it could lose rows."""
    _refuse_kind(table)
    log = DeltaLog(store, table.uri, table.name)
    tail = read_head(log)
    if tail is None:
        raise UsageError(f"{table.name} was never made: there is nothing to replay", hint="`penstock run` makes it")
    owed = pending_replay(tail.entry)
    now = owed.position[0] if owed else tail.entry.after[0]
    at = _version(table, store, version, as_of)
    after = now if at is None else str(Version(parse_version(now).table_id, at + 1))
    readers = tuple(readers_of(plan, table.name))
    running = holder(lock_path(plan.system, table.name, "run")) if plan.local else None
    planned = ReplayPlan(
        table=table,
        source=_said(table, now, at),
        at=at,
        position=now,
        after=after,
        rows=tail.counts.total,
        running=running,
        outdated=running is not None and tail.entry.pins.definition != table.definition,
        owed=owed is not None,
        readers=readers,
        cascade=tuple(downstream_of(plan, table.name, store)) if cascade else (),
        lost=_lost(table, log, tail, now),
        passed_over=_passed_over(table, store, tail, now, at),
    )
    _refuse_move(planned, cascade=cascade)
    return planned


def _refuse_kind(table: TablePlan) -> None:
    if table.sink is not None:
        raise UsageError(f"{table.name} is a sink: what it sent cannot be taken back", hint="replay the table it reads")
    if table.stream is not None:
        raise UsageError(
            f"{table.name} rests on Spark's state, which a replay does not have", hint=start_over_hint(table.name)
        )


def _version(table: TablePlan, store: Store, version: int | None, as_of: datetime | None) -> int | None:
    """The version of the table upstream; None if nobody asked for one."""
    if version is None and as_of is None:
        return None
    source = table.delta
    if source is None:
        what = table.source.name
        raise UsageError(f"{table.name} reads {what}: there are no versions of that", hint="leave the option out")
    name = source.label
    log = DeltaLog(store_of(source, store), source.uri, name)
    versions = log.versions()
    if not versions:
        raise UsageError(f"{name} does not exist", hint="run it first")
    if version is not None:
        if version > versions[-1]:
            raise UsageError(f"{name} has no version {version}", hint=f"its newest is {versions[-1]}")
        return _not_forgotten(log, version)
    assert as_of is not None
    wanted = as_of.timestamp() * 1000
    for one in reversed(versions):
        commit = log.commit(one)
        if commit is not None and commit.timestamp_ms <= wanted:
            return _not_forgotten(log, one)
    raise UsageError(f"{name} has no version as old as {as_of:%Y-%m-%d %H:%M:%S}", hint=f"its oldest is {versions[0]}")


def _not_forgotten(log: DeltaLog, version: int) -> int:
    forgotten = forgotten_after(log, version)
    if forgotten is not None:
        raise UsageError(
            f"version {version} of {log.table} cannot be read any more: somebody was forgotten in version {forgotten}",
            hint=f"take version {forgotten} or a later one",
        )
    return version


def _said(table: TablePlan, now: str, at: int | None) -> str:
    if (topics := table.topics) is not None:
        return f"{topics.pattern or ', '.join(topics.topics)} up to {now}"
    if table.delta is None:
        return f"the {table.source.name} that it has read"
    name = table.delta.label
    if at is not None:
        return f"{name} as of version {at}"
    reached = parse_version(now)
    part = "" if reached.whole else f", of the last one {reached.index + 1} files"
    return f"{name} up to version {reached.read_up_to}, which is what it has read{part}"


def _passed_over(table: TablePlan, store: Store, tail: LedgerHead, now: str, at: int | None) -> str | None:
    """Changes upstream that were skipped or ignored, and that are in the table as of the version that is read now.
    Where it began with a later version than the first one, a replay reads what the stream read, and no more."""
    source, began = table.delta, tail.entry.began
    if source is None or len(began) != 1:
        return None
    first = parse_version(began[0])
    if at is None and not first.snapshot and first.version > 0:
        return None
    return changes_read_past(store_of(source, store), source, began[0], now)


def _lost(table: TablePlan, log: DeltaLog, tail: LedgerHead, now: str) -> dict[str, int]:
    """Offsets that the broker no longer has, by topic."""
    if table.topics is None:
        return {}
    end, began = position.parse(now), position.parse(began_of(log, tail.entry)[0])
    admin = open_client(table.topics)
    found = admin.describe(end)
    gone = sorted(set(end) - set(found))
    if gone:
        raise Terminal(
            f"topic {', '.join(gone)} no longer exists: nothing of it can be read again",
            where=table.name,
            hint="take it out of `from` and run the table once: its rows stay then, and the others can be replayed",
        )
    held = held_from(began, end, admin.earliest(found))
    lost = {t: sum(o - began.get(t, {}).get(p, 0) for p, o in parts.items()) for t, parts in held.items()}
    return {topic: count for topic, count in lost.items() if count > 0}


def _refuse_move(planned: ReplayPlan, *, cascade: bool) -> None:
    """Rows that a reader would get twice, or never."""
    if not planned.moves or cascade:
        return
    others = [one.table.name for one in planned.readers if one.how != "follows"]
    if others:
        raise UsageError(
            f"{planned.table.name} would go on from another place than it is at, and {', '.join(others)} would get "
            "rows of it twice, or never",
            hint="--cascade makes those anew too; without --version and --as-of it is made of what it has read",
        )


# Rebuilding a table, and what is made of it, one after the other. Each is one commit that its readers see.


def run_replay(spark: SparkSession, plan: Plan, planned: ReplayPlan, tell: Tell) -> Iterator[tuple[TablePlan, Filled]]:
    """Tables are rebuilt one by one. Killed in between, those that are done stay so, and `status` names the others."""
    note = "replay" if planned.at is None else f"replay of version {planned.at}"
    committed: dict[str, int] = {}
    for step in planned.steps:
        filled = run_rebuild(spark, plan, step, note, committed, tell)
        yield step.table, filled
        note = f"replay, after {planned.table.name}"


def run_rebuild(
    spark: SparkSession, plan: Plan, step: RebuildTable, note: str, committed: dict[str, int], tell: Tell
) -> Filled:
    """`committed` has the versions that the steps before have made, and gets that of this one."""
    version = step.at if step.upstream is None else committed[step.upstream]
    with working_on(spark, plan, step.table) as work:
        filled = replay(work, version, note, lambda what: tell(step.table.name, what))
    committed[step.table.name] = filled.tail.commit.version
    return filled


@contextmanager
def working_on(spark: SparkSession, plan: Plan, table: TablePlan) -> Iterator[TableSession]:
    """Beside the table's runner, but not beside another replay."""
    store: Store = LocalStore() if plan.local else HadoopStore(spark)
    alone: Lock = NoLock()
    commits: Lock = NoLock()
    try:
        if plan.local:
            path = lock_path(plan.system, table.name, "replay")
            alone = JvmLock(spark, path)
            if not alone.try_acquire():
                raise LockHeld(
                    f"another process replays it (process {owner(path).get('python', 'unknown')})",
                    where=table.name,
                    hint="wait for it: `penstock status`; if it hangs, end it and run this again",
                )
            alone.sign()
            commits = JvmLock(spark, lock_path(plan.system, table.name, "commit"))
        yield TableSession(spark, table, store, Sources(lambda _: store, spark).open(table), commits, not plan.local)
    finally:
        for lock in (commits, alone):
            with suppress(Exception):
                lock.close()
