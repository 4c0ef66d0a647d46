"""Whether a table keeps up: what it has not read yet, since when, and whether it becomes more."""

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
    from penstock.doctor.table_log import Lately, RecentBatch
    from penstock.ledger.position import Offsets
    from penstock.operations.broker import PartitionLag, TopicOffsets
    from penstock.plan.model import TriggerPlan
    from penstock.plan.sources import TopicsSource
    from penstock.sources.topics import LogClient

# Whether a table keeps up: what had come and what had been read, at the times of a few of its batches.
#
# Right after a batch, not now: whoever looks in the middle of a long trigger sees what waits for the next one.


_CHANCE = 20
"""A part of what came, in which a difference means nothing: batches do not end at even times."""
_PAUSE, _LEAST_PAUSE = 10, 60_000
"""So many times the usual time between two batches, and so many ms, was no trigger but a stop."""


@dataclass(frozen=True)
class Point:
    """Offsets of topics, or versions of tables, added up over all that the table reads."""

    time_ms: int
    came: int
    """Where the source ended."""
    read: int
    """Where the table stood."""

    @property
    def lag(self) -> int:
        return max(0, self.came - self.read)


@dataclass(frozen=True)
class Trend:
    """Oldest first; at least two."""

    points: tuple[Point, ...]
    batch: int = 1
    """What comes while two batches run: so much may be left after any of them."""

    @property
    def seconds(self) -> float:
        return max(0.001, (self.points[-1].time_ms - self.points[0].time_ms) / 1000)

    @property
    def came(self) -> float:
        """Per second."""
        return (self.points[-1].came - self.points[0].came) / self.seconds

    @property
    def read(self) -> float:
        return (self.points[-1].read - self.points[0].read) / self.seconds

    @property
    def grows(self) -> bool:
        """From the first to the last, and to the end: who catches up after a pause has more lag than before it, too."""
        chance = max(self.batch, (self.points[-1].came - self.points[0].came) // _CHANCE)
        last = self.points[-1].lag
        return last - self.points[0].lag > chance and last > self.points[-2].lag


def chosen(batches: Sequence[RecentBatch]) -> list[RecentBatch]:
    """The first, the middle and the last batch since the last stop, oldest first, as far as they are different ones."""
    newest_first = _since_stop(sorted(batches, key=lambda batch: -batch.version))
    if len(newest_first) < 2:
        return []
    picked = [newest_first[-1], newest_first[len(newest_first) // 2], newest_first[0]]
    return [batch for index, batch in enumerate(picked) if batch not in picked[:index]]


def _since_stop(newest_first: Sequence[RecentBatch]) -> list[RecentBatch]:
    gaps = [later.committed_ms - earlier.committed_ms for later, earlier in pairwise(newest_first)]
    longest = max(_LEAST_PAUSE, _PAUSE * median(gaps)) if gaps else 0
    stop = next((index for index, gap in enumerate(gaps) if gap > longest), len(gaps))
    return list(newest_first[: stop + 1])


def trend_of(points: Sequence[Point], batch_seconds: float, least: int) -> Trend | None:
    """`batch_seconds` is what a batch usually takes; a lag of `least` is never one."""
    if len(points) < 2 or points[0].time_ms >= points[-1].time_ms:
        return None
    found = Trend(tuple(points))
    return replace(found, batch=max(least, round(2 * batch_seconds * found.came)))


# What a table has not read yet of its topics: how much, since when, and whether it becomes more.


MOST_PEEKED = 256
"""Partitions of a table whose oldest unread record is looked at: those with the most unread ones."""


@dataclass(frozen=True)
class PartitionBacklog:
    """One partition."""

    topic: str
    partition: int
    position: int
    earliest: int
    end: int
    oldest_ms: int | None = None
    """The time of the first unread record; None if there is none, or it is not known."""
    per_second: float | None = None
    """Records that come."""

    @property
    def lag(self) -> int:
        return max(0, self.end - self.position)

    @property
    def lost(self) -> int:
        """Deleted before they were read."""
        return max(0, self.earliest - self.position)

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class Backlog:
    """Of whatever a table reads."""

    lag: int | None
    """None: unknown."""
    unit: str = "record"
    unknown: str | None = None
    oldest_ms: int | None = None
    """The time of the oldest that was not read."""
    trend: Trend | None = None
    partitions: tuple[PartitionBacklog, ...] = ()
    """Of a table that reads topics."""

    def age(self, now_ms: float) -> float | None:
        """Seconds for which the oldest has waited."""
        return None if self.oldest_ms is None else max(0.0, (now_ms - self.oldest_ms) / 1000)


def kafka_backlog(
    source: TopicsSource, places: Sequence[PartitionLag], held: TopicOffsets, recent: Lately, *, timeout: float
) -> Backlog:
    """Asks the broker for the first unread records, and where the topics ended at the times of earlier batches. What it
    does not tell is None."""
    partitions = unread_of(places, held)
    gone = sorted({place.topic for place in places if place.end is None})
    lag = sum(one.lag for one in partitions)
    if not lag:
        unknown = f"the broker does not know {', '.join(gone)}" if gone else None
        return Backlog(None if gone else 0, unknown=unknown, partitions=partitions)
    behind = sorted((one for one in partitions if one.lag), key=lambda one: -one.lag)[:MOST_PEEKED]
    at = {(one.topic, one.partition): max(one.position, one.earliest) for one in behind}
    client = open_client(source, timeout=timeout)
    times = client.first_times(source, at)
    trend, rates = _trend(client, held, partitions, recent)
    dated = tuple(
        replace(one, oldest_ms=times.get((one.topic, one.partition)), per_second=rates.get((one.topic, one.partition)))
        for one in partitions
    )
    return Backlog(lag, oldest_ms=min(times.values(), default=None), trend=trend, partitions=dated)


def unread_of(places: Sequence[PartitionLag], held: TopicOffsets) -> tuple[PartitionBacklog, ...]:
    """The partitions that the broker knows."""
    return tuple(
        PartitionBacklog(
            place.topic, place.partition, place.position, held.earliest[place.topic][place.partition], place.end
        )
        for place in places
        if place.end is not None
    )


def _trend(
    client: LogClient, held: TopicOffsets, partitions: Sequence[PartitionBacklog], recent: Lately
) -> tuple[Trend | None, dict[tuple[str, int], float]]:
    batches = chosen(recent.recent)
    topics = {one.topic: held.topics[one.topic] for one in partitions}
    try:
        ends = [client.at_time(topics, batch.committed_ms) for batch in batches]
    except PenstockError:
        return None, {}
    keys = [(one.topic, one.partition) for one in partitions]
    points = [point(batch, keys, end) for batch, end in zip(batches, ends, strict=True)]
    trend = trend_of(points, recent.usual_seconds or 0.0, 1)
    if trend is None:
        return None, {}
    came = {(t, p): max(0, ends[-1][t][p] - ends[0][t][p]) for t, p in keys}
    return trend, {key: number / trend.seconds for key, number in came.items()}


def point(batch: RecentBatch, keys: Sequence[tuple[str, int]], ends: Offsets) -> Point:
    """`ends` is where the topics ended when the batch was committed. A partition that the table did not know yet began
    at 0."""
    at: Offsets = {}
    for source in batch.after:
        at |= parse_position(source)
    # By partition: one that is ahead of the times of its records does not make up for one that is behind.
    pairs = [(ends[t][p], min(ends[t][p], at.get(t, {}).get(p, 0))) for t, p in keys]
    return Point(batch.committed_ms, sum(end for end, _ in pairs), sum(read for _, read in pairs))


# Does the table keep up: with its trigger, with its SLA, with what comes?


_LATE_SHARE = 2 / 3
"""Of the SLA, from which on there is no room for another late batch."""

_ENOUGH = 5
"""Batches from which on their median means something."""


@dataclass(frozen=True)
class Runner:
    """How a table is run."""

    table: str
    trigger: TriggerPlan
    alive: bool
    most: str = ""
    """The bound of its batches as the project file says it; empty if there is none."""


def batches(runner: Runner, recent: Lately) -> Check:
    """How long batches take, against the trigger."""
    about = CheckSubject("pace.batches", runner.table)
    usual = recent.usual_seconds
    if usual is None:
        return about.unknown("no batch is among the last commits")
    longest = max(batch.seconds for batch in recent.recent)
    number = len(recent.recent)
    said = f"a batch takes {span(usual)}, the longest of the last {number} took {span(longest)}"
    trigger = runner.trigger
    if number < _ENOUGH:
        return about.ok(f"{said}: too few to judge, the first ones of a process are slow")
    if trigger.kind != "interval" or not trigger.seconds:
        return about.ok(f"{said}; the trigger is {trigger.kind}")
    if trigger.sla is not None and usual > trigger.sla / 3:
        return about.warn(
            f"{said}; a third of the SLA is {span(trigger.sla / 3)}: one late batch and the data is too old",
            _quicker(runner),
        )
    if usual > trigger.seconds:
        return about.warn(
            f"{said}; the trigger is {span(trigger.seconds)}, so they run back to back",
            f"{_quicker(runner)}; or write trigger: {_rounded(2 * usual)}, which makes fewer, larger batches",
        )
    return about.ok(f"{said}; the trigger is {span(trigger.seconds)}")


def sla(runner: Runner, backlog: Backlog, now_ms: float) -> list[Check]:
    """Nothing to say of a table without one."""
    allowed = runner.trigger.sla
    if allowed is None:
        return []
    about = CheckSubject("pace.sla", runner.table)
    if backlog.lag is None:
        return [about.unknown(backlog.unknown or "the lag is not known")]
    age = backlog.age(now_ms)
    if backlog.lag and age is None:
        return [about.unknown(f"{count(backlog.lag, backlog.unit)} wait, and the age of the oldest is not known")]
    said = f"the oldest unread {backlog.unit} is {span(age)} old" if age is not None else "all is read"
    said += f"; the SLA is {span(allowed)}"
    run = _quicker(runner) if runner.alive else f"`penstock run {runner.table}`: nobody runs it"
    if age is not None and age > allowed:
        return [about.red(said, run)]
    if age is not None and age > _LATE_SHARE * allowed:
        return [about.warn(said, run)]
    return [about.ok(said)]


def behind(runner: Runner, backlog: Backlog) -> Check:
    """Rate in against rate out, over the last batches; of a table that nobody runs there is nothing to compare."""
    about = CheckSubject("pace.behind", runner.table)
    if backlog.lag is None:
        return about.unknown(backlog.unknown or "the lag is not known")
    units = f"{backlog.unit}s"
    waits = f"{count(backlog.lag, backlog.unit)} behind"
    trend = backlog.trend
    if not backlog.lag or not runner.alive:
        return about.ok(waits if runner.alive else f"{waits}; it is not running")
    if trend is None:
        return about.ok(f"{waits}; too few batches to say more")
    first, last = trend.points[0], trend.points[-1]
    said = (
        f"{waits}: {rate(trend.came)} {units} came and {rate(trend.read)} were read over the last {span(trend.seconds)}"
    )
    if trend.grows:
        return about.warn(
            f"{said}; after a batch {count(first.lag, backlog.unit)} were left then, and now {last.lag:,}",
            _quicker(runner) + (f"; raise {runner.most} if batches are full" if runner.most else ""),
        )
    if trend.read > trend.came and last.lag > 1:
        return about.ok(f"{said}: caught up in about {span(last.lag / (trend.read - trend.came))}")
    return about.ok(said)


def _quicker(runner: Runner) -> str:
    return f"give Spark more cores (spark: {{master: …}}), or run {runner.table} in a process of its own"


def _rounded(seconds: float) -> str:
    return f"{max(1, round(seconds / 60))}m" if seconds >= 90 else f"{max(1, round(seconds))}s"
