"""The checks of one table, from what was seen of it and what its cluster said."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from penstock.engine.protocol.ledger import read_tail
from penstock.engine.store import Store
from penstock.errors import PenstockError
from penstock.ops.broker import places
from penstock.ops.doctor import checkpoints, files, rejected, symptoms, topics
from penstock.ops.doctor import pace as pace_checks
from penstock.ops.doctor.backlog import Backlog, kafka_backlog
from penstock.ops.doctor.check import About, Check
from penstock.ops.doctor.cluster import Asked, touched
from penstock.ops.doctor.delta_retention import delta_retention
from penstock.ops.doctor.kafka_retention import Reader, compaction, retention
from penstock.ops.doctor.said import span
from penstock.ops.doctor.seen import Seen
from penstock.ops.doctor.upstream import delta_backlog
from penstock.ops.recent import RecentLog
from penstock.ops.status import ALIVE, position_of
from penstock.plan.files import FilesSource
from penstock.plan.model import DeltaSource, KafkaSource, Plan


@dataclass(frozen=True)
class Context:
    plan: Plan
    store: Store
    now_ms: float
    timeout: float
    """Of a broker."""


def backlog_of(seen: Seen, asked: Asked | None, context: Context) -> Backlog:
    """What the table has not read, whatever it reads."""
    source, status = seen.table.source, seen.status
    if seen.entry is None:
        return Backlog(None, unknown=f"the table is {status.state}")
    if isinstance(source, KafkaSource):
        if asked is None or asked.held.problem:
            return Backlog(None, unknown=asked.held.problem if asked else "no broker was asked")
        now = places(position_of(status), asked.held)
        return kafka_backlog(source, now, asked.held, seen.lately, timeout=context.timeout)
    if isinstance(source, FilesSource):
        return Backlog(status.lag, "file", status.lag_unknown)
    if "upstream" in seen.unknown:
        return Backlog(None, "commit", seen.unknown["upstream"])
    return delta_backlog(seen.upstreams, seen.readings, seen.lately)


def table_checks(seen: Seen, asked: Asked | None, backlog: Backlog, context: Context) -> Iterator[Check]:
    table, status = seen.table, seen.status
    yield symptoms.state(status)
    yield from _kafka(seen, asked, backlog, context)
    if seen.entry is None:
        if "ledger" in seen.unknown:
            yield About("table.checkpoint", table.name).unknown(seen.unknown["ledger"])
        return
    yield checkpoints.checkpoint(
        table, _step(seen, context), seen.lately, alive=status.state in ALIVE, local=context.plan.local
    )
    yield symptoms.foreign(status, seen.lately)
    yield symptoms.silent(status, _quiet(seen, asked), backlog, seen.lately, seen.pause, context.now_ms)
    yield from _upstreams(seen, context)
    yield from _pace(seen, backlog, context)
    yield from _lies(seen)


def _kafka(seen: Seen, asked: Asked | None, backlog: Backlog, context: Context) -> Iterator[Check]:
    """A broker that is away is a finding of the project: here there is only what it would have told."""
    table, source, sends = seen.table, touched(seen.table), not isinstance(seen.table.source, KafkaSource)
    if source is None:
        return
    if asked is None or asked.held.problem:
        why = asked.held.problem if asked is not None else None
        for name in ("kafka.topics",) if sends else ("kafka.topics", "kafka.retention"):
            yield About(name, table.name).unknown(why or "no broker was asked")
        return
    if sends:
        yield topics.topics(topics.Subscribed(table.name, source, {}, {}, sends=True), asked.held, asked.names)
        return
    ids = seen.entry.topics if seen.entry is not None else {}
    subscribed = topics.Subscribed(table.name, source, position_of(seen.status), ids)
    yield topics.topics(subscribed, asked.held, asked.names)
    yield topics.partitions(
        subscribed,
        asked.held,
        context.plan.parallelism,
        usual_seconds=seen.lately.usual_seconds,
        trigger_seconds=table.trigger.seconds,
    )
    if seen.entry is None:
        return
    if asked.kept_unknown is not None:
        yield About("kafka.retention", table.name).unknown(
            f"how long the topics keep their records is not known: {asked.kept_unknown}",
            "give the user of the cluster the right DescribeConfigs on its topics",
        )
        return
    unread = [one for one in backlog.partitions if one.topic in asked.kept]
    if not unread:  # its topics are gone, which kafka.topics says
        return
    reader = replace(_reader(seen, backlog, context), bootstrap=source.cluster.bootstrap)
    yield retention(reader, unread, asked.kept, context.now_ms)
    yield from compaction(reader, unread, asked.kept, context.now_ms)


def _reader(seen: Seen, backlog: Backlog, context: Context) -> Reader:
    trigger = seen.table.trigger
    due = trigger.sla or trigger.seconds or 0.0
    what = "the SLA" if trigger.sla else "the trigger"
    return Reader(
        table=seen.table.name,
        due=due,
        due_said=f"{what} of {span(due)}",
        worse=_worse(seen, backlog, context),
        pause=seen.pause,
        merges=seen.table.write.merge is not None,
    )


def _worse(seen: Seen, backlog: Backlog, context: Context) -> str:
    if backlog.trend is not None and backlog.trend.grows:
        return "they become more"
    if seen.status.state in ALIVE:
        return ""
    pause = seen.pause.seconds if seen.pause is not None else 0.0
    rests = seen.status.state == "finished" and (backlog.age(context.now_ms) or 0.0) <= pause
    return "" if rests else "nobody runs the table"  # called by a scheduler, it rests as it did before


def _quiet(seen: Seen, asked: Asked | None) -> symptoms.Quiet:
    source = seen.table.source
    held = newest = None
    if isinstance(source, KafkaSource) and asked is not None and not asked.held.problem:
        read = {place.topic for place in seen.status.places} | set(source.topics)
        latest, earliest = asked.held.latest, asked.held.earliest
        held = sum(latest[t][p] - earliest[t][p] for t in read if t in latest for p in latest[t])
        newest = max((one for t in read for one in asked.newest_ms.get(t, {}).values()), default=None)
    return symptoms.Quiet(seen.table.trigger, source.starting.kind, held, newest)


def _upstreams(seen: Seen, context: Context) -> Iterator[Check]:
    for upstream in seen.upstreams:
        yield delta_retention(seen.table.name, upstream, seen.pause, context.now_ms)
    if "upstream" in seen.unknown:
        yield About("delta.retention", seen.table.name).unknown(seen.unknown["upstream"])


def _pace(seen: Seen, backlog: Backlog, context: Context) -> Iterator[Check]:
    source, table = seen.table.source, seen.table
    most = ""
    if isinstance(source, KafkaSource) and source.max_per_trigger is not None:
        most = f"max_per_trigger: {source.max_per_trigger}"
    elif isinstance(source, DeltaSource) and source.max_bytes is not None:
        most = f"max_bytes: {source.max_bytes}"
    elif isinstance(source, DeltaSource) and not isinstance(source, FilesSource):
        most = f"max_files: {source.max_files or 1000}"
    runner = pace_checks.Runner(table.name, table.trigger, seen.status.state in ALIVE, most)
    if seen.lately.batches:
        yield pace_checks.batches(runner, seen.lately)
    yield from pace_checks.sla(runner, backlog, context.now_ms)
    yield pace_checks.behind(runner, backlog)


def _lies(seen: Seen) -> Iterator[Check]:
    name = seen.table.name
    if seen.layout is None:
        yield About("table.files", name).unknown(seen.unknown.get("layout", "its log does not tell"))
    else:
        yield files.small_files(name, seen.layout, seen.table.trigger.seconds)
        yield files.log_size(name, seen.layout)
    if seen.rejected is not None:
        yield rejected.quarantine(name, seen.rejected)
    elif "quarantine" in seen.unknown:
        yield About("quarantine.share", name).unknown(seen.unknown["quarantine"])
    if seen.rescued is not None:
        yield rejected.rescued(name, seen.rescued)


def _step(seen: Seen, context: Context) -> Callable[[], checkpoints.Step | None]:
    """Reads ledger and checkpoint anew each time."""

    def look() -> checkpoints.Step | None:
        try:
            tail = read_tail(RecentLog(context.store, seen.table.uri, seen.table.name))
        except PenstockError:
            return None
        return checkpoints.read_step(context.store, seen.table, tail.entry) if tail is not None else None

    return look
