"""`doctor`: every check, in one go. Nothing is changed, no JVM is started."""

from __future__ import annotations

import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.doctor import backlog as pace_checks
from penstock.doctor import files, machine, rejected, security, topics, versions
from penstock.doctor import topics as clusters
from penstock.doctor.backlog import Backlog, kafka_backlog
from penstock.doctor.check import Check, CheckSubject, span
from penstock.doctor.files import leftovers
from penstock.doctor.machine import DiskPlace, Newest, disk_room, driver_memory, durable, locks, skew
from penstock.doctor.retention import TopicReader, compaction, delta_backlog, delta_retention, retention
from penstock.doctor.table_snapshot import see
from penstock.doctor.topics import answers, ask_cluster, consumers, touched
from penstock.errors import PenstockError
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.head import read_head
from penstock.operations.broker import places, question
from penstock.operations.status import ALIVE, position_of
from penstock.plan.build_sources import cluster_plan
from penstock.plan.sources import TopicsSource
from penstock.spec.document import parse
from penstock.spec.load import FILE
from penstock.storage.stores import open_store

if TYPE_CHECKING:
    from penstock.doctor.table_snapshot import TableSnapshot
    from penstock.doctor.topics import ClusterAnswer
    from penstock.operations.broker import PartitionLag as TopicPlace
    from penstock.operations.broker import Question
    from penstock.plan.model import Plan, TablePlan
    from penstock.plan.sources import Cluster
    from penstock.spec.document import Document
    from penstock.spec.project import Project
    from penstock.storage.stores import Store

# The checks that need neither the lake nor a broker: the project file, its secrets, its connections, the set-up.


def project_checks(project: Project, plan: Plan) -> Iterator[Check]:
    yield versions.packages(versions.wanted_packages(), versions.installed_packages())
    yield versions.java()
    yield from versions.jars(_sets(plan))
    document = _document(project.root / FILE)
    if document is None:
        yield CheckSubject("secrets.plain").unknown(f"{project.root / FILE} cannot be read")
    else:
        yield security.plain(list(security.in_clear(document)), readable=_readable(project.root / FILE))
    clusters = _declared_clusters(project)
    keys = [Path(cluster.key_file) for cluster in clusters if cluster.key_file]
    named = security.named_files(document, project.root) if document is not None else []
    yield from security.files([*keys, *named], _project_files(plan))
    for cluster in clusters:
        yield security.kafka(cluster)
    for table in plan.tables:
        system = table.sink.system if table.sink is not None else None
        if system is not None and system.address is not None:
            yield security.target(table.name, system)


def _declared_clusters(project: Project) -> list[Cluster]:
    found = [cluster_plan(None, project.kafka, project.root)] if project.kafka is not None else []
    return found + [cluster_plan(name, one, project.root) for name, one in project.clusters.items()]


def _sets(plan: Plan) -> list[str]:
    """The jars that a run of this project loads."""
    systems = [table.sink.system for table in plan.tables if table.sink is not None]
    wanted = [jars for system in systems if system is not None for jars in system.jars]
    return ["spark", *dict.fromkeys(wanted)]


def _project_files(plan: Plan) -> list[Path]:
    """What decides which code runs."""
    found = [Path(plan.root) / FILE]
    for table in plan.tables:
        transform = table.stages.transform if table.stages is not None else None
        found += [Path(one.file) for one in (transform, table.stream) if one is not None and one.file is not None]
    return list(dict.fromkeys(found))


def _document(file: Path) -> Document | None:
    try:
        document = parse(file.read_text(encoding="utf-8-sig"), str(file))
    except (OSError, UnicodeDecodeError):
        return None
    return None if document.problems else document


def _readable(file: Path) -> bool:
    """By every user of the machine."""
    return bool(file.stat().st_mode & stat.S_IROTH)


# The checks of one table, from what was seen of it and what its cluster said.


@dataclass(frozen=True)
class Context:
    plan: Plan
    store: Store
    now_ms: float
    timeout: float
    """Of a broker."""


def backlog_of(seen: TableSnapshot, asked: ClusterAnswer | None, context: Context) -> Backlog:
    """What the table has not read, whatever it reads."""
    status = seen.status
    if seen.entry is None:
        return Backlog(None, unknown=f"the table is {status.state}")
    if (source := seen.table.topics) is not None:
        if asked is None or asked.held.problem:
            return Backlog(None, unknown=asked.held.problem if asked else "no broker was asked")
        now = places(position_of(status), asked.held)
        return kafka_backlog(source, now, asked.held, seen.lately, timeout=context.timeout)
    if seen.table.files is not None:
        return Backlog(status.lag, "file", status.lag_unknown)
    if "upstream" in seen.unknown:
        return Backlog(None, "commit", seen.unknown["upstream"])
    return delta_backlog(seen.upstreams, seen.readings, seen.lately)


@dataclass(frozen=True)
class TableEvidence:
    """What the checks of a table rest on."""

    seen: TableSnapshot
    asked: ClusterAnswer | None
    """What its cluster said."""
    backlog: Backlog
    context: Context


def table_checks(evidence: TableEvidence) -> Iterator[Check]:
    for check in TABLE_CHECKS:
        yield from check(evidence)
    if evidence.seen.entry is not None:
        for check in LEDGER_CHECKS:
            yield from check(evidence)


def _state(evidence: TableEvidence) -> Iterator[Check]:
    yield rejected.state(evidence.seen.status)


def _ledger(evidence: TableEvidence) -> Iterator[Check]:
    seen = evidence.seen
    if seen.entry is None and "ledger" in seen.unknown:
        yield CheckSubject("table.checkpoint", seen.table.name).unknown(seen.unknown["ledger"])


def _checkpoint(evidence: TableEvidence) -> Iterator[Check]:
    seen, context = evidence.seen, evidence.context
    alive = seen.status.state in ALIVE
    yield files.checkpoint(seen.table, _step(seen, context), seen.lately, alive=alive, local=context.plan.local)


def _foreign(evidence: TableEvidence) -> Iterator[Check]:
    yield rejected.foreign(evidence.seen.status, evidence.seen.lately)


def _silent(evidence: TableEvidence) -> Iterator[Check]:
    seen, now_ms = evidence.seen, evidence.context.now_ms
    quiet = _quiet(seen, evidence.asked)
    yield rejected.silent(seen.status, quiet, evidence.backlog, seen.lately, seen.pause, now_ms)


def _kafka(evidence: TableEvidence) -> Iterator[Check]:
    """A broker that is away is a finding of the project: here there is only what it would have told."""
    seen, asked, backlog, context = evidence.seen, evidence.asked, evidence.backlog, evidence.context
    table, source, sends = seen.table, touched(seen.table), seen.table.topics is None
    if source is None:
        return
    if asked is None or asked.held.problem:
        why = asked.held.problem if asked is not None else None
        for name in ("kafka.topics",) if sends else ("kafka.topics", "kafka.retention"):
            yield CheckSubject(name, table.name).unknown(why or "no broker was asked")
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
        yield CheckSubject("kafka.retention", table.name).unknown(
            f"how long the topics keep their records is not known: {asked.kept_unknown}",
            "give the user of the cluster the right DescribeConfigs on its topics",
        )
        return
    unread = [one for one in backlog.partitions if one.topic in asked.kept]
    if not unread:  # its topics are gone, which kafka.topics says
        return
    reader = replace(_reader(seen, backlog, context), bootstrap=source.address)
    yield retention(reader, unread, asked.kept, context.now_ms)
    yield from compaction(reader, unread, asked.kept, context.now_ms)


def _reader(seen: TableSnapshot, backlog: Backlog, context: Context) -> TopicReader:
    trigger = seen.table.trigger
    due = trigger.sla or trigger.seconds or 0.0
    what = "the SLA" if trigger.sla else "the trigger"
    return TopicReader(
        table=seen.table.name,
        due=due,
        due_said=f"{what} of {span(due)}",
        worse=_worse(seen, backlog, context),
        pause=seen.pause,
        merges=seen.table.write.merge is not None,
    )


def _worse(seen: TableSnapshot, backlog: Backlog, context: Context) -> str:
    if backlog.trend is not None and backlog.trend.grows:
        return "they become more"
    if seen.status.state in ALIVE:
        return ""
    pause = seen.pause.seconds if seen.pause is not None else 0.0
    rests = seen.status.state == "finished" and (backlog.age(context.now_ms) or 0.0) <= pause
    return "" if rests else "nobody runs the table"  # called by a scheduler, it rests as it did before


def _quiet(seen: TableSnapshot, asked: ClusterAnswer | None) -> rejected.SilenceEvidence:
    source = seen.table.topics
    held = newest = None
    if source is not None and asked is not None and not asked.held.problem:
        read = {place.topic for place in seen.status.places} | set(source.topics)
        latest, earliest = asked.held.latest, asked.held.earliest
        held = sum(latest[t][p] - earliest[t][p] for t in read if t in latest for p in latest[t])
        newest = max((one for t in read for one in asked.newest_ms.get(t, {}).values()), default=None)
    return rejected.SilenceEvidence(seen.table.trigger, seen.table.source.starting.kind, held, newest)


def _upstreams(evidence: TableEvidence) -> Iterator[Check]:
    seen, context = evidence.seen, evidence.context
    for upstream in seen.upstreams:
        yield delta_retention(seen.table.name, upstream, seen.pause, context.now_ms)
    if "upstream" in seen.unknown:
        yield CheckSubject("delta.retention", seen.table.name).unknown(seen.unknown["upstream"])


def _pace(evidence: TableEvidence) -> Iterator[Check]:
    seen, backlog, context = evidence.seen, evidence.backlog, evidence.context
    table = seen.table
    runner = pace_checks.Runner(table.name, table.trigger, seen.status.state in ALIVE, table.source.batch_limit)
    if seen.lately.batches:
        yield pace_checks.batches(runner, seen.lately)
    yield from pace_checks.sla(runner, backlog, context.now_ms)
    yield pace_checks.behind(runner, backlog)


def _files(evidence: TableEvidence) -> Iterator[Check]:
    seen, name = evidence.seen, evidence.seen.table.name
    if seen.layout is None:
        yield CheckSubject("table.files", name).unknown(seen.unknown.get("layout", "its log does not tell"))
    else:
        yield files.small_files(name, seen.layout, seen.table.trigger.seconds)
        yield files.log_size(name, seen.layout)


def _rows(evidence: TableEvidence) -> Iterator[Check]:
    seen, name = evidence.seen, evidence.seen.table.name
    if seen.rejected is not None:
        yield rejected.quarantine(name, seen.rejected)
    elif "quarantine" in seen.unknown:
        yield CheckSubject("quarantine.share", name).unknown(seen.unknown["quarantine"])
    if seen.rescued is not None:
        yield rejected.rescued(name, seen.rescued)


TableCheck = Callable[[TableEvidence], Iterator[Check]]
TABLE_CHECKS: tuple[TableCheck, ...] = (_state, _kafka, _ledger)
LEDGER_CHECKS: tuple[TableCheck, ...] = (_checkpoint, _foreign, _silent, _upstreams, _pace, _files, _rows)
"""Of tables that have a ledger. A new check is one function here, and its id among REASONS in check.py."""


def _step(seen: TableSnapshot, context: Context) -> Callable[[], files.CheckpointStep | None]:
    """Reads ledger and checkpoint anew each time."""

    def look() -> files.CheckpointStep | None:
        try:
            tail = read_head(RecentLog(context.store, seen.table.uri, seen.table.name))
        except PenstockError:
            return None
        return files.read_step(context.store, seen.table, tail.entry) if tail is not None else None

    return look


# `doctor`: everything that is checked, in one go. Nothing is changed, no JVM is started.


Say = Callable[[str], None]
_AT_ONCE = 8


def examine(project: Project, plan: Plan, tables: Sequence[TablePlan], say: Say = lambda _: None) -> list[Check]:
    """The checks of the project, then those of each table in the order of the plan."""
    now_ms = time.time() * 1000
    say("the project and this machine")
    found = [*project_checks(project, plan)]
    store = _open(plan)
    if isinstance(store, Check):
        return [*found, store, *_machine(plan, ())]
    found.append(CheckSubject("lake.readable").ok(plan.lake))
    context = Context(plan, store, now_ms, clusters.TIMEOUT)
    say(f"the logs of {len(tables)} tables")
    with ThreadPoolExecutor(1 if plan.local else 2 * _AT_ONCE) as threads:
        seen = list(threads.map(lambda table: see(plan, table, store, now_ms), tables))
    asked = _ask(seen, say)
    found += [*_machine(plan, seen), *_lake(plan, store), *_cluster_checks(plan, seen, asked)]
    say("what was not read yet")
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        examined = threads.map(lambda one: _table(one, asked, context), seen)
        return [*found, *(check for checks in examined for check in checks)]


def _open(plan: Plan) -> Store | Check:
    """One that cannot be read is one finding, not one for every table."""
    about = CheckSubject("lake.readable")
    try:
        store = open_store(plan)
    except PenstockError as error:  # a package is missing, or only Spark can read it
        return about.unknown(error.message, error.hint or "")
    try:
        store.names(plan.system)
    except PenstockError as error:
        return about.red(error.message, error.hint or "")
    except OSError as error:
        return about.red(
            f"{plan.system} cannot be read: {error.strerror}", "give its rights to the user of this command"
        )
    return store


def _table(seen: TableSnapshot, asked: dict[Question, ClusterAnswer], context: Context) -> list[Check]:
    source = touched(seen.table)
    said = asked.get(question(source)) if source is not None else None
    return list(table_checks(TableEvidence(seen, said, backlog_of(seen, said, context), context)))


def _ask(seen: Sequence[TableSnapshot], say: Say) -> dict[Question, ClusterAnswer]:
    """Each cluster once, all at the same time: several that are away take no longer than one."""
    sources: dict[Question, TopicsSource] = {}
    topics: dict[Question, set[str]] = {}
    patterns: dict[Question, set[str]] = {}
    for one in seen:
        source = touched(one.table)
        if source is not None:
            key = question(source)
            sources[key] = source
            topics.setdefault(key, set()).update(source.topics, (place.topic for place in _read(one)))
            patterns.setdefault(key, set()).update([source.pattern] if source.pattern is not None else [])
    if not sources:
        return {}
    say(f"asking Kafka at {', '.join(sorted({source.address for source in sources.values()}))}")
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answered = threads.map(
            lambda key: ask_cluster(sources[key], topics[key], patterns[key], timeout=clusters.TIMEOUT), sources
        )
        return dict(zip(sources, answered, strict=True))


def _machine(plan: Plan, seen: Sequence[TableSnapshot]) -> Iterator[Check]:
    daily = [one.daily for one in seen if one.daily is not None]
    temporary = plan.conf.get("spark.local.dir", tempfile.gettempdir()).split(",")
    places = [DiskPlace("temporary files", path) for path in temporary]
    if plan.local:
        lake = DiskPlace("the lake", plan.lake, sum(daily) if daily else None)
        shared = [one for one in places if machine.device_of(one.path) != machine.device_of(plan.lake)]
        places = [lake, *shared]
    for place in places:
        yield disk_room(place, machine.disk(place.path))
    if plan.master.startswith("local"):
        yield driver_memory(plan.conf.get("spark.driver.memory", "1g"), machine.memory())


def _lake(plan: Plan, store: Store) -> Iterator[Check]:
    mount = machine.mount_of(plan.lake, machine.mounts()) if plan.local else None
    yield durable(plan.lake, mount, in_container=machine.in_container())
    yield from locks(plan.lake, mount)
    try:
        yield leftovers(plan, store)
    except (PenstockError, OSError) as error:
        yield CheckSubject("lake.leftovers").unknown(str(error))


def _cluster_checks(plan: Plan, seen: Sequence[TableSnapshot], asked: dict[Question, ClusterAnswer]) -> Iterator[Check]:
    users: dict[str, list[str]] = {}
    said: dict[str, list[ClusterAnswer]] = {}
    known: dict[str, str] = {}
    for one in seen:
        source = touched(one.table)
        if source is not None:
            name = source.cluster_name
            known[name] = source.address
            users.setdefault(name, []).append(one.table.name)
            said.setdefault(name, []).append(asked[question(source)])
    for name, address in known.items():
        problem = next((answer.held.problem for answer in said[name] if answer.held.problem), None)
        yield answers(name, address, problem, users[name])
    everything = [answer for found in said.values() for answer in found]
    yield from consumers(plan.conf.get("spark.kafka.consumer.cache.capacity"), sum(len(_read(one)) for one in seen))
    records = {topic: newest for answer in everything for topic, newest in _newest(answer).items()}
    unknown = next((why for one in everything if (why := one.held.problem or one.newest_unknown)), None)
    yield skew({one.table.name: one.lately.newest_ms for one in seen}, records, time.time() * 1000, unknown)


def _read(seen: TableSnapshot) -> Sequence[TopicPlace]:
    """The partitions of topics that a table reads."""
    return seen.status.places if seen.table.topics is not None else ()


def _newest(asked: ClusterAnswer) -> dict[str, Newest]:
    return {
        topic: Newest(max(times.values()), topic in asked.kept and asked.kept[topic].by_broker)
        for topic, times in asked.newest_ms.items()
        if times
    }
