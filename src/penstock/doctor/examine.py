"""`doctor`: every check in one run. Nothing is changed, no JVM is started."""

from __future__ import annotations

import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from penstock.doctor import backlog as pace_checks
from penstock.doctor import files, machine, rejected, retention, security, table_log, topics, versions
from penstock.doctor.backlog import Backlog, kafka_backlog
from penstock.doctor.check import Check, CheckSubject, span
from penstock.errors import PenstockError
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.head import read_head
from penstock.operations.broker import partition_lags, request_key
from penstock.operations.status import ALIVE, Status, offsets_of, status_without_broker
from penstock.plan.build_sources import cluster_plan
from penstock.plan.quarantine import quarantine_of
from penstock.plan.sources import TopicsSource
from penstock.spec.document import parse
from penstock.spec.load import FILE
from penstock.storage.stores import open_store

if TYPE_CHECKING:
    from penstock.doctor.rejected import Rejected, Rescued
    from penstock.doctor.retention import TopicDeadline, UpstreamFacts, UpstreamLog
    from penstock.doctor.table_log import Pause, RecentCommits, StoredLayout
    from penstock.doctor.topics import ClusterAnswer
    from penstock.ledger.entry import Entry
    from penstock.operations.broker import PartitionLag, RequestKey
    from penstock.plan.model import Plan, TablePlan
    from penstock.spec.document import Document
    from penstock.spec.project import Project
    from penstock.storage.stores import Store

T = TypeVar("T")
_MAX_LENGTH = 300

# The checks that need neither the lake nor a broker: the project file, its secrets, its connections, the installation.


def project_checks(project: Project, plan: Plan) -> Iterator[Check]:
    systems = {
        table.name: table.sink.system
        for table in plan.tables
        if table.sink is not None and table.sink.system is not None
    }
    yield versions.packages(versions.required_packages(), versions.installed_packages())
    yield versions.java()
    yield from versions.jars(["spark", *dict.fromkeys(jars for system in systems.values() for jars in system.jars)])
    file = project.root / FILE
    document = _parse_document(file)
    if document is None:
        yield CheckSubject("secrets.plain").unknown(f"{file} cannot be read")
    else:
        readable_by_all = bool(file.stat().st_mode & stat.S_IROTH)
        yield security.plain(list(security.in_clear(document)), readable=readable_by_all)
    clusters = [cluster_plan(None, project.kafka, project.root)] if project.kafka is not None else []
    clusters += [cluster_plan(name, cluster, project.root) for name, cluster in project.clusters.items()]
    keys = [Path(cluster.key_file) for cluster in clusters if cluster.key_file]
    referenced_files = security.named_files(document, project.root) if document is not None else []
    yield from security.files([*keys, *referenced_files], _project_files(plan))
    for cluster in clusters:
        yield security.kafka(cluster)
    for name, system in systems.items():
        if system.address is not None:
            yield security.target(name, system)


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


# What a table's own files show.


@dataclass(frozen=True)
class TableSnapshot:
    """Read once, without a JVM and without a broker. What could not be read is None; `unknown` maps the name of the
    missing part to the reason."""

    table: TablePlan
    status: Status
    entry: Entry | None = None
    recent_commits: RecentCommits = field(default_factory=table_log.RecentCommits)
    pause: Pause | None = None
    layout: StoredLayout | None = None
    daily_growth: int | None = None
    """Bytes by which the table and its quarantine grew in the last day."""
    upstream_logs: tuple[UpstreamLog, ...] = ()
    upstreams: tuple[UpstreamFacts, ...] = ()
    rejected: Rejected | None = None
    rescued: Rescued | None = None
    unknown: dict[str, str] = field(default_factory=dict)


def read_snapshot(plan: Plan, table: TablePlan, store: Store, now_ms: float) -> TableSnapshot:
    """Never raises because of the table: not for a damaged log, a missing file or a store that refuses access."""
    unknown: dict[str, str] = {}

    def try_to(part: str, read_part: Callable[[], T]) -> T | None:
        try:
            return read_part()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # `deltalake` raises plain Exception; a panic in it is not even that
            unknown[part] = _reason(error)
            return None

    log = RecentLog(store, table.uri, table.name)
    status = try_to("status", lambda: status_without_broker(plan, [table], store)[0]) or Status(
        table.name, "unreadable", reason=unknown.get("status")
    )
    head = try_to("ledger", lambda: read_head(log))
    if head is None:
        return TableSnapshot(table, status, unknown=unknown)
    entry, commits = head.entry, table_log.COMMITS if plan.local else table_log.COMMITS_REMOTE
    recent_commits = try_to("commits", lambda: table_log.read_recent_commits(log, commits)) or table_log.RecentCommits()
    logs: list[UpstreamLog] = []
    if table.delta is not None:
        logs = try_to("upstream", lambda: retention.open_upstream_logs(table, entry, store)) or []
    upstreams = try_to("upstream", lambda: [retention.read_upstream_facts(opened, entry) for opened in logs])
    versions_with_rows = [batch.version for batch in recent_commits.recent if batch.rows]
    rescues_fields = table.stages is not None and table.stages.decode is not None and table.stages.decode.rescue
    rescued_rows = rejected_rows = None
    if table.may_reject:
        rejected_rows = try_to("quarantine", lambda: rejected.read_rejected(table, store, now_ms))
    if rescues_fields:
        rescued_rows = try_to("rescued", lambda: rejected.read_rescued(store, table.uri, versions_with_rows))
    return TableSnapshot(
        table=table,
        status=status,
        entry=entry,
        recent_commits=recent_commits,
        pause=try_to("pause", lambda: table_log.longest_pause(log)),
        layout=try_to("layout", lambda: table_log.read_layout(store, table.uri, log.newest())),
        daily_growth=try_to("daily", lambda: _daily_growth(table, store, now_ms)),
        upstream_logs=tuple(logs),
        upstreams=tuple(upstreams or ()),
        rejected=rejected_rows,
        rescued=rescued_rows,
        unknown=unknown,
    )


def _daily_growth(table: TablePlan, store: Store, now_ms: float) -> int | None:
    quarantine = quarantine_of(table.name, table.uri)
    growths = [
        _growth(RecentLog(store, uri, name), store, uri, now_ms)
        for uri, name in ((table.uri, table.name), (quarantine.uri, quarantine.table))
    ]
    known_growths = [growth for growth in growths if growth is not None]
    return sum(known_growths) if known_growths else None


def _growth(log: RecentLog, store: Store, uri: str, now_ms: float) -> int | None:
    """A table that is younger than a day grew by its whole size. None if its log no longer tells."""
    newest, day_ago = log.newest(), table_log.version_at(log, now_ms - rejected.DAY_MS)
    if newest < 0 or (day_ago is None and log.commit(0) is None):
        return None
    bytes_now = table_log.bytes_at(store, uri, newest)
    bytes_a_day_ago = table_log.bytes_at(store, uri, day_ago) if day_ago is not None else 0
    return None if bytes_now is None or bytes_a_day_ago is None else max(0, bytes_now - bytes_a_day_ago)


def _reason(error: BaseException) -> str:
    if isinstance(error, PenstockError):
        return error.message
    text = " ".join(str(error).split()) or type(error).__name__
    printable = "".join(letter for letter in text if letter.isprintable())
    return printable if len(printable) <= _MAX_LENGTH else f"{printable[:_MAX_LENGTH]}…"


# The checks of one table, from the snapshot of it and the answer of its cluster.


@dataclass(frozen=True)
class TableEvidence:
    """What the checks of a table are based on."""

    snapshot: TableSnapshot
    cluster_answer: ClusterAnswer | None
    """The answer of its cluster; None if it reads and writes no topic."""
    plan: Plan
    store: Store
    now_ms: float

    @property
    def alive(self) -> bool:
        return self.snapshot.status.state in ALIVE

    @cached_property
    def backlog(self) -> Backlog:
        """What the table has not read yet, whatever kind of source it has."""
        snapshot, answer, status = self.snapshot, self.cluster_answer, self.snapshot.status
        if snapshot.entry is None:
            return Backlog(None, unknown=f"the table is {status.state}")
        if (source := snapshot.table.topics) is not None:
            if answer is None or answer.offsets.problem:
                return Backlog(None, unknown=answer.offsets.problem if answer else "no broker was asked")
            lags = partition_lags(offsets_of(status), answer.offsets)
            return kafka_backlog(source, lags, answer.offsets, snapshot.recent_commits, timeout=topics.TIMEOUT)
        if snapshot.table.files is not None:
            return Backlog(status.lag, "file", status.lag_unknown)
        if "upstream" in snapshot.unknown:
            return Backlog(None, "commit", snapshot.unknown["upstream"])
        return retention.delta_backlog(snapshot.upstreams, snapshot.upstream_logs, snapshot.recent_commits)


def table_checks(evidence: TableEvidence) -> Iterator[Check]:
    for check in TABLE_CHECKS:
        yield from check(evidence)
    if evidence.snapshot.entry is not None:
        for check in LEDGER_CHECKS:
            yield from check(evidence)


def _ledger_checks(evidence: TableEvidence) -> Iterator[Check]:
    snapshot = evidence.snapshot
    if snapshot.entry is None and "ledger" in snapshot.unknown:
        yield CheckSubject("table.checkpoint", snapshot.table.name).unknown(snapshot.unknown["ledger"])


def _writer_checks(evidence: TableEvidence) -> Iterator[Check]:
    snapshot, plan, store = evidence.snapshot, evidence.plan, evidence.store

    def read_again() -> files.CheckpointState | None:
        try:
            head = read_head(RecentLog(store, snapshot.table.uri, snapshot.table.name))
        except PenstockError:
            return None
        return files.read_step(store, snapshot.table, head.entry) if head is not None else None

    recent_commits = snapshot.recent_commits
    yield files.checkpoint(snapshot.table, read_again, recent_commits, alive=evidence.alive, local=plan.local)
    yield rejected.foreign(snapshot.status, recent_commits)


def _silence_checks(evidence: TableEvidence) -> Iterator[Check]:
    snapshot, now_ms = evidence.snapshot, evidence.now_ms
    silence = _silence_evidence(snapshot, evidence.cluster_answer)
    yield rejected.silent(snapshot.status, silence, evidence.backlog, snapshot.recent_commits, snapshot.pause, now_ms)


def _kafka_checks(evidence: TableEvidence) -> Iterator[Check]:
    """A broker that is away is a finding of the project; here its checks are unknown."""
    snapshot, answer = evidence.snapshot, evidence.cluster_answer
    table, source, sends = snapshot.table, topics.topics_of(snapshot.table), snapshot.table.topics is None
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
        evidence.plan.parallelism,
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
    unread = [partition for partition in evidence.backlog.partitions if partition.topic in answer.retention]
    if not unread:  # its topics are gone, which kafka.topics says
        return
    deadline = _topic_deadline(evidence, source.address)
    yield retention.retention(deadline, unread, answer.retention, evidence.now_ms)
    yield from retention.compaction(deadline, unread, answer.retention, evidence.now_ms)


def _topic_deadline(evidence: TableEvidence, bootstrap: str) -> TopicDeadline:
    snapshot, trigger = evidence.snapshot, evidence.snapshot.table.trigger
    due = trigger.sla or trigger.seconds or 0.0
    deadline = "the SLA" if trigger.sla else "the trigger"
    return retention.TopicDeadline(
        table=snapshot.table.name,
        due=due,
        due_text=f"{deadline} of {span(due)}",
        lag_grows_because=_worse_reason(evidence),
        pause=snapshot.pause,
        bootstrap=bootstrap,
        merges=snapshot.table.write.merge is not None,
    )


def _worse_reason(evidence: TableEvidence) -> str:
    snapshot, backlog = evidence.snapshot, evidence.backlog
    if backlog.trend is not None and backlog.trend.grows:
        return "they become more"
    if evidence.alive:
        return ""
    pause = snapshot.pause.seconds if snapshot.pause is not None else 0.0
    is_resting = snapshot.status.state == "finished" and (backlog.age(evidence.now_ms) or 0.0) <= pause
    return "" if is_resting else "the table is not running"  # run by a scheduler, it pauses as it did before


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
    table = snapshot.table
    return rejected.SilenceEvidence(table.trigger, table.source.starting.kind, records_held, newest_ms)


def _upstream_checks(evidence: TableEvidence) -> Iterator[Check]:
    snapshot = evidence.snapshot
    for upstream in snapshot.upstreams:
        yield retention.delta_retention(snapshot.table.name, upstream, snapshot.pause, evidence.now_ms)
    if "upstream" in snapshot.unknown:
        yield CheckSubject("delta.retention", snapshot.table.name).unknown(snapshot.unknown["upstream"])


def _pace_checks(evidence: TableEvidence) -> Iterator[Check]:
    table, recent_commits = evidence.snapshot.table, evidence.snapshot.recent_commits
    runner = pace_checks.Runner(table.name, table.trigger, evidence.alive, table.source.batch_limit)
    if recent_commits.batches:
        yield pace_checks.batches(runner, recent_commits)
    yield from pace_checks.sla(runner, evidence.backlog, evidence.now_ms)
    yield pace_checks.check_trend(runner, evidence.backlog)


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


TableCheck = Callable[[TableEvidence], Iterable[Check]]
TABLE_CHECKS: tuple[TableCheck, ...] = (
    lambda evidence: [rejected.state(evidence.snapshot.status)],
    _kafka_checks,
    _ledger_checks,
)
LEDGER_CHECKS: tuple[TableCheck, ...] = (
    _writer_checks,
    _silence_checks,
    _upstream_checks,
    _pace_checks,
    _file_checks,
    _row_checks,
)
"""For tables that have a ledger. A new check is one function here, and its id in REASONS of check.py."""


# All checks, in one run.


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
    say(f"the logs of {len(tables)} tables")
    with ThreadPoolExecutor(1 if plan.local else 2 * _THREADS) as threads:
        snapshots = list(threads.map(lambda table: read_snapshot(plan, table, store, now_ms), tables))
    answers = _ask_clusters(snapshots, say)
    checks += [
        *_machine_checks(plan, snapshots),
        *_lake_checks(plan, store),
        *_cluster_checks(plan, snapshots, answers),
    ]
    say("what was not read yet")

    def check_table(snapshot: TableSnapshot) -> list[Check]:
        source = topics.topics_of(snapshot.table)
        answer = answers.get(request_key(source)) if source is not None else None
        return list(table_checks(TableEvidence(snapshot, answer, plan, store, now_ms)))

    with ThreadPoolExecutor(_THREADS) as threads:
        return [*checks, *(check for table_group in threads.map(check_table, snapshots) for check in table_group)]


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


def _ask_clusters(snapshots: Sequence[TableSnapshot], say: Say) -> dict[RequestKey, ClusterAnswer]:
    """Asks each cluster once, all at the same time: several that are away take no longer than one."""
    requests: dict[RequestKey, list[tuple[TopicsSource, TableSnapshot]]] = {}
    for snapshot in snapshots:
        if (source := topics.topics_of(snapshot.table)) is not None:
            requests.setdefault(request_key(source), []).append((source, snapshot))
    if not requests:
        return {}

    def ask(request: list[tuple[TopicsSource, TableSnapshot]]) -> ClusterAnswer:
        names = {name for source, _ in request for name in source.topics}
        names |= {partition.topic for _, snapshot in request for partition in _partitions_read(snapshot)}
        patterns = {source.pattern for source, _ in request if source.pattern is not None}
        return topics.ask_cluster(request[-1][0], names, patterns)

    addresses = {source.address for request in requests.values() for source, _ in request}
    say(f"asking Kafka at {', '.join(sorted(addresses))}")
    with ThreadPoolExecutor(_THREADS) as threads:
        return dict(zip(requests, threads.map(ask, requests.values()), strict=True))


def _machine_checks(plan: Plan, snapshots: Sequence[TableSnapshot]) -> Iterator[Check]:
    daily = [snapshot.daily_growth for snapshot in snapshots if snapshot.daily_growth is not None]
    temporary_folders = plan.conf.get("spark.local.dir", tempfile.gettempdir()).split(",")
    disks = [(machine.DiskPlace("temporary files", path), machine.disk(path)) for path in temporary_folders]
    if plan.local:
        lake = machine.DiskPlace("the lake", plan.lake, sum(daily) if daily else None)
        lake_disk = machine.disk(plan.lake)
        lake_device = lake_disk.device if lake_disk is not None else None
        disks = [(lake, lake_disk), *(pair for pair in disks if pair[1] is None or pair[1].device != lake_device)]
    for place, disk in disks:
        yield machine.disk_room(place, disk)
    if plan.master.startswith("local"):
        yield machine.driver_memory(plan.conf.get("spark.driver.memory", "1g"), machine.memory())


def _lake_checks(plan: Plan, store: Store) -> Iterator[Check]:
    mount = machine.mount_of(plan.lake, machine.mounts()) if plan.local else None
    yield machine.durable(plan.lake, mount, in_container=machine.in_container())
    yield from machine.locks(plan.lake, mount)
    try:
        yield files.leftovers(plan, store)
    except (PenstockError, OSError) as error:
        yield CheckSubject("lake.leftovers").unknown(str(error))


def _cluster_checks(
    plan: Plan, snapshots: Sequence[TableSnapshot], answers: dict[RequestKey, ClusterAnswer]
) -> Iterator[Check]:
    clusters: dict[str, list[tuple[str, TopicsSource]]] = {}  # cluster -> tables with what they read of it
    for snapshot in snapshots:
        if (source := topics.topics_of(snapshot.table)) is not None:
            clusters.setdefault(source.cluster_name, []).append((snapshot.table.name, source))
    all_answers = []
    for name, users in clusters.items():
        cluster_answers = [answers[request_key(source)] for _, source in users]
        problem = next((answer.offsets.problem for answer in cluster_answers if answer.offsets.problem), None)
        yield topics.check_broker(name, users[-1][1].address, problem, [table for table, _ in users])
        all_answers += cluster_answers
    yield from topics.consumers(
        plan.conf.get("spark.kafka.consumer.cache.capacity"),
        sum(len(_partitions_read(snapshot)) for snapshot in snapshots),
    )
    newest_records = {
        topic: machine.Newest(max(times.values()), topic in answer.retention and answer.retention[topic].by_broker)
        for answer in all_answers
        for topic, times in answer.newest_ms.items()
        if times
    }
    unknown = next(
        (reason for answer in all_answers if (reason := answer.offsets.problem or answer.newest_unknown)), None
    )
    newest_commits = {snapshot.table.name: snapshot.recent_commits.newest_ms for snapshot in snapshots}
    yield machine.skew(newest_commits, newest_records, time.time() * 1000, unknown)


def _partitions_read(snapshot: TableSnapshot) -> Sequence[PartitionLag]:
    """The partitions of topics that a table reads; empty for other sources."""
    return snapshot.status.partition_lags if snapshot.table.topics is not None else ()
