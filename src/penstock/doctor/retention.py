"""How long until Kafka, or a table upstream, deletes what was not read yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.doctor.backlog import Backlog, Point, chosen, trend_of
from penstock.doctor.check import LEVELS, CheckSubject, count, listed, rate, size, span
from penstock.doctor.table_log import kept_for, layout, oldest, version_at
from penstock.ledger.delta_log import Origin, RecentLog
from penstock.ledger.entry import named_streams
from penstock.ledger.position import parse_version
from penstock.plan.sources import DeltaSource
from penstock.storage.stores import store_of

if TYPE_CHECKING:
    from penstock.doctor.backlog import PartitionBacklog
    from penstock.doctor.check import Check
    from penstock.doctor.table_log import Lately, Pause
    from penstock.doctor.topics import Kept
    from penstock.ledger.delta_log import Commit
    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Version
    from penstock.plan.model import TablePlan
    from penstock.storage.stores import Store

# How long until Kafka deletes what was not read yet.


HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True)
class TopicReader:
    """What of a table decides how long it may take to read something."""

    table: str
    due: float = 0.0
    """Seconds until what comes now has to be read: its trigger, or its SLA."""
    due_said: str = ""
    worse: str = ""
    """Why time alone will not help: its lag grows, or nobody runs it. Empty: it keeps up."""
    pause: Pause | None = None
    bootstrap: str = ""
    """Of its cluster."""
    merges: bool = False
    """Only the newest record of a key counts."""


def retention(
    reader: TopicReader, unread: Sequence[PartitionBacklog], kept: Mapping[str, Kept], now_ms: float
) -> Check:
    """`kept` has every topic of `unread`."""
    about = CheckSubject("kafka.retention", reader.table)
    lost = [one for one in unread if one.lost]
    if lost:
        number = sum(one.lost for one in lost)
        return about.red(
            f"{count(number, 'offset')} of {listed(one.name for one in lost)} were deleted before they were read",
            f"`penstock checkpoints reset {reader.table} --to ledger` accepts the loss and goes on; keep the topic "
            "longer (retention.ms) so that it does not come again",
        )
    limited = [one for one in unread if kept[one.topic].retention_ms is not None]
    behind = [one for one in limited if one.lag]
    sized = [one for one in unread if kept[one.topic].retention_bytes is not None]
    found = [_left(about, reader, behind, kept, now_ms)] if behind else []
    found += [_next(about, reader, limited, kept)] if limited else []
    found += [_by_size(about, reader, sized, kept)] if sized else []
    if not found:
        return about.ok(f"the topics are kept for ever; {count(sum(one.lag for one in unread), 'record')} not read yet")
    return min(found, key=lambda check: LEVELS.index(check.level))


def _left(
    about: CheckSubject, reader: TopicReader, behind: list[PartitionBacklog], kept: Mapping[str, Kept], now_ms: float
) -> Check:
    """Records wait: the oldest of them goes first."""
    dated = [(_seconds_left(one, kept[one.topic], now_ms), one) for one in behind if one.oldest_ms is not None]
    waits = sum(one.lag for one in behind)
    if not dated:
        return about.unknown(
            f"{count(waits, 'record')} not read yet, kept for {_kept(behind, kept)}; the broker did not give the first "
            "of them, so its age is not known",
        )
    left, one = min(dated, key=lambda pair: pair[0])
    assert one.oldest_ms is not None
    age = (now_ms - one.oldest_ms) / 1000
    keeps = (kept[one.topic].retention_ms or 0) / 1000
    worse = f", and {reader.worse}" if reader.worse else ""
    said = (
        f"{count(waits, 'record')} not read yet{worse}; the oldest, in {one.name}, is {span(age)} old and kept for "
        f"{span(keeps)}: "
    )
    longer = _raise_topic_retention(reader, one.topic, max(7 * DAY, 2 * keeps))
    run = f"`penstock run {reader.table}` reads them; else keep the topic longer: {longer}"
    if left <= 0:
        return about.red(f"{said}Kafka may delete it at any moment", run)
    said += f"at the earliest in {span(left)} it is deleted"
    if left < reader.due:
        return about.red(f"{said}, before {reader.due_said}", run)
    if left < HOUR and reader.worse:
        return about.red(said, run)
    if left < min(DAY, keeps / 2) and reader.worse:
        return about.warn(said, run)
    if len(dated) < len(behind):
        return about.note(f"{said}; of {len(behind) - len(dated)} of {len(behind)} partitions it is not known")
    return about.ok(said)


def _next(about: CheckSubject, reader: TopicReader, limited: list[PartitionBacklog], kept: Mapping[str, Kept]) -> Check:
    """What comes next has the whole time."""
    one = min(limited, key=lambda unread: kept[unread.topic].retention_ms or 0)
    keeps = (kept[one.topic].retention_ms or 0) / 1000
    said = f"{one.topic} keeps a record for {span(keeps)}"
    longer = _raise_topic_retention(
        reader, one.topic, max(7 * DAY, 2 * (reader.pause.seconds if reader.pause else 0), 2 * reader.due)
    )
    if keeps < reader.due:
        return about.red(f"{said}, less than {reader.due_said}: records go between two batches", longer)
    if reader.pause is not None and keeps < reader.pause.seconds:
        return about.warn(
            f"{said}, less than the longest pause of the table, {span(reader.pause.seconds)} (before version "
            f"{reader.pause.before_version}): such a pause would lose records",
            longer,
        )
    if keeps < DAY:
        return about.note(f"{said}: so long the table may be down", longer)
    return about.ok(said)


def _by_size(
    about: CheckSubject, reader: TopicReader, sized: list[PartitionBacklog], kept: Mapping[str, Kept]
) -> Check:
    """How much a partition holds is not told by the broker; what it holds now was not too much."""
    limit = min(kept[one.topic].retention_bytes or 0 for one in sized)
    said = f"the topics keep {size(limit)} a partition"
    known = [(one.position - one.earliest, one.per_second, one) for one in sized if one.per_second]
    if not known:
        waits = sum(one.lag for one in sized)
        return about.note(
            f"{said}, however old; {count(waits, 'record')} not read yet. How long that lasts depends on what comes"
        )
    held, per_second, one = min(known, key=lambda each: each[0] / (each[1] or 1))
    left = held / (per_second or 1)
    said += (
        f"; before the table's position in {one.name} lie {count(held, 'record')}, {rate(per_second or 0)} come: if "
        f"the partition is full, that is {span(left)}"
    )
    if one.lag and (left < reader.due or (left < HOUR and reader.worse)):
        return about.red(said, f"`penstock run {reader.table}`; or give the topic more room (retention.bytes)")
    return about.note(said)


def compaction(
    reader: TopicReader, unread: Sequence[PartitionBacklog], kept: Mapping[str, Kept], now_ms: float
) -> list[Check]:
    """Nothing to say of topics that are not compacted."""
    about = CheckSubject("kafka.compaction", reader.table)
    compacted = [one for one in unread if kept[one.topic].compacts]
    if not compacted:
        return []
    names = listed(sorted({one.topic for one in compacted}))
    tombstones = min(kept[one.topic].tombstones_ms for one in compacted) / 1000
    ages = [(now_ms - one.oldest_ms) / 1000 for one in compacted if one.lag and one.oldest_ms is not None]
    late = max(ages, default=0.0)
    if late > tombstones:
        longer = _set(reader, compacted[0].topic, "delete.retention.ms", 7 * DAY)
        return [
            about.warn(
                f"{names}: the oldest unread record is {span(late)} old, and that a key was deleted is kept for "
                f"{span(tombstones)}: deletes may be gone before they were read",
                f"read them in time, or keep them longer: {longer}",
            )
        ]
    if reader.merges:
        return [about.ok(f"{names}: compacted; the table keeps the newest of each key too")]
    return [
        about.note(
            f"{names}: compacted, so of several records with one key that were not read yet only the newest may come",
            "if every record counts, let the topic delete by age alone (cleanup.policy=delete)",
        )
    ]


def _seconds_left(one: PartitionBacklog, kept: Kept, now_ms: float) -> float:
    """A segment goes when its youngest record is too old, so this is the earliest time."""
    assert one.oldest_ms is not None and kept.retention_ms is not None
    return (one.oldest_ms + kept.retention_ms - now_ms) / 1000


def _kept(unread: Sequence[PartitionBacklog], kept: Mapping[str, Kept]) -> str:
    return span(min(kept[one.topic].retention_ms or 0 for one in unread) / 1000)


def _raise_topic_retention(reader: TopicReader, topic: str, seconds: float) -> str:
    return _set(reader, topic, "retention.ms", seconds)


def _set(reader: TopicReader, topic: str, name: str, seconds: float) -> str:
    change = f"{name}={round(seconds * 1000)}"
    return f"`kafka-configs.sh --bootstrap-server {reader.bootstrap} --alter --topic {topic} --add-config {change}`"


# The tables that a table reads: how far behind it is, how long they keep what it has not read.


_MOST_LOOKS = 500
"""Commits that are looked through for the first that brings rows: compaction brings none."""

_FEW = 10
"""Commits that one batch reads along with another: to be so far behind means nothing."""


@dataclass(frozen=True)
class UpstreamFacts:
    name: str
    lag: int = 0
    """Commits that were not read."""
    oldest_ms: int | None = None
    """When the first of them was made that brings rows; None if none does."""
    lost: tuple[int, int] | None = None
    """Versions, from and up to, that were not read and that the log no longer has."""
    log_kept: float | None = None
    """Seconds; None: for ever, or not known."""
    files_kept: float | None = None
    unknown: str | None = None


@dataclass(frozen=True)
class UpstreamLog:
    """One table upstream, open to be looked at."""

    source: DeltaSource
    log: RecentLog
    store: Store
    index: int
    """Of its position in a ledger entry."""


def readings(table: TablePlan, entry: Entry, store: Store) -> list[UpstreamLog]:
    """Raises where the store of a table that is not the project's cannot be opened."""
    found = []
    by_name = {source.label: source for source in table.delta_sources}
    streams = named_streams(entry) or tuple(by_name)
    for index, name in enumerate(streams):
        one = by_name.get(name)
        if one is not None and index < len(entry.after):
            own = store_of(one, store)
            found.append(UpstreamLog(one, RecentLog(own, one.uri, name), own, index))
    return found


def upstream_of(reading: UpstreamLog, entry: Entry) -> UpstreamFacts:
    at, log, name = parse_version(entry.after[reading.index]), reading.log, reading.log.table
    newest, first = log.newest(), oldest(reading.log)
    if newest < 0:
        return UpstreamFacts(name, unknown=f"{name} does not exist")
    properties = layout(reading.store, reading.source.uri, newest).properties
    cleans = properties.get("delta.enableExpiredLogCleanup", "true").lower() == "true"
    log_kept = kept_for(properties, "delta.logRetentionDuration", "interval 30 days")
    files_kept = kept_for(properties, "delta.deletedFileRetentionDuration", "interval 1 week")
    unread = _first_unread(at, reading.source)
    lost = (unread, first - 1) if unread < first and not at.snapshot else None
    return UpstreamFacts(
        name=name,
        lag=max(0, newest + 1 - unread),
        oldest_ms=_oldest_ms(reading, at, max(unread, first), newest),
        lost=lost,
        log_kept=log_kept if cleans else None,
        files_kept=files_kept,
        unknown=None if log_kept is not None and files_kept is not None else f"the retention of {name} is not a time",
    )


def delta_backlog(found: Iterable[UpstreamFacts], open_readings: Iterable[UpstreamLog], recent: Lately) -> Backlog:
    upstreams = list(found)
    unknown = next((one.unknown for one in upstreams if one.unknown and not one.lag and one.oldest_ms is None), None)
    lag = sum(one.lag for one in upstreams if one.oldest_ms is not None)
    times = [one.oldest_ms for one in upstreams if one.oldest_ms is not None]
    points = list(_points(list(open_readings), recent)) if lag else []
    return Backlog(
        lag=None if unknown else lag,
        unit="commit",
        unknown=unknown,
        oldest_ms=min(times, default=None),
        trend=trend_of(points, recent.usual_seconds or 0.0, _FEW),
    )


def _points(read: list[UpstreamLog], recent: Lately) -> Iterator[Point]:
    for batch in chosen(recent.recent):
        came = at = 0
        for reading in read:
            newest = version_at(reading.log, batch.committed_ms)
            if newest is None or reading.index >= len(batch.after):
                return
            came += newest + 1
            at += min(newest + 1, _first_unread(parse_version(batch.after[reading.index]), reading.source))
        yield Point(batch.committed_ms, came, at)


def _first_unread(at: Version, source: DeltaSource) -> int:
    """The changes of a version are read all at once, so a position within one is at its end."""
    return at.version + 1 if source.changes and not at.whole and not at.snapshot else at.version


def _oldest_ms(reading: UpstreamLog, at: Version, first: int, newest: int) -> int | None:
    for version in range(first, min(newest, first + _MOST_LOOKS) + 1):
        commit = reading.log.commit(version)
        if commit is not None and (at.snapshot or _brings(commit, reading.source)):
            return commit.timestamp_ms
    return None


def _brings(commit: Commit, source: DeltaSource) -> bool:
    """Whether a reader gets rows from it."""
    if commit.origin is Origin.MAINTENANCE:
        return False
    follows = source.changes or source.options.get("ignoreChanges") == "true"
    return bool(commit.files_added or commit.files_removed) and (follows or not commit.changes)


# How long the tables upstream keep what was not read yet.


_HALF = 0.5


def delta_retention(reader: str, upstream: UpstreamFacts, pause: Pause | None, now_ms: float) -> Check:
    """`pause` is the longest of the reader."""
    about = CheckSubject("delta.retention", reader)
    name = upstream.name
    if upstream.lost is not None:
        first, last = upstream.lost
        return about.red(
            f"versions {first} to {last} of {name} were not read, and its log no longer has them",
            f"`penstock checkpoints reset {reader} --to earliest|latest|source:N` decides where to go on",
        )
    if upstream.unknown:
        return about.unknown(upstream.unknown)
    log, files = upstream.log_kept, upstream.files_kept
    log_said = "for ever" if log is None else f"for {span(log)}"
    kept = f"{name} keeps its log {log_said}, replaced files for {span(files or 0)}"
    age = 0.0 if upstream.oldest_ms is None else max(0.0, (now_ms - upstream.oldest_ms) / 1000)
    waits = f"{count(upstream.lag, 'commit')} not read yet, the oldest {span(age)} old" if age else "all is read"
    run = f"`penstock run {reader}` reads them"
    shortest = min(one for one in (log, files) if one is not None)
    longer = _raise_table_retention(name, max(2 * shortest, 2 * (pause.seconds if pause else 0.0)))
    if log is not None and age > log:
        return about.red(f"{waits}; {kept}: the next clean-up of the log takes them", f"{run}; or {longer}")
    if files is not None and age > files:
        return about.warn(
            f"{waits}; {kept}: VACUUM may delete files that compaction replaced before they are read",
            f"{run}, before the next VACUUM; or {longer}",
        )
    if age > _HALF * shortest:
        return about.warn(f"{waits}; {kept}", f"{run}; or {longer}")
    if pause is not None and pause.seconds > shortest:
        return about.warn(
            f"{kept}, less than the longest pause of {reader}, {span(pause.seconds)} (before version "
            f"{pause.before_version}): such a pause could lose rows",
            longer,
        )
    return about.ok(f"{waits}; {kept}")


def _raise_table_retention(table: str, seconds: float) -> str:
    days = max(1, round(seconds / 86_400))
    properties = f"{{delta.logRetentionDuration: interval {max(30, days)} days, "
    properties += f"delta.deletedFileRetentionDuration: interval {days} days}}"
    return (
        f"keep it longer: `write: {{properties: {properties}}}` of {table} for a new table, ALTER TABLE … SET "
        "TBLPROPERTIES for one that is there"
    )
