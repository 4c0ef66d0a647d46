"""How long until Kafka, or an upstream table, deletes what was not read yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.doctor.backlog import Backlog, Point, sample_batches, trend_of
from penstock.doctor.check import LEVELS, CheckSubject, count, listed, rate, size, span
from penstock.doctor.table_log import interval_seconds, oldest_version, read_layout, version_at
from penstock.ledger.delta_log import Origin, RecentLog
from penstock.ledger.entry import stream_tables
from penstock.ledger.position import parse_version
from penstock.plan.sources import DeltaSource
from penstock.storage.stores import source_store

if TYPE_CHECKING:
    from penstock.doctor.backlog import PartitionBacklog
    from penstock.doctor.check import Check
    from penstock.doctor.table_log import Pause, RecentCommits
    from penstock.doctor.topics import TopicRetention
    from penstock.ledger.delta_log import Commit
    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Version
    from penstock.plan.model import TablePlan
    from penstock.storage.stores import Store

HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True)
class TopicDeadline:
    """The properties of a table that decide how long it may take to read something."""

    table: str
    due: float = 0.0
    """Seconds within which what arrives now has to be read: its trigger, or its SLA."""
    due_text: str = ""
    lag_grows_because: str = ""
    """Why waiting will not help: its lag grows, or nobody runs it. Empty if it keeps up."""
    pause: Pause | None = None
    bootstrap: str = ""
    """The bootstrap servers of its cluster."""
    merges: bool = False
    """It is a merged table: only the newest record of a key counts."""


def retention(
    deadline: TopicDeadline, unread: Sequence[PartitionBacklog], settings: Mapping[str, TopicRetention], now_ms: float
) -> Check:
    """`settings` has every topic of `unread`."""
    check = CheckSubject("kafka.retention", deadline.table)
    lost_from = [partition for partition in unread if partition.lost]
    if lost_from:
        lost_records = sum(partition.lost for partition in lost_from)
        return check.red(
            f"{count(lost_records, 'offset')} of {listed(partition.name for partition in lost_from)} were deleted "
            "before they were read",
            f"`penstock checkpoints reset {deadline.table} --to ledger` accepts the loss and continues; keep the topic "
            "longer (retention.ms) so that it does not come again",
        )
    limited = [partition for partition in unread if settings[partition.topic].retention_ms is not None]
    behind = [partition for partition in limited if partition.lag]
    sized = [partition for partition in unread if settings[partition.topic].retention_bytes is not None]
    checks = [_check_waiting(check, deadline, behind, settings, now_ms)] if behind else []
    checks += [_check_arriving(check, deadline, limited, settings)] if limited else []
    checks += [_check_size_limit(check, deadline, sized, settings)] if sized else []
    if not checks:
        return check.ok(
            f"the topics are kept for ever; {count(sum(partition.lag for partition in unread), 'record')} not read yet"
        )
    return min(checks, key=lambda candidate: LEVELS.index(candidate.level))


def _check_waiting(
    check: CheckSubject,
    deadline: TopicDeadline,
    behind: list[PartitionBacklog],
    settings: Mapping[str, TopicRetention],
    now_ms: float,
) -> Check:
    """Records wait to be read: the oldest of them is deleted first."""
    kept_seconds = {partition: (settings[partition.topic].retention_ms or 0) / 1000 for partition in behind}
    ages = {partition: (now_ms - partition.oldest_ms) / 1000 for partition in behind if partition.oldest_ms is not None}
    unread_records = sum(partition.lag for partition in behind)
    if not ages:
        return check.unknown(
            f"{count(unread_records, 'record')} not read yet, kept for {span(min(kept_seconds.values()))}; the broker "
            "did not give the first of them, so its age is not known",
        )
    # A segment is deleted when its newest record is too old, so this is the earliest time.
    partition = min(ages, key=lambda partition: kept_seconds[partition] - ages[partition])
    age, keeps = ages[partition], kept_seconds[partition]
    seconds_left = keeps - age
    worse_text = f", and {deadline.lag_grows_because}" if deadline.lag_grows_because else ""
    text = (
        f"{count(unread_records, 'record')} not read yet{worse_text}; the oldest, in {partition.name}, is {span(age)} "
        f"old and kept for {span(keeps)}: "
    )
    keep_longer = _set_topic_config(deadline, partition.topic, "retention.ms", max(7 * DAY, 2 * keeps))
    run_it = f"`penstock run {deadline.table}` reads them; else keep the topic longer: {keep_longer}"
    if seconds_left <= 0:
        return check.red(f"{text}Kafka may delete it at any moment", run_it)
    text += f"at the earliest in {span(seconds_left)} it is deleted"
    if seconds_left < deadline.due:
        return check.red(f"{text}, before {deadline.due_text}", run_it)
    if seconds_left < HOUR and deadline.lag_grows_because:
        return check.red(text, run_it)
    if seconds_left < min(DAY, keeps / 2) and deadline.lag_grows_because:
        return check.warn(text, run_it)
    if len(ages) < len(behind):
        return check.note(f"{text}; of {len(behind) - len(ages)} of {len(behind)} partitions it is not known")
    return check.ok(text)


def _check_arriving(
    check: CheckSubject,
    deadline: TopicDeadline,
    limited: list[PartitionBacklog],
    settings: Mapping[str, TopicRetention],
) -> Check:
    """Records that arrive from now on are kept for the full retention time."""
    shortest = min(limited, key=lambda partition: settings[partition.topic].retention_ms or 0)
    keeps = (settings[shortest.topic].retention_ms or 0) / 1000
    text = f"{shortest.topic} keeps a record for {span(keeps)}"
    enough = max(7 * DAY, 2 * (deadline.pause.seconds if deadline.pause else 0), 2 * deadline.due)
    keep_longer = _set_topic_config(deadline, shortest.topic, "retention.ms", enough)
    if keeps < deadline.due:
        return check.red(f"{text}, less than {deadline.due_text}: records go between two batches", keep_longer)
    if deadline.pause is not None and keeps < deadline.pause.seconds:
        return check.warn(
            f"{text}, less than the longest pause of the table, {span(deadline.pause.seconds)} (before version "
            f"{deadline.pause.before_version}): such a pause would lose records",
            keep_longer,
        )
    if keeps < DAY:
        return check.note(f"{text}: so long the table may be down", keep_longer)
    return check.ok(text)


def _check_size_limit(
    check: CheckSubject, deadline: TopicDeadline, sized: list[PartitionBacklog], settings: Mapping[str, TopicRetention]
) -> Check:
    """The broker does not tell when a partition is full; the records it holds now did fit."""
    limit = min(settings[partition.topic].retention_bytes or 0 for partition in sized)
    text = f"the topics keep {size(limit)} a partition"
    rated_partitions = [
        (partition.position - partition.earliest, partition.per_second, partition)
        for partition in sized
        if partition.per_second
    ]
    if not rated_partitions:
        unread_records = sum(partition.lag for partition in sized)
        return check.note(
            f"{text}, however old; {count(unread_records, 'record')} not read yet. How long that lasts depends on what "
            "comes"
        )
    records_before, per_second, partition = min(
        rated_partitions, key=lambda candidate: candidate[0] / (candidate[1] or 1)
    )
    seconds_left = records_before / (per_second or 1)
    text += (
        f"; before the table's position in {partition.name} lie {count(records_before, 'record')}, "
        f"{rate(per_second or 0)} come: if the partition is full, that is {span(seconds_left)}"
    )
    if partition.lag and (seconds_left < deadline.due or (seconds_left < HOUR and deadline.lag_grows_because)):
        return check.red(text, f"`penstock run {deadline.table}`; or give the topic more room (retention.bytes)")
    return check.note(text)


def compaction(
    deadline: TopicDeadline, unread: Sequence[PartitionBacklog], settings: Mapping[str, TopicRetention], now_ms: float
) -> list[Check]:
    """Empty if no topic is compacted."""
    check = CheckSubject("kafka.compaction", deadline.table)
    compacted = [partition for partition in unread if settings[partition.topic].compacts]
    if not compacted:
        return []
    names = listed(sorted({partition.topic for partition in compacted}))
    late = [
        ((now_ms - partition.oldest_ms) / 1000, tombstones_ms / 1000, partition.topic)
        for partition in compacted
        if partition.lag
        and partition.oldest_ms is not None
        and (tombstones_ms := settings[partition.topic].tombstones_ms) is not None
        and now_ms - partition.oldest_ms > tombstones_ms
    ]
    if late:
        oldest_age, tombstones, topic = max(late)
        keep_longer = _set_topic_config(deadline, topic, "delete.retention.ms", 7 * DAY)
        return [
            check.warn(
                f"{names}: the oldest unread record is {span(oldest_age)} old, and that a key was deleted is kept for "
                f"{span(tombstones)}: deletes may be gone before they were read",
                f"read them in time, or keep them longer: {keep_longer}",
            )
        ]
    if deadline.merges:
        return [check.ok(f"{names}: compacted; the table keeps the newest of each key too")]
    return [
        check.note(
            f"{names}: compacted, so of several records with one key that were not read yet only the newest may come",
            "if every record counts, let the topic delete by age alone (cleanup.policy=delete)",
        )
    ]


def _set_topic_config(deadline: TopicDeadline, topic: str, name: str, seconds: float) -> str:
    change = f"{name}={round(seconds * 1000)}"
    return f"`kafka-configs.sh --bootstrap-server {deadline.bootstrap} --alter --topic {topic} --add-config {change}`"


# The upstream tables of a table: how far behind it is, and how long they keep what it has not read.


_MAX_COMMITS_READ = 500
"""Commits that are searched for the first one that brings rows: compaction brings none."""
_MIN_LAG = 10
"""One batch may read that many commits together, so a lag of that size means nothing."""


@dataclass(frozen=True)
class UpstreamFacts:
    name: str
    lag: int = 0
    """Commits that were not read yet."""
    oldest_ms: int | None = None
    """Time of the first unread commit that brings rows; None if none does."""
    lost: tuple[int, int] | None = None
    """First and last version that were not read and that the log no longer has."""
    log_kept: float | None = None
    """Seconds for which the log is kept; None: for ever, or not known."""
    files_kept: float | None = None
    unknown: str | None = None


@dataclass(frozen=True)
class UpstreamLog:
    """One upstream table, with its log open."""

    source: DeltaSource
    log: RecentLog
    store: Store
    index: int
    """Index of its position in a ledger entry."""


def open_upstream_logs(table: TablePlan, entry: Entry, store: Store) -> list[UpstreamLog]:
    """Raises if the store of a table outside the project cannot be opened."""
    logs = []
    by_name = {source.label: source for source in table.delta_sources}
    streams = stream_tables(entry) or tuple(by_name)
    for index, name in enumerate(streams):
        source = by_name.get(name)
        if source is not None and index < len(entry.after):
            upstream_store = source_store(source, store)
            logs.append(UpstreamLog(source, RecentLog(upstream_store, source.uri, name), upstream_store, index))
    return logs


def read_upstream_facts(upstream_log: UpstreamLog, entry: Entry) -> UpstreamFacts:
    position, log, name = parse_version(entry.after[upstream_log.index]), upstream_log.log, upstream_log.log.table
    newest, first = log.newest(), oldest_version(upstream_log.log)
    if newest < 0:
        return UpstreamFacts(name, unknown=f"{name} does not exist")
    properties = read_layout(upstream_log.store, upstream_log.source.uri, newest).properties
    cleans_log = properties.get("delta.enableExpiredLogCleanup", "true").lower() == "true"
    log_kept = interval_seconds(properties, "delta.logRetentionDuration", "interval 30 days")
    files_kept = interval_seconds(properties, "delta.deletedFileRetentionDuration", "interval 1 week")
    unread = _first_unread(position, upstream_log.source)
    lost = (unread, first - 1) if unread < first and not position.snapshot else None
    return UpstreamFacts(
        name=name,
        lag=max(0, newest + 1 - unread),
        oldest_ms=_oldest_ms(upstream_log, position, max(unread, first), newest),
        lost=lost,
        log_kept=log_kept if cleans_log else None,
        files_kept=files_kept,
        unknown=None if log_kept is not None and files_kept is not None else f"the retention of {name} is not a time",
    )


def delta_backlog(
    upstream_facts: Iterable[UpstreamFacts], upstream_logs: Iterable[UpstreamLog], recent_commits: RecentCommits
) -> Backlog:
    upstreams = list(upstream_facts)
    unknown = next(
        (
            upstream.unknown
            for upstream in upstreams
            if upstream.unknown and not upstream.lag and upstream.oldest_ms is None
        ),
        None,
    )
    lag = sum(upstream.lag for upstream in upstreams if upstream.oldest_ms is not None)
    times = [upstream.oldest_ms for upstream in upstreams if upstream.oldest_ms is not None]
    points = list(_trend_points(list(upstream_logs), recent_commits)) if lag else []
    return Backlog(
        lag=None if unknown else lag,
        unit="commit",
        unknown=unknown,
        oldest_ms=min(times, default=None),
        trend=trend_of(points, recent_commits.usual_seconds or 0.0, _MIN_LAG),
    )


def _trend_points(upstream_logs: list[UpstreamLog], recent_commits: RecentCommits) -> Iterator[Point]:
    for batch in sample_batches(recent_commits.recent):
        end = position = 0
        for upstream_log in upstream_logs:
            newest = version_at(upstream_log.log, batch.committed_ms)
            if newest is None or upstream_log.index >= len(batch.after):
                return
            end += newest + 1
            position += min(
                newest + 1, _first_unread(parse_version(batch.after[upstream_log.index]), upstream_log.source)
            )
        yield Point(batch.committed_ms, end, position)


def _first_unread(position: Version, source: DeltaSource) -> int:
    """The changes of a version are read all at once, so a position within a version counts as its end."""
    return position.version + 1 if source.changes and not position.whole and not position.snapshot else position.version


def _oldest_ms(upstream_log: UpstreamLog, position: Version, first: int, newest: int) -> int | None:
    for version in range(first, min(newest, first + _MAX_COMMITS_READ) + 1):
        commit = upstream_log.log.commit(version)
        if commit is not None and (position.snapshot or _brings_rows(commit, upstream_log.source)):
            return commit.timestamp_ms
    return None


def _brings_rows(commit: Commit, source: DeltaSource) -> bool:
    """Whether a reader gets rows from this commit."""
    if commit.origin is Origin.MAINTENANCE:
        return False
    follows = source.changes or source.options.get("ignoreChanges") == "true"
    return bool(commit.files_added or commit.files_removed) and (follows or not commit.changes)


def delta_retention(reader: str, upstream: UpstreamFacts, pause: Pause | None, now_ms: float) -> Check:
    """`pause` is the longest pause of the reader."""
    check = CheckSubject("delta.retention", reader)
    name = upstream.name
    if upstream.lost is not None:
        first, last = upstream.lost
        return check.red(
            f"versions {first} to {last} of {name} were not read, and its log no longer has them",
            f"`penstock checkpoints reset {reader} --to earliest|latest|source:N` decides where to continue",
        )
    if upstream.unknown:
        return check.unknown(upstream.unknown)
    log_seconds, files_seconds = upstream.log_kept, upstream.files_kept
    log_text = "for ever" if log_seconds is None else f"for {span(log_seconds)}"
    kept_text = f"{name} keeps its log {log_text}, replaced files for {span(files_seconds or 0)}"
    age = 0.0 if upstream.oldest_ms is None else max(0.0, (now_ms - upstream.oldest_ms) / 1000)
    unread_text = f"{count(upstream.lag, 'commit')} not read yet, the oldest {span(age)} old" if age else "all is read"
    run_it = f"`penstock run {reader}` reads them"
    shortest = min(seconds for seconds in (log_seconds, files_seconds) if seconds is not None)
    keep_longer = _raise_table_retention(name, max(2 * shortest, 2 * (pause.seconds if pause else 0.0)))
    if log_seconds is not None and age > log_seconds:
        return check.red(
            f"{unread_text}; {kept_text}: the next clean-up of the log takes them", f"{run_it}; or {keep_longer}"
        )
    if files_seconds is not None and age > files_seconds:
        return check.warn(
            f"{unread_text}; {kept_text}: VACUUM may delete files that compaction replaced before they are read",
            f"{run_it}, before the next VACUUM; or {keep_longer}",
        )
    if age > shortest / 2:
        return check.warn(f"{unread_text}; {kept_text}", f"{run_it}; or {keep_longer}")
    if pause is not None and pause.seconds > shortest:
        return check.warn(
            f"{kept_text}, less than the longest pause of {reader}, {span(pause.seconds)} (before version "
            f"{pause.before_version}): such a pause could lose rows",
            keep_longer,
        )
    return check.ok(f"{unread_text}; {kept_text}")


def _raise_table_retention(table: str, seconds: float) -> str:
    days = max(1, round(seconds / 86_400))
    properties = f"{{delta.logRetentionDuration: interval {max(30, days)} days, "
    properties += f"delta.deletedFileRetentionDuration: interval {days} days}}"
    return (
        f"keep it longer: `write: {{properties: {properties}}}` of {table} for a new table, ALTER TABLE … SET "
        "TBLPROPERTIES for one that is there"
    )
