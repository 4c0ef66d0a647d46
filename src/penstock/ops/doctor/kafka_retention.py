"""How long until Kafka deletes what was not read yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.ops.doctor.backlog import Unread
from penstock.ops.doctor.check import LEVELS, About, Check
from penstock.ops.doctor.cluster import Kept
from penstock.ops.doctor.said import count, listed, rate, size, span
from penstock.ops.doctor.times import Pause

HOUR, DAY = 3600.0, 86_400.0


@dataclass(frozen=True)
class Reader:
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


def retention(reader: Reader, unread: Sequence[Unread], kept: Mapping[str, Kept], now_ms: float) -> Check:
    """`kept` has every topic of `unread`."""
    about = About("kafka.retention", reader.table)
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


def _left(about: About, reader: Reader, behind: list[Unread], kept: Mapping[str, Kept], now_ms: float) -> Check:
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
    longer = _longer(reader, one.topic, max(7 * DAY, 2 * keeps))
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


def _next(about: About, reader: Reader, limited: list[Unread], kept: Mapping[str, Kept]) -> Check:
    """What comes next has the whole time."""
    one = min(limited, key=lambda unread: kept[unread.topic].retention_ms or 0)
    keeps = (kept[one.topic].retention_ms or 0) / 1000
    said = f"{one.topic} keeps a record for {span(keeps)}"
    longer = _longer(reader, one.topic, max(7 * DAY, 2 * (reader.pause.seconds if reader.pause else 0), 2 * reader.due))
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


def _by_size(about: About, reader: Reader, sized: list[Unread], kept: Mapping[str, Kept]) -> Check:
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


def compaction(reader: Reader, unread: Sequence[Unread], kept: Mapping[str, Kept], now_ms: float) -> list[Check]:
    """Nothing to say of topics that are not compacted."""
    about = About("kafka.compaction", reader.table)
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


def _seconds_left(one: Unread, kept: Kept, now_ms: float) -> float:
    """A segment goes when its youngest record is too old, so this is the earliest time."""
    assert one.oldest_ms is not None and kept.retention_ms is not None
    return (one.oldest_ms + kept.retention_ms - now_ms) / 1000


def _kept(unread: Sequence[Unread], kept: Mapping[str, Kept]) -> str:
    return span(min(kept[one.topic].retention_ms or 0 for one in unread) / 1000)


def _longer(reader: Reader, topic: str, seconds: float) -> str:
    return _set(reader, topic, "retention.ms", seconds)


def _set(reader: Reader, topic: str, name: str, seconds: float) -> str:
    change = f"{name}={round(seconds * 1000)}"
    return f"`kafka-configs.sh --bootstrap-server {reader.bootstrap} --alter --topic {topic} --add-config {change}`"
