"""The tables that a table reads: how far behind it is, how long they keep what it has not read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.engine.delta.version import Version
from penstock.engine.delta.version import parse as parse_version
from penstock.engine.protocol.entry import Entry, named_streams
from penstock.engine.protocol.log import Commit, Origin
from penstock.engine.store import Store
from penstock.engine.stores import store_of
from penstock.ops.doctor.backlog import Backlog
from penstock.ops.doctor.lately import Lately
from penstock.ops.doctor.layout import kept_for, layout
from penstock.ops.doctor.times import oldest, version_at
from penstock.ops.doctor.trend import Point, chosen, trend_of
from penstock.ops.recent import RecentLog
from penstock.plan.model import DeltaSource, TablePlan

_MOST_LOOKS = 500
"""Commits that are looked through for the first that brings rows: compaction brings none."""

_FEW = 10
"""Commits that one batch reads along with another: to be so far behind means nothing."""


@dataclass(frozen=True)
class Upstream:
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
class Reading:
    """One table upstream, open to be looked at."""

    source: DeltaSource
    log: RecentLog
    store: Store
    index: int
    """Of its position in a ledger entry."""


def readings(table: TablePlan, entry: Entry, store: Store) -> list[Reading]:
    """Raises where the store of a table that is not the project's cannot be opened."""
    source = table.source
    assert isinstance(source, DeltaSource)
    found = []
    streams = named_streams(entry) or (source.table or source.uri,)
    by_name = {one.table or one.uri: one for one in (table.stream.inputs.values() if table.stream else (source,))}
    for index, name in enumerate(streams):
        one = by_name.get(name)
        if one is not None and index < len(entry.after):
            own = store_of(one, store)
            found.append(Reading(one, RecentLog(own, one.uri, name), own, index))
    return found


def upstream_of(reading: Reading, entry: Entry) -> Upstream:
    at, log, name = parse_version(entry.after[reading.index]), reading.log, reading.log.table
    newest, first = log.newest(), oldest(reading.log)
    if newest < 0:
        return Upstream(name, unknown=f"{name} does not exist")
    properties = layout(reading.store, reading.source.uri, newest).properties
    cleans = properties.get("delta.enableExpiredLogCleanup", "true").lower() == "true"
    log_kept = kept_for(properties, "delta.logRetentionDuration", "interval 30 days")
    files_kept = kept_for(properties, "delta.deletedFileRetentionDuration", "interval 1 week")
    unread = _first_unread(at, reading.source)
    lost = (unread, first - 1) if unread < first and not at.snapshot else None
    return Upstream(
        name=name,
        lag=max(0, newest + 1 - unread),
        oldest_ms=_oldest_ms(reading, at, max(unread, first), newest),
        lost=lost,
        log_kept=log_kept if cleans else None,
        files_kept=files_kept,
        unknown=None if log_kept is not None and files_kept is not None else f"the retention of {name} is not a time",
    )


def delta_backlog(found: Iterable[Upstream], open_readings: Iterable[Reading], recent: Lately) -> Backlog:
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


def _points(read: list[Reading], recent: Lately) -> Iterator[Point]:
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


def _oldest_ms(reading: Reading, at: Version, first: int, newest: int) -> int | None:
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
