"""Whether a table keeps up: how much it has not read yet, since when, and whether that grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from penstock.doctor.check import CheckSubject, count, rate, span
from penstock.errors import PenstockError
from penstock.ledger.position import parse as parse_position
from penstock.sources.registry import open_client

if TYPE_CHECKING:
    from penstock.doctor.check import Check
    from penstock.doctor.table_log import RecentBatch, RecentCommits
    from penstock.ledger.position import Offsets
    from penstock.operations.broker import PartitionLag, TopicOffsets
    from penstock.plan.model import TriggerPlan
    from penstock.plan.sources import TopicsSource
    from penstock.sources.topics import LogClient

# The trend of a table: how much had arrived and how much had been read, at the times of a few of its batches.
#
# Measured right after a batch, not now: in the middle of a long trigger, records wait for the next batch anyway.


_NOISE = 20
"""A difference of less than 1/20 of what arrived means nothing: batches do not end at even times."""
_STOP_FACTOR, _MIN_STOP_MS = 10, 60_000
"""A gap longer than 10 times the usual time between two batches, and than a minute, was a stop, not a trigger."""


@dataclass(frozen=True)
class Point:
    """Offsets of topics, or versions of tables, summed over everything that the table reads."""

    time_ms: int
    source_end: int
    """The end of the source."""
    position: int
    """The position of the table."""

    @property
    def lag(self) -> int:
        return max(0, self.source_end - self.position)


@dataclass(frozen=True)
class Trend:
    """Oldest first; at least two."""

    points: tuple[Point, ...]
    batch: int = 1
    """How much arrives while two batches run: so much may be left over after any batch."""

    @property
    def seconds(self) -> float:
        return max(0.001, (self.points[-1].time_ms - self.points[0].time_ms) / 1000)

    @property
    def arrival_rate(self) -> float:
        """Arrivals per second."""
        return (self.points[-1].source_end - self.points[0].source_end) / self.seconds

    @property
    def read_rate(self) -> float:
        return (self.points[-1].position - self.points[0].position) / self.seconds

    @property
    def grows(self) -> bool:
        """From the first to the last point, and at the end: a table catching up after a pause has more lag, too."""
        tolerance = max(self.batch, (self.points[-1].source_end - self.points[0].source_end) // _NOISE)
        last_lag = self.points[-1].lag
        return last_lag - self.points[0].lag > tolerance and last_lag > self.points[-2].lag


def sample_batches(batches: Sequence[RecentBatch]) -> list[RecentBatch]:
    """The first, middle and last batch since the last stop, oldest first, without repeats."""
    newest_first = _since_stop(sorted(batches, key=lambda batch: -batch.version))
    if len(newest_first) < 2:
        return []
    picked = [newest_first[-1], newest_first[len(newest_first) // 2], newest_first[0]]
    return [batch for index, batch in enumerate(picked) if batch not in picked[:index]]


def _since_stop(newest_first: Sequence[RecentBatch]) -> list[RecentBatch]:
    gaps = [later.committed_ms - earlier.committed_ms for later, earlier in pairwise(newest_first)]
    longest = max(_MIN_STOP_MS, _STOP_FACTOR * median(gaps)) if gaps else 0
    stop = next((index for index, gap in enumerate(gaps) if gap > longest), len(gaps))
    return list(newest_first[: stop + 1])


def trend_of(points: Sequence[Point], batch_seconds: float, least: int) -> Trend | None:
    """`batch_seconds` is how long a batch usually takes; growth by up to `least` never counts."""
    if len(points) < 2 or points[0].time_ms >= points[-1].time_ms:
        return None
    trend = Trend(tuple(points))
    return replace(trend, batch=max(least, round(2 * batch_seconds * trend.arrival_rate)))


# What a table has not read yet of its topics: how much, since when, and whether it grows.


MAX_FIRST_READS = 256
"""The oldest unread record is looked up in at most this many partitions of a table, those with the largest lag."""


@dataclass(frozen=True)
class PartitionBacklog:
    """What a table has not read of one partition."""

    topic: str
    partition: int
    position: int
    earliest: int
    end: int
    oldest_ms: int | None = None
    """The time of the first unread record; None if there is none, or if it is not known."""
    per_second: float | None = None
    """Records that arrive per second."""

    @property
    def lag(self) -> int:
        return max(0, self.end - self.position)

    @property
    def lost(self) -> int:
        """Records that were deleted before they were read."""
        return max(0, self.earliest - self.position)

    @property
    def key(self) -> tuple[str, int]:
        return self.topic, self.partition

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class Backlog:
    """What a table has not read yet, whatever kind of source it reads."""

    lag: int | None
    """None: unknown."""
    unit: str = "record"
    unknown: str | None = None
    oldest_ms: int | None = None
    """The time of the oldest unread record, commit or file."""
    trend: Trend | None = None
    partitions: tuple[PartitionBacklog, ...] = ()
    """Filled for a table that reads topics."""

    def age(self, now_ms: float) -> float | None:
        """Seconds for which the oldest unread one has waited."""
        return None if self.oldest_ms is None else max(0.0, (now_ms - self.oldest_ms) / 1000)


def kafka_backlog(
    source: TopicsSource,
    partition_lags: Sequence[PartitionLag],
    offsets: TopicOffsets,
    recent_commits: RecentCommits,
    *,
    timeout: float,
) -> Backlog:
    """Asks the broker for the first unread records, and for the ends of the topics at the times of earlier batches.
    What it does not answer is None."""
    partitions = unread_of(partition_lags, offsets)
    missing_topics = sorted({partition_lag.topic for partition_lag in partition_lags if partition_lag.end is None})
    lag = sum(backlog.lag for backlog in partitions)
    if not lag:
        unknown = f"the broker does not know {', '.join(missing_topics)}" if missing_topics else None
        return Backlog(None if missing_topics else 0, unknown=unknown, partitions=partitions)
    most_behind = sorted((backlog for backlog in partitions if backlog.lag), key=lambda backlog: -backlog.lag)
    first_unread = {backlog.key: max(backlog.position, backlog.earliest) for backlog in most_behind[:MAX_FIRST_READS]}
    client = open_client(source, timeout=timeout)
    times = client.first_times(source, first_unread)
    trend, rates = _trend_and_rates(client, offsets, partitions, recent_commits)
    dated_partitions = tuple(
        replace(backlog, oldest_ms=times.get(backlog.key), per_second=rates.get(backlog.key)) for backlog in partitions
    )
    return Backlog(lag, oldest_ms=min(times.values(), default=None), trend=trend, partitions=dated_partitions)


def unread_of(partition_lags: Sequence[PartitionLag], offsets: TopicOffsets) -> tuple[PartitionBacklog, ...]:
    """Only of partitions that the broker knows."""
    return tuple(
        PartitionBacklog(
            partition_lag.topic,
            partition_lag.partition,
            partition_lag.position,
            offsets.earliest[partition_lag.topic][partition_lag.partition],
            partition_lag.end,
        )
        for partition_lag in partition_lags
        if partition_lag.end is not None
    )


def _trend_and_rates(
    client: LogClient, offsets: TopicOffsets, partitions: Sequence[PartitionBacklog], recent_commits: RecentCommits
) -> tuple[Trend | None, dict[tuple[str, int], float]]:
    batches = sample_batches(recent_commits.recent)
    topics = {backlog.topic: offsets.topics[backlog.topic] for backlog in partitions}
    try:
        ends = [client.at_time(topics, batch.committed_ms) for batch in batches]
    except PenstockError:
        return None, {}
    keys = [backlog.key for backlog in partitions]
    points = [point(batch, keys, batch_ends) for batch, batch_ends in zip(batches, ends, strict=True)]
    trend = trend_of(points, recent_commits.usual_seconds or 0.0, 1)
    if trend is None:
        return None, {}
    arrivals = {(t, p): max(0, ends[-1][t][p] - ends[0][t][p]) for t, p in keys}
    return trend, {key: number / trend.seconds for key, number in arrivals.items()}


def point(batch: RecentBatch, keys: Sequence[tuple[str, int]], ends: Offsets) -> Point:
    """`ends` are the ends of the topics when the batch was committed. A partition that the table did not know yet
    counts from 0."""
    position: Offsets = {}
    for source in batch.after:
        position |= parse_position(source)
    # Per partition: one that is ahead of the times of its records does not make up for one that is behind.
    pairs = [(ends[t][p], min(ends[t][p], position.get(t, {}).get(p, 0))) for t, p in keys]
    return Point(batch.committed_ms, sum(end for end, _ in pairs), sum(read for _, read in pairs))


# Does the table keep up with its trigger, with its SLA, with what arrives?


_LATE_SHARE = 2 / 3
"""Share of the SLA beyond which there is no room for another late batch."""

_MIN_BATCHES = 5
"""The number of batches from which their median means something."""


@dataclass(frozen=True)
class Runner:
    """How a table is run."""

    table: str
    trigger: TriggerPlan
    alive: bool
    batch_limit: str = ""
    """The limit of its batches as the project file writes it; empty if there is none."""


def batches(runner: Runner, recent_commits: RecentCommits) -> Check:
    """How long batches take, compared with the trigger."""
    check = CheckSubject("pace.batches", runner.table)
    usual_seconds = recent_commits.usual_seconds
    if usual_seconds is None:
        return check.unknown("no batch is among the last commits")
    longest_seconds = max(batch.seconds for batch in recent_commits.recent)
    batch_count = len(recent_commits.recent)
    text = f"a batch takes {span(usual_seconds)}, the longest of the last {batch_count} took {span(longest_seconds)}"
    trigger = runner.trigger
    if batch_count < _MIN_BATCHES:
        return check.ok(f"{text}: too few to judge, the first ones of a process are slow")
    if trigger.kind != "interval" or not trigger.seconds:
        return check.ok(f"{text}; the trigger is {trigger.kind}")
    if trigger.sla is not None and usual_seconds > trigger.sla / 3:
        return check.warn(
            f"{text}; a third of the SLA is {span(trigger.sla / 3)}: one late batch and the data is too old",
            _speed_up(runner),
        )
    if usual_seconds > trigger.seconds:
        return check.warn(
            f"{text}; the trigger is {span(trigger.seconds)}, so they run back to back",
            f"{_speed_up(runner)}; or write trigger: {_trigger_text(2 * usual_seconds)}, which makes fewer, larger "
            "batches",
        )
    return check.ok(f"{text}; the trigger is {span(trigger.seconds)}")


def sla(runner: Runner, backlog: Backlog, now_ms: float) -> list[Check]:
    """Empty for a table without an SLA."""
    allowed = runner.trigger.sla
    if allowed is None:
        return []
    check = CheckSubject("pace.sla", runner.table)
    if backlog.lag is None:
        return [check.unknown(backlog.unknown or "the lag is not known")]
    age = backlog.age(now_ms)
    if backlog.lag and age is None:
        return [check.unknown(f"{count(backlog.lag, backlog.unit)} wait, and the age of the oldest is not known")]
    text = f"the oldest unread {backlog.unit} is {span(age)} old" if age is not None else "all is read"
    text += f"; the SLA is {span(allowed)}"
    fix = _speed_up(runner) if runner.alive else f"`penstock run {runner.table}`: it is not running"
    if age is not None and age > allowed:
        return [check.red(text, fix)]
    if age is not None and age > _LATE_SHARE * allowed:
        return [check.warn(text, fix)]
    return [check.ok(text)]


def check_trend(runner: Runner, backlog: Backlog) -> Check:
    """Rate in against rate out, over the last batches; for a table that is not running there is nothing to compare."""
    check = CheckSubject("pace.behind", runner.table)
    if backlog.lag is None:
        return check.unknown(backlog.unknown or "the lag is not known")
    units = f"{backlog.unit}s"
    lag_text = f"{count(backlog.lag, backlog.unit)} behind"
    trend = backlog.trend
    if not backlog.lag or not runner.alive:
        return check.ok(lag_text if runner.alive else f"{lag_text}; it is not running")
    if trend is None:
        return check.ok(f"{lag_text}; too few batches to say more")
    first, last = trend.points[0], trend.points[-1]
    text = (
        f"{lag_text}: {rate(trend.arrival_rate)} {units} came and {rate(trend.read_rate)} were read over the last "
        f"{span(trend.seconds)}"
    )
    if trend.grows:
        return check.warn(
            f"{text}; after a batch {count(first.lag, backlog.unit)} were left then, and now {last.lag:,}",
            _speed_up(runner) + (f"; raise {runner.batch_limit} if batches are full" if runner.batch_limit else ""),
        )
    if trend.read_rate > trend.arrival_rate and last.lag > 1:
        return check.ok(f"{text}: caught up in about {span(last.lag / (trend.read_rate - trend.arrival_rate))}")
    return check.ok(text)


def _speed_up(runner: Runner) -> str:
    return f"give Spark more cores (spark: {{master: …}}), or run {runner.table} in a process of its own"


def _trigger_text(seconds: float) -> str:
    return f"{max(1, round(seconds / 60))}m" if seconds >= 90 else f"{max(1, round(seconds))}s"
