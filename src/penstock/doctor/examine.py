"""`doctor`: every check in one run. Nothing is changed, no JVM is started."""

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
from penstock.doctor.table_snapshot import read_snapshot
from penstock.doctor.topics import ask_cluster, check_broker, consumers, topics_of
from penstock.errors import PenstockError
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.head import read_head
from penstock.operations.broker import partition_lags, request_key
from penstock.operations.status import ALIVE, offsets_of
from penstock.plan.build_sources import cluster_plan
from penstock.plan.sources import TopicsSource
from penstock.spec.document import parse
from penstock.spec.load import FILE
from penstock.storage.stores import open_store

if TYPE_CHECKING:
    from penstock.doctor.table_snapshot import TableSnapshot
    from penstock.doctor.topics import ClusterAnswer
    from penstock.operations.broker import PartitionLag as TopicPlace
    from penstock.operations.broker import RequestKey
    from penstock.plan.model import Plan, TablePlan
    from penstock.plan.sources import Cluster
    from penstock.spec.document import Document
    from penstock.spec.project import Project
    from penstock.storage.stores import Store

# The checks that need neither the lake nor a broker: the project file, its secrets, its connections, the installation.


def project_checks(project: Project, plan: Plan) -> Iterator[Check]:
    yield versions.packages(versions.required_packages(), versions.installed_packages())
    yield versions.java()
    yield from versions.jars(_jar_sets(plan))
    document = _parse_document(project.root / FILE)
    if document is None:
        yield CheckSubject("secrets.plain").unknown(f"{project.root / FILE} cannot be read")
    else:
        yield security.plain(list(security.in_clear(document)), readable=_readable_by_all(project.root / FILE))
    declared_clusters = _declared_clusters(project)
    keys = [Path(cluster.key_file) for cluster in declared_clusters if cluster.key_file]
    referenced_files = security.named_files(document, project.root) if document is not None else []
    yield from security.files([*keys, *referenced_files], _project_files(plan))
    for cluster in declared_clusters:
        yield security.kafka(cluster)
    for table in plan.tables:
        system = table.sink.system if table.sink is not None else None
        if system is not None and system.address is not None:
            yield security.target(table.name, system)


def _declared_clusters(project: Project) -> list[Cluster]:
    default_cluster = [cluster_plan(None, project.kafka, project.root)] if project.kafka is not None else []
    return default_cluster + [cluster_plan(name, cluster, project.root) for name, cluster in project.clusters.items()]


def _jar_sets(plan: Plan) -> list[str]:
    """The sets of jars that a run of this project loads."""
    systems = [table.sink.system for table in plan.tables if table.sink is not None]
    system_jars = [jars for system in systems if system is not None for jars in system.jars]
    return ["spark", *dict.fromkeys(system_jars)]


def _project_files(plan: Plan) -> list[Path]:
    """The files that decide which code runs."""
    paths = [Path(plan.root) / FILE]
    for table in plan.tables:
        transform = table.stages.transform if table.stages is not None else None
        paths += [
            Path(function.file)
            for function in (transform, table.stream)
            if function is not None and function.file is not None
        ]
    return list(dict.fromkeys(paths))


def _parse_document(file: Path) -> Document | None:
    try:
        document = parse(file.read_text(encoding="utf-8-sig"), str(file))
    except (OSError, UnicodeDecodeError):
        return None
    return None if document.problems else document


def _readable_by_all(file: Path) -> bool:
    """By every user of the machine."""
    return bool(file.stat().st_mode & stat.S_IROTH)


# The checks of one table, from the snapshot of it and the answer of its cluster.


@dataclass(frozen=True)
class Context:
    plan: Plan
    store: Store
    now_ms: float
    timeout: float
    """Seconds to wait for a broker."""


def backlog_of(snapshot: TableSnapshot, answer: ClusterAnswer | None, context: Context) -> Backlog:
    """What the table has not read yet, whatever kind of source it has."""
    status = snapshot.status
    if snapshot.entry is None:
        return Backlog(None, unknown=f"the table is {status.state}")
    if (source := snapshot.table.topics) is not None:
        if answer is None or answer.offsets.problem:
            return Backlog(None, unknown=answer.offsets.problem if answer else "no broker was asked")
        lags = partition_lags(offsets_of(status), answer.offsets)
        return kafka_backlog(source, lags, answer.offsets, snapshot.recent_commits, timeout=context.timeout)
    if snapshot.table.files is not None:
        return Backlog(status.lag, "file", status.lag_unknown)
    if "upstream" in snapshot.unknown:
        return Backlog(None, "commit", snapshot.unknown["upstream"])
    return delta_backlog(snapshot.upstreams, snapshot.upstream_logs, snapshot.recent_commits)


@dataclass(frozen=True)
class TableEvidence:
    """What the checks of a table are based on."""

    snapshot: TableSnapshot
    cluster_answer: ClusterAnswer | None
    """The answer of its cluster; None if it reads and writes no topic."""
    backlog: Backlog
    context: Context


def table_checks(evidence: TableEvidence) -> Iterator[Check]:
    for check in TABLE_CHECKS:
        yield from check(evidence)
    if evidence.snapshot.entry is not None:
        for check in LEDGER_CHECKS:
            yield from check(evidence)


def _state_checks(evidence: TableEvidence) -> Iterator[Check]:
    yield rejected.state(evidence.snapshot.status)


def _ledger_checks(evidence: TableEvidence) -> Iterator[Check]:
    snapshot = evidence.snapshot
    if snapshot.entry is None and "ledger" in snapshot.unknown:
        yield CheckSubject("table.checkpoint", snapshot.table.name).unknown(snapshot.unknown["ledger"])


def _checkpoint_checks(evidence: TableEvidence) -> Iterator[Check]:
    snapshot, context = evidence.snapshot, evidence.context
    alive = snapshot.status.state in ALIVE
    yield files.checkpoint(
        snapshot.table,
        _checkpoint_reader(snapshot, context),
        snapshot.recent_commits,
        alive=alive,
        local=context.plan.local,
    )


def _foreign_checks(evidence: TableEvidence) -> Iterator[Check]:
    yield rejected.foreign(evidence.snapshot.status, evidence.snapshot.recent_commits)


def _silence_checks(evidence: TableEvidence) -> Iterator[Check]:
    snapshot, now_ms = evidence.snapshot, evidence.context.now_ms
    silence = _silence_evidence(snapshot, evidence.cluster_answer)
    yield rejected.silent(snapshot.status, silence, evidence.backlog, snapshot.recent_commits, snapshot.pause, now_ms)


def _kafka_checks(evidence: TableEvidence) -> Iterator[Check]:
    """A broker that is away is a finding of the project; here its checks are unknown."""
    snapshot, answer, backlog, context = evidence.snapshot, evidence.cluster_answer, evidence.backlog, evidence.context
    table, source, sends = snapshot.table, topics_of(snapshot.table), snapshot.table.topics is None
    if source is None:
        return
    if answer is None or answer.offsets.problem:
        problem = answer.offsets.problem if answer is not None else None
        for name in ("kafka.topics",) if sends else ("kafka.topics", "kafka.retention"):
            yield CheckSubject(name, table.name).unknown(problem or "no broker was asked")
        return
    if sends:
        yield topics.topics(topics.Subscription(table.name, source, {}, {}, sends=True), answer.offsets, answer.names)
        return
    ids = snapshot.entry.topics if snapshot.entry is not None else {}
    subscribed = topics.Subscription(table.name, source, offsets_of(snapshot.status), ids)
    yield topics.topics(subscribed, answer.offsets, answer.names)
    yield topics.partitions(
        subscribed,
        answer.offsets,
        context.plan.parallelism,
        usual_seconds=snapshot.recent_commits.usual_seconds,
        trigger_seconds=table.trigger.seconds,
    )
    if snapshot.entry is None:
        return
    if answer.retention_unknown is not None:
        yield CheckSubject("kafka.retention", table.name).unknown(
            f"how long the topics keep their records is not known: {answer.retention_unknown}",
            "give the user of the cluster the right DescribeConfigs on its topics",
        )
        return
    unread = [partition for partition in backlog.partitions if partition.topic in answer.retention]
    if not unread:  # its topics are gone, which kafka.topics says
        return
    reader = replace(_topic_reader(snapshot, backlog, context), bootstrap=source.address)
    yield retention(reader, unread, answer.retention, context.now_ms)
    yield from compaction(reader, unread, answer.retention, context.now_ms)


def _topic_reader(snapshot: TableSnapshot, backlog: Backlog, context: Context) -> TopicReader:
    trigger = snapshot.table.trigger
    due = trigger.sla or trigger.seconds or 0.0
    deadline = "the SLA" if trigger.sla else "the trigger"
    return TopicReader(
        table=snapshot.table.name,
        due=due,
        due_text=f"{deadline} of {span(due)}",
        lag_grows_because=_worse_reason(snapshot, backlog, context),
        pause=snapshot.pause,
        merges=snapshot.table.write.merge is not None,
    )


def _worse_reason(snapshot: TableSnapshot, backlog: Backlog, context: Context) -> str:
    if backlog.trend is not None and backlog.trend.grows:
        return "they become more"
    if snapshot.status.state in ALIVE:
        return ""
    pause = snapshot.pause.seconds if snapshot.pause is not None else 0.0
    is_resting = snapshot.status.state == "finished" and (backlog.age(context.now_ms) or 0.0) <= pause
    return "" if is_resting else "nobody runs the table"  # run by a scheduler, it pauses as it did before


def _silence_evidence(snapshot: TableSnapshot, answer: ClusterAnswer | None) -> rejected.SilenceEvidence:
    source = snapshot.table.topics
    records_held = newest_ms = None
    if source is not None and answer is not None and not answer.offsets.problem:
        topics_read = {place.topic for place in snapshot.status.partition_lags} | set(source.topics)
        latest, earliest = answer.offsets.latest, answer.offsets.earliest
        records_held = sum(latest[t][p] - earliest[t][p] for t in topics_read if t in latest for p in latest[t])
        newest_ms = max(
            (time_ms for t in topics_read for time_ms in answer.newest_ms.get(t, {}).values()), default=None
        )
    return rejected.SilenceEvidence(
        snapshot.table.trigger, snapshot.table.source.starting.kind, records_held, newest_ms
    )


def _upstream_checks(evidence: TableEvidence) -> Iterator[Check]:
    snapshot, context = evidence.snapshot, evidence.context
    for upstream in snapshot.upstreams:
        yield delta_retention(snapshot.table.name, upstream, snapshot.pause, context.now_ms)
    if "upstream" in snapshot.unknown:
        yield CheckSubject("delta.retention", snapshot.table.name).unknown(snapshot.unknown["upstream"])


def _pace_checks(evidence: TableEvidence) -> Iterator[Check]:
    snapshot, backlog, context = evidence.snapshot, evidence.backlog, evidence.context
    table = snapshot.table
    runner = pace_checks.Runner(table.name, table.trigger, snapshot.status.state in ALIVE, table.source.batch_limit)
    if snapshot.recent_commits.batches:
        yield pace_checks.batches(runner, snapshot.recent_commits)
    yield from pace_checks.sla(runner, backlog, context.now_ms)
    yield pace_checks.check_trend(runner, backlog)


def _file_checks(evidence: TableEvidence) -> Iterator[Check]:
    snapshot, name = evidence.snapshot, evidence.snapshot.table.name
    if snapshot.layout is None:
        yield CheckSubject("table.files", name).unknown(snapshot.unknown.get("layout", "its log does not tell"))
    else:
        yield files.small_files(name, snapshot.layout, snapshot.table.trigger.seconds)
        yield files.log_size(name, snapshot.layout)


def _row_checks(evidence: TableEvidence) -> Iterator[Check]:
    snapshot, name = evidence.snapshot, evidence.snapshot.table.name
    if snapshot.rejected is not None:
        yield rejected.quarantine(name, snapshot.rejected)
    elif "quarantine" in snapshot.unknown:
        yield CheckSubject("quarantine.share", name).unknown(snapshot.unknown["quarantine"])
    if snapshot.rescued is not None:
        yield rejected.rescued(name, snapshot.rescued)


TableCheck = Callable[[TableEvidence], Iterator[Check]]
TABLE_CHECKS: tuple[TableCheck, ...] = (_state_checks, _kafka_checks, _ledger_checks)
LEDGER_CHECKS: tuple[TableCheck, ...] = (
    _checkpoint_checks,
    _foreign_checks,
    _silence_checks,
    _upstream_checks,
    _pace_checks,
    _file_checks,
    _row_checks,
)
"""For tables that have a ledger. A new check is one function here, and its id in REASONS of check.py."""


def _checkpoint_reader(snapshot: TableSnapshot, context: Context) -> Callable[[], files.CheckpointState | None]:
    """A function that reads ledger and checkpoint again on each call."""

    def read() -> files.CheckpointState | None:
        try:
            head = read_head(RecentLog(context.store, snapshot.table.uri, snapshot.table.name))
        except PenstockError:
            return None
        return files.read_step(context.store, snapshot.table, head.entry) if head is not None else None

    return read


# `doctor`: everything that is checked, in one run. Nothing is changed, no JVM is started.


Say = Callable[[str], None]
_THREADS = 8


def examine(project: Project, plan: Plan, tables: Sequence[TablePlan], say: Say = lambda _: None) -> list[Check]:
    """The checks of the project, then those of each table in the order of the plan."""
    now_ms = time.time() * 1000
    say("the project and this machine")
    checks = [*project_checks(project, plan)]
    store = _open_lake(plan)
    if isinstance(store, Check):
        return [*checks, store, *_machine_checks(plan, ())]
    checks.append(CheckSubject("lake.readable").ok(plan.lake))
    context = Context(plan, store, now_ms, clusters.TIMEOUT)
    say(f"the logs of {len(tables)} tables")
    with ThreadPoolExecutor(1 if plan.local else 2 * _THREADS) as threads:
        snapshots = list(threads.map(lambda table: read_snapshot(plan, table, store, now_ms), tables))
    answers_by_question = _ask_clusters(snapshots, say)
    checks += [
        *_machine_checks(plan, snapshots),
        *_lake_checks(plan, store),
        *_cluster_checks(plan, snapshots, answers_by_question),
    ]
    say("what was not read yet")
    with ThreadPoolExecutor(_THREADS) as threads:
        checks_by_table = threads.map(lambda snapshot: _check_table(snapshot, answers_by_question, context), snapshots)
        return [*checks, *(check for table_group in checks_by_table for check in table_group)]


def _open_lake(plan: Plan) -> Store | Check:
    """A lake that cannot be read is one finding, not one for every table."""
    check = CheckSubject("lake.readable")
    try:
        store = open_store(plan)
    except PenstockError as error:  # a package is missing, or only Spark can read it
        return check.unknown(error.message, error.hint or "")
    try:
        store.names(plan.system)
    except PenstockError as error:
        return check.red(error.message, error.hint or "")
    except OSError as error:
        return check.red(
            f"{plan.system} cannot be read: {error.strerror}", "give its rights to the user of this command"
        )
    return store


def _check_table(
    snapshot: TableSnapshot, answers_by_question: dict[RequestKey, ClusterAnswer], context: Context
) -> list[Check]:
    source = topics_of(snapshot.table)
    answer = answers_by_question.get(request_key(source)) if source is not None else None
    return list(table_checks(TableEvidence(snapshot, answer, backlog_of(snapshot, answer, context), context)))


def _ask_clusters(snapshots: Sequence[TableSnapshot], say: Say) -> dict[RequestKey, ClusterAnswer]:
    """Asks each cluster once, all at the same time: several that are away take no longer than one."""
    sources: dict[RequestKey, TopicsSource] = {}
    topics: dict[RequestKey, set[str]] = {}
    patterns: dict[RequestKey, set[str]] = {}
    for snapshot in snapshots:
        source = topics_of(snapshot.table)
        if source is not None:
            key = request_key(source)
            sources[key] = source
            topics.setdefault(key, set()).update(
                source.topics, (partition.topic for partition in _partitions_read(snapshot))
            )
            patterns.setdefault(key, set()).update([source.pattern] if source.pattern is not None else [])
    if not sources:
        return {}
    say(f"asking Kafka at {', '.join(sorted({source.address for source in sources.values()}))}")
    with ThreadPoolExecutor(_THREADS) as threads:
        cluster_answers = threads.map(
            lambda key: ask_cluster(sources[key], topics[key], patterns[key], timeout=clusters.TIMEOUT), sources
        )
        return dict(zip(sources, cluster_answers, strict=True))


def _machine_checks(plan: Plan, snapshots: Sequence[TableSnapshot]) -> Iterator[Check]:
    daily = [snapshot.daily_growth for snapshot in snapshots if snapshot.daily_growth is not None]
    temporary_folders = plan.conf.get("spark.local.dir", tempfile.gettempdir()).split(",")
    places = [DiskPlace("temporary files", path) for path in temporary_folders]
    if plan.local:
        lake = DiskPlace("the lake", plan.lake, sum(daily) if daily else None)
        other_places = [place for place in places if machine.device_of(place.path) != machine.device_of(plan.lake)]
        places = [lake, *other_places]
    for place in places:
        yield disk_room(place, machine.disk(place.path))
    if plan.master.startswith("local"):
        yield driver_memory(plan.conf.get("spark.driver.memory", "1g"), machine.memory())


def _lake_checks(plan: Plan, store: Store) -> Iterator[Check]:
    mount = machine.mount_of(plan.lake, machine.mounts()) if plan.local else None
    yield durable(plan.lake, mount, in_container=machine.in_container())
    yield from locks(plan.lake, mount)
    try:
        yield leftovers(plan, store)
    except (PenstockError, OSError) as error:
        yield CheckSubject("lake.leftovers").unknown(str(error))


def _cluster_checks(
    plan: Plan, snapshots: Sequence[TableSnapshot], answers_by_question: dict[RequestKey, ClusterAnswer]
) -> Iterator[Check]:
    tables_by_cluster: dict[str, list[str]] = {}
    answers_by_cluster: dict[str, list[ClusterAnswer]] = {}
    addresses: dict[str, str] = {}
    for snapshot in snapshots:
        source = topics_of(snapshot.table)
        if source is not None:
            name = source.cluster_name
            addresses[name] = source.address
            tables_by_cluster.setdefault(name, []).append(snapshot.table.name)
            answers_by_cluster.setdefault(name, []).append(answers_by_question[request_key(source)])
    for name, address in addresses.items():
        problem = next((answer.offsets.problem for answer in answers_by_cluster[name] if answer.offsets.problem), None)
        yield check_broker(name, address, problem, tables_by_cluster[name])
    all_answers = [answer for cluster_answers in answers_by_cluster.values() for answer in cluster_answers]
    yield from consumers(
        plan.conf.get("spark.kafka.consumer.cache.capacity"),
        sum(len(_partitions_read(snapshot)) for snapshot in snapshots),
    )
    newest_records = {topic: newest for answer in all_answers for topic, newest in _newest_records(answer).items()}
    unknown = next(
        (reason for answer in all_answers if (reason := answer.offsets.problem or answer.newest_unknown)), None
    )
    yield skew(
        {snapshot.table.name: snapshot.recent_commits.newest_ms for snapshot in snapshots},
        newest_records,
        time.time() * 1000,
        unknown,
    )


def _partitions_read(snapshot: TableSnapshot) -> Sequence[TopicPlace]:
    """The partitions of topics that a table reads; empty for other sources."""
    return snapshot.status.partition_lags if snapshot.table.topics is not None else ()


def _newest_records(answer: ClusterAnswer) -> dict[str, Newest]:
    return {
        topic: Newest(max(times.values()), topic in answer.retention and answer.retention[topic].by_broker)
        for topic, times in answer.newest_ms.items()
        if times
    }
