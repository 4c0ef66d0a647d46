"""What a replay of a table would do: without a JVM, from the ledgers and the broker."""

from __future__ import annotations

from datetime import datetime

from penstock.engine.delta.upstream_change import changes_read_past
from penstock.engine.delta.version import Version, parse
from penstock.engine.forget.since import forgotten_after
from penstock.engine.kafka.admin import Admin
from penstock.engine.kafka.covered import held_from
from penstock.engine.protocol import position
from penstock.engine.protocol.ledger import Tail, read_tail
from penstock.engine.protocol.locks import holder, lock_path
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.replay.began import began_of
from penstock.engine.replay.pending import pending_replay
from penstock.engine.state import begin_anew
from penstock.engine.store import Store
from penstock.engine.stores import store_of
from penstock.errors import Terminal, UsageError
from penstock.ops.cascade import cascade_of
from penstock.ops.replay.model import Planned
from penstock.plan.files import FilesSource
from penstock.plan.model import DeltaSource, KafkaSource, Plan, TablePlan
from penstock.plan.readers import readers_of


def plan_replay(
    plan: Plan, table: TablePlan, store: Store, *, version: int | None, as_of: datetime | None, cascade: bool
) -> Planned:
    """Raises UsageError where it cannot be done so, Terminal where it could lose rows."""
    _refuse_kind(table)
    log = DeltaLog(store, table.uri, table.name)
    tail = read_tail(log)
    if tail is None:
        raise UsageError(f"{table.name} was never made: there is nothing to replay", hint="`penstock run` makes it")
    owed = pending_replay(tail.entry)
    now = owed.position[0] if owed else tail.entry.after[0]
    at = _version(table, store, version, as_of)
    after = now if at is None else str(Version(parse(now).table_id, at + 1))
    readers = tuple(readers_of(plan, table.name))
    running = holder(lock_path(plan.system, table.name, "run")) if plan.local else None
    planned = Planned(
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
        cascade=tuple(cascade_of(plan, table.name, store)) if cascade else (),
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
            f"{table.name} rests on Spark's state, which a replay does not have", hint=begin_anew(table.name)
        )


def _version(table: TablePlan, store: Store, version: int | None, as_of: datetime | None) -> int | None:
    """The version of the table upstream; None if nobody asked for one."""
    if version is None and as_of is None:
        return None
    source = table.source
    if not isinstance(source, DeltaSource) or isinstance(source, FilesSource):
        what = "a topic" if isinstance(source, KafkaSource) else "files"
        raise UsageError(f"{table.name} reads {what}: there are no versions of that", hint="leave the option out")
    name = source.table or source.uri
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
    source = table.source
    if isinstance(source, KafkaSource):
        return f"{source.pattern or ', '.join(source.topics)} up to {now}"
    if isinstance(source, FilesSource):
        return f"the files of {source.folder} that it has read"
    name = source.table or source.uri
    if at is not None:
        return f"{name} as of version {at}"
    reached = parse(now)
    part = "" if reached.whole else f", of the last one {reached.index + 1} files"
    return f"{name} up to version {reached.read_up_to}, which is what it has read{part}"


def _passed_over(table: TablePlan, store: Store, tail: Tail, now: str, at: int | None) -> str | None:
    """Changes upstream that were skipped or ignored, and that are in the table as of the version that is read now.
    Where it began with a later version than the first one, a replay reads what the stream read, and no more."""
    source, began = table.source, tail.entry.began
    if not isinstance(source, DeltaSource) or isinstance(source, FilesSource) or len(began) != 1:
        return None
    first = parse(began[0])
    if at is None and not first.snapshot and first.version > 0:
        return None
    return changes_read_past(store_of(source, store), source, began[0], now)


def _lost(table: TablePlan, log: DeltaLog, tail: Tail, now: str) -> dict[str, int]:
    """Offsets that the broker no longer has, by topic."""
    if not isinstance(table.source, KafkaSource):
        return {}
    end, began = position.parse(now), position.parse(began_of(log, tail.entry)[0])
    admin = Admin(table.source.cluster)
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


def _refuse_move(planned: Planned, *, cascade: bool) -> None:
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
