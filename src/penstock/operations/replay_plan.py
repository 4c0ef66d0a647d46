"""Plans a replay from the ledgers and the broker, without a JVM; and runs it, with the tables downstream."""

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
from penstock.ledger.pending import forgotten_after, pending_replay, start_position
from penstock.ledger.position import Version, parse_version
from penstock.operations.replay import replay
from penstock.operations.status import runner
from penstock.operations.steps import RebuildTable, rebuilds_after
from penstock.plan.build import readers_of, tables_to_rebuild
from penstock.sources.delta_changes import changes_read_past
from penstock.sources.registry import open_client
from penstock.sources.topics import first_readable_offsets
from penstock.storage.locks import JvmLock, NoLock, lock_path, owner
from penstock.storage.stores import open_store, source_store
from penstock.tables.session import TableSession
from penstock.tables.stream import Sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.head import LedgerHead
    from penstock.operations.replay import FillResult
    from penstock.operations.steps import Tell
    from penstock.plan.build import DownstreamTable
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.locks import Lock
    from penstock.storage.stores import Store

# The tables that are rebuilt with a table. One that was never created is left out: it begins with what there is then.


def downstream_of(plan: Plan, name: str, store: Store) -> list[DownstreamTable]:
    """The existing tables downstream; upstream before downstream."""
    return [
        reader
        for reader in tables_to_rebuild(plan, name)
        if read_head(DeltaLog(store, reader.table.uri, reader.table.name)) is not None
    ]


@dataclass(frozen=True)
class ReplayPlan:
    table: TablePlan
    source: str
    """What is read: `bronze.orders, version 12`."""
    upstream_version: int | None
    """The version of the table upstream that was asked for."""
    position: str
    """The table's position now."""
    next_position: str
    """The position at which it continues."""
    rows: int
    """Rows in the table now, as its ledger counts them."""
    running: int | None
    """The process that runs the table now."""
    outdated: bool
    """That process started with another definition."""
    resumes: bool
    """A replay of it was cut off: this one takes its place."""
    readers: tuple[DownstreamTable, ...]
    cascade: tuple[DownstreamTable, ...]
    """Rebuilt as well, in this order."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """Offsets that the source no longer has, by topic: rows made of them stay as they are."""
    skipped_changes: str | None = None
    """Changes upstream that the table skipped because of an option, and whose effect a replay includes."""

    @property
    def moves(self) -> bool:
        return self.position != self.next_position

    @property
    def steps(self) -> tuple[RebuildTable, ...]:
        first = RebuildTable(self.table, self.source, self.upstream_version)
        return (first, *rebuilds_after(self.table.name, tuple(reader.table for reader in self.cascade)))

    @property
    def stale(self) -> tuple[DownstreamTable, ...]:
        """Readers whose rows are still made of the old ones afterwards."""
        rebuilt = {reader.table.name for reader in self.cascade}
        return tuple(
            reader for reader in self.readers if reader.effect != "follows" and reader.table.name not in rebuilt
        )


def document(replay_plan: ReplayPlan) -> dict[str, Any]:
    return {
        "table": replay_plan.table.name,
        "reads": replay_plan.source,
        "version": replay_plan.upstream_version,
        "position": replay_plan.position,
        "after": replay_plan.next_position,
        "rows": replay_plan.rows,
        "running": replay_plan.running,
        "runner_is_outdated": replay_plan.outdated,
        "resumes": replay_plan.resumes,
        "lost": dict(replay_plan.lost),
        "passed_over": replay_plan.skipped_changes,
        "cascade": [reader.table.name for reader in replay_plan.cascade],
        "stale": [{"table": reader.table.name, "how": reader.effect} for reader in replay_plan.stale],
        "follow": [reader.table.name for reader in replay_plan.readers if reader.effect == "follows"],
        "steps": [step.describe() for step in replay_plan.steps],
    }


def plan_replay(
    plan: Plan, table: TablePlan, store: Store, *, version: int | None, as_of: datetime | None, cascade: bool
) -> ReplayPlan:
    """Raises UsageError if the table cannot be replayed this way, Terminal if rows could be lost."""
    _refuse_kind(table)
    log = DeltaLog(store, table.uri, table.name)
    head = read_head(log)
    if head is None:
        raise UsageError(f"{table.name} was never made: there is nothing to replay", hint="`penstock run` makes it")
    pending = pending_replay(head.entry)
    current_position = pending.position[0] if pending else head.entry.after[0]
    at = _upstream_version(table, store, version, as_of)
    after = current_position if at is None else str(Version(parse_version(current_position).table_id, at + 1))
    readers = tuple(readers_of(plan, table.name))
    running = runner(plan, table)
    replay_plan = ReplayPlan(
        table=table,
        source=_describe_source(table, current_position, at),
        upstream_version=at,
        position=current_position,
        next_position=after,
        rows=head.counts.total,
        running=running,
        outdated=running is not None and head.entry.pins.definition != table.definition,
        resumes=pending is not None,
        readers=readers,
        cascade=tuple(downstream_of(plan, table.name, store)) if cascade else (),
        lost=_count_lost(table, log, head, current_position),
        skipped_changes=_passed_over(table, store, head, current_position, at),
    )
    _refuse_move(replay_plan, cascade=cascade)
    return replay_plan


def _refuse_kind(table: TablePlan) -> None:
    if table.sink is not None:
        raise UsageError(f"{table.name} is a sink: what it sent cannot be taken back", hint="replay the table it reads")
    if table.stream is not None:
        raise UsageError(
            f"{table.name} depends on Spark's state, which a replay does not have", hint=start_over_hint(table.name)
        )


def _upstream_version(table: TablePlan, store: Store, version: int | None, as_of: datetime | None) -> int | None:
    """The requested version of the table upstream; None if none was requested."""
    if version is None and as_of is None:
        return None
    source = table.delta
    if source is None:
        source_name = table.source.name
        raise UsageError(
            f"{table.name} reads {source_name}: there are no versions of that", hint="leave the option out"
        )
    name = source.label
    log = DeltaLog(source_store(source, store), source.uri, name)
    versions = log.versions()
    if not versions:
        raise UsageError(f"{name} does not exist", hint="run it first")
    if version is not None:
        if version > versions[-1]:
            raise UsageError(f"{name} has no version {version}", hint=f"its newest is {versions[-1]}")
        return _refuse_forgotten(log, version)
    assert as_of is not None
    as_of_ms = as_of.timestamp() * 1000
    for candidate in reversed(versions):
        commit = log.commit(candidate)
        if commit is not None and commit.timestamp_ms <= as_of_ms:
            return _refuse_forgotten(log, candidate)
    raise UsageError(f"{name} has no version as old as {as_of:%Y-%m-%d %H:%M:%S}", hint=f"its oldest is {versions[0]}")


def _refuse_forgotten(log: DeltaLog, version: int) -> int:
    forgotten = forgotten_after(log, version)
    if forgotten is not None:
        raise UsageError(
            f"version {version} of {log.table} can no longer be read: a subject was forgotten in version {forgotten}",
            hint=f"take version {forgotten} or a later one",
        )
    return version


def _describe_source(table: TablePlan, current_position: str, at: int | None) -> str:
    if (topics := table.topics) is not None:
        return f"{topics.pattern or ', '.join(topics.topics)} up to {current_position}"
    if table.delta is None:
        return f"the {table.source.name} that it has read"
    name = table.delta.label
    if at is not None:
        return f"{name} as of version {at}"
    read_position = parse_version(current_position)
    part = "" if read_position.whole else f", of the last one {read_position.index + 1} files"
    return f"{name} up to version {read_position.read_up_to}, which is what it has read{part}"


def _passed_over(table: TablePlan, store: Store, head: LedgerHead, current_position: str, at: int | None) -> str | None:
    """Changes upstream that were skipped or ignored, and that the version read by the replay includes. If the table
    began with a later version than the first one, a replay reads only what the stream read."""
    source, began_positions = table.delta, head.entry.began
    if source is None or len(began_positions) != 1:
        return None
    first = parse_version(began_positions[0])
    if at is None and not first.snapshot and first.version > 0:
        return None
    return changes_read_past(source_store(source, store), source, began_positions[0], current_position)


def _count_lost(table: TablePlan, log: DeltaLog, head: LedgerHead, current_position: str) -> dict[str, int]:
    """Offsets that the broker no longer has, by topic."""
    if table.topics is None:
        return {}
    end, began = position.parse(current_position), position.parse(start_position(log, head.entry)[0])
    admin = open_client(table.topics)
    topics = admin.describe(end)
    missing = sorted(set(end) - set(topics))
    if missing:
        raise Terminal(
            f"topic {', '.join(missing)} no longer exists: nothing of it can be read again",
            where=table.name,
            hint="take it out of `from` and run the table once: its rows stay then, and the others can be replayed",
        )
    first_offsets = first_readable_offsets(began, end, admin.earliest(topics))
    lost = {
        topic: sum(offset - began.get(topic, {}).get(partition, 0) for partition, offset in parts.items())
        for topic, parts in first_offsets.items()
    }
    return {topic: count for topic, count in lost.items() if count > 0}


def _refuse_move(replay_plan: ReplayPlan, *, cascade: bool) -> None:
    """UsageError if a reader would get rows twice, or never."""
    if not replay_plan.moves or cascade:
        return
    affected = [reader.table.name for reader in replay_plan.readers if reader.effect != "follows"]
    if affected:
        raise UsageError(
            f"{replay_plan.table.name} would continue from another position, and {', '.join(affected)} would "
            "get rows of it twice, or never",
            hint="--cascade rebuilds those too; without --version and --as-of it is rebuilt from what it has read",
        )


# Rebuilding a table and those downstream, one after the other. Readers see one commit of each.


def run_replay(
    spark: SparkSession, plan: Plan, replay_plan: ReplayPlan, tell: Tell
) -> Iterator[tuple[TablePlan, FillResult]]:
    """Rebuilds the tables one by one. Killed in between, rebuilt tables stay so, and `status` names the others."""
    note = "replay" if replay_plan.upstream_version is None else f"replay of version {replay_plan.upstream_version}"
    committed: dict[str, int] = {}
    for step in replay_plan.steps:
        filled = run_rebuild(spark, plan, step, note, committed, tell)
        yield step.table, filled
        note = f"replay, after {replay_plan.table.name}"


def run_rebuild(
    spark: SparkSession, plan: Plan, step: RebuildTable, note: str, committed: dict[str, int], tell: Tell
) -> FillResult:
    """`committed` has the versions that earlier steps have committed; this step adds its own."""
    version = step.at if step.upstream is None else committed[step.upstream]
    with open_table_session(spark, plan, step.table) as work:
        filled = replay(work, version, note, lambda action: tell(step.table.name, action))
    committed[step.table.name] = filled.head.commit.version
    return filled


def session_store(spark: SparkSession, plan: Plan) -> Store:
    """The lake's store for work in a session."""
    return open_store(plan, spark)


@contextmanager
def open_table_session(spark: SparkSession, plan: Plan, table: TablePlan) -> Iterator[TableSession]:
    """Opens the table for work beside its runner. LockHeld if another process replays it."""
    store = session_store(spark, plan)
    replay_lock: Lock = NoLock()
    commit_lock: Lock = NoLock()
    try:
        if plan.local:
            path = lock_path(plan.system, table.name, "replay")
            replay_lock = JvmLock(spark, path)
            if not replay_lock.try_acquire():
                raise LockHeld(
                    f"another process replays it (process {owner(path).get('python', 'unknown')})",
                    where=table.name,
                    hint="wait for it: `penstock status`; if it hangs, end it and run this again",
                )
            replay_lock.sign()
            commit_lock = JvmLock(spark, lock_path(plan.system, table.name, "commit"))
        yield TableSession(
            spark, table, store, Sources(lambda _: store, spark).open(table), commit_lock, not plan.local
        )
    finally:
        for lock in (commit_lock, replay_lock):
            with suppress(Exception):
                lock.close()
