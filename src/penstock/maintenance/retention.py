"""How far a vacuum may go: who still needs files that are no longer in the newest version."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.ledger.checkpoint import folder_of, read_checkpoint, read_pins
from penstock.ledger.commit import removed_files
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.entry import named_streams
from penstock.ledger.head import LedgerHead, read_head
from penstock.ledger.pending import pending_replay, pending_rewind
from penstock.ledger.position import parse_version
from penstock.maintenance.tables import under_way
from penstock.plan.sources import VersionsSource
from penstock.sources.delta_changes import resolve_version, table_id
from penstock.spec.quantity import duration_text
from penstock.storage.locks import holder, lock_path

if TYPE_CHECKING:
    from penstock.ledger.delta_log import Commit, DeltaLog
    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Version
    from penstock.maintenance.tables import MaintainedTable
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

# How far a vacuum may go: the one place that decides which files nobody needs any more.
#
# Delta's VACUUM keeps the files of the newest version, and those that were removed at a time or later. So whoever
# still needs older files is told as a time, and the earliest of them is the horizon. Two things that Delta does not
# say itself (both run): it rounds hours, so that 0.4 is none at all; and it knows which files were removed only for
# as long as the table's property says, 7 days: it would delete a file that was removed earlier, however many hours it
# is told to retain.
#
# No Spark, no clock, no files: commands that delete anything ask here.


HOUR_MS = 3_600_000
MARGIN_MS = 10 * 60_000
"""Between the look that decides and Delta's own look at the clock."""


@dataclass(frozen=True)
class Need:
    """Somebody, or something, that needs files which are no longer in the newest version."""

    who: str
    what: str
    """`has read up to version 7 of 12`: goes on from `who`."""
    since_ms: int | None
    """Files that were removed then or later. None: nobody can tell, so no file may go."""
    version: int | None = None
    """Of a reader: the oldest version that it reads."""
    first: int | None = None
    """Of a reader: the first version whose removed files it reads all the same."""
    changes: bool = False
    """Of a reader: it reads the files of the change feed as well."""
    window: bool = False
    """A length of time that a person chose, rather than a place in the table."""

    def __str__(self) -> str:
        return f"{self.who} {self.what}"


@dataclass(frozen=True)
class Horizon:
    table: str
    asked_ms: int
    at_ms: int | None
    """Files that were removed before may go; None: none may."""
    needs: tuple[Need, ...]
    """Everybody's, the one that goes back furthest first."""
    why: str | None = None
    """Why none may."""
    still: bool = False
    """No batch is at work on the table, and none will be before this is over."""

    @property
    def limits(self) -> tuple[Need, ...]:
        """The needs because of which less may go than was asked for."""
        return tuple(need for need in self.needs if need.since_ms is None or need.since_ms < self.asked_ms)

    @property
    def all_may_go(self) -> bool:
        """Whatever is not in the newest version."""
        return self.still and self.at_ms is not None and self.at_ms >= self.asked_ms


def horizon(table: str, asked_ms: int, needs: Sequence[Need], known_since_ms: int, *, still: bool = False) -> Horizon:
    """`asked_ms`: what was removed before then was asked to go. `known_since_ms`: Delta knows no earlier removal."""
    ordered = tuple(sorted(needs, key=lambda need: -1 if need.since_ms is None else need.since_ms))
    made = Horizon(table, asked_ms, None, ordered, still=still)
    unclear = next((need for need in ordered if need.since_ms is None), None)
    if unclear is not None:
        return _none(made, str(unclear))
    forgets = f"Delta has forgotten what was removed before {time_text(known_since_ms)}"
    for need in ordered:
        assert need.since_ms is not None
        early = (
            need.since_ms + MARGIN_MS < known_since_ms if need.window else need.since_ms < known_since_ms + MARGIN_MS
        )
        if early:
            return _none(made, f"{need}, and {forgets}")
    if asked_ms + MARGIN_MS < known_since_ms:
        return _none(made, f"what was removed before {time_text(asked_ms)} may go, and {forgets}")
    at = min([asked_ms, *(need.since_ms for need in ordered if need.since_ms is not None)])
    return replace(made, at_ms=at)


def hours(now_ms: int, made: Horizon) -> int:
    """What VACUUM is told so that it goes no further than the horizon: whole hours, never fewer. None at all only where
    all may go, and nobody writes."""
    assert made.at_ms is not None
    if made.all_may_go:
        return 0
    return max(1, -((made.at_ms - MARGIN_MS - now_ms) // HOUR_MS))


def time_text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")


def span_text(ms: int) -> str:
    """Rounded, as people say it: `7d`, `2h10m`."""
    seconds = max(0, round(ms / 1000))
    for unit, least in ((3600, 2 * 86400), (60, 7200)):
        if seconds >= least:
            seconds = round(seconds / unit) * unit
            break
    return duration_text(seconds) if seconds else "0s"


def _none(made: Horizon, why: str) -> Horizon:
    return replace(made, at_ms=None, why=why)


# Who still needs files of a table that are no longer in its newest version: from the ledgers and logs, without a JVM.
#
# A reader needs all that lies behind the position *before* its last batch: a checkpoint that is rebuilt runs that
# batch again. What it needs is told by the log of the table that it reads: the files that were removed in the
# versions from there on, and when. That time is not the one of the commit: a long OPTIMIZE dates its removals back to
# its beginning.


_BATCHES = 50
"""Of the last commits, among which the longest batch is looked for."""
_LONGEST_MS = 24 * HOUR_MS
"""A batch that seems to take longer was planned, and waited for its table to be started again."""


def needs(
    plan: Plan, owner: TablePlan, place: MaintainedTable, store: Store, now_ms: int, *, still: bool = False
) -> list[Need]:
    """Of the Delta table at `place`: the table of `owner`, or one that lies beside it. `still`: no batch of it is at
    work, and none will be before this is over."""
    log = RecentLog(store, place.uri, place.name)
    at_work = () if still else _at_work(plan, owner, store, now_ms)
    found = [*at_work, *_owners(plan, owner, place, store, now_ms), *_windows(plan, owner, now_ms)]
    for reader in plan.tables:
        found += _reader(reader, place.uri, log, store, now_ms)
    return found


def _at_work(plan: Plan, owner: TablePlan, store: Store, now_ms: int) -> Iterator[Need]:
    """Files that are written and in no commit yet look like files that nobody needs."""
    log = RecentLog(store, owner.uri, owner.name)
    longest = min(_LONGEST_MS, max((_took(commit) for commit in islice(log.backwards(), _BATCHES)), default=0))
    yield Need(
        "whoever is writing or reading now",
        f"has an hour and the longest batch, {span_text(longest)}",
        now_ms - longest - HOUR_MS,
        window=True,
    )
    tail = ledger_end(log)
    works = not plan.local or holder(lock_path(plan.system, owner.name, "run")) is not None
    flight = _in_flight(store, owner, tail.entry) if works and isinstance(tail, LedgerHead) else None
    if flight is not None:
        yield Need(owner.name, f"has had a batch under way since {time_text(flight)}", flight - HOUR_MS)


def _owners(plan: Plan, owner: TablePlan, place: MaintainedTable, store: Store, now_ms: int) -> Iterator[Need]:
    log = RecentLog(store, owner.uri, owner.name)
    tail = ledger_end(log)
    if isinstance(tail, LedgerHead) and pending_replay(tail.entry) is not None:
        opened = tail.entry.pins.time_ms
        yield Need(owner.name, f"is being replayed since {time_text(opened)}", opened - HOUR_MS)
    back = pending_rewind(tail.entry) if isinstance(tail, LedgerHead) else None
    if back is not None:
        what = f"is going back to version {back.version}"
        yield Need(owner.name, what, _removed_since(log, back.version + 1, False, now_ms))
    began = None if plan.local else under_way(store, plan.system, place.name)
    if began is not None:  # on a local lake there is a lock instead
        what = (
            f"that began at {time_text(began)} has not ended; was it killed, `penstock optimize {owner.name}` clears it"
        )
        yield Need("an optimize", what, began - HOUR_MS)


def _took(commit: Commit) -> int:
    entry = commit.entry
    return commit.timestamp_ms - entry.pins.time_ms if entry is not None and entry.kind == "batch" else 0


def _in_flight(store: Store, table: TablePlan, entry: Entry) -> int | None:
    """When the batch was planned that is not done yet."""
    found = read_checkpoint(store, folder_of(table.checkpoints, entry))
    if found is None or not found.offsets:
        return None
    newest = max(found.offsets)
    planned = found.offsets[newest]
    return None if planned is None or newest in found.commits else planned.time_ms


def _windows(plan: Plan, owner: TablePlan, now_ms: int) -> Iterator[Need]:
    wanted = plan.maintenance
    if wanted.replay_ms:
        what = f"of {span_text(wanted.replay_ms)} keeps all that can be read again"
        yield Need("the replay window", what, now_ms - wanted.replay_ms, window=True)
    for one in wanted.external:
        if one.table == owner.name:
            what = f"reads it from outside the project, up to {span_text(one.lag_ms)} behind"
            yield Need(one.name, what, now_ms - one.lag_ms, window=True)


def _reader(reader: TablePlan, uri: str, log: RecentLog, store: Store, now_ms: int) -> Iterator[Need]:
    sources = _sources(reader, uri)
    lookups = [one for one in (reader.stages.lookups if reader.stages else ()) if same_place(one.uri, uri)]
    if not sources and not lookups:
        return
    tail = ledger_end(RecentLog(store, reader.uri, reader.name))
    if isinstance(tail, str):
        yield Need(reader.name, f"reads it, and nobody can tell how far: {tail}", None)
        return
    for source in sources:
        yield from _stream(reader, source, tail, log, now_ms)
    for one in lookups if tail is not None else ():
        assert tail is not None
        folder = folder_of(reader.checkpoints, tail.entry)
        begun = read_pins(store, folder, tail.entry.batch + 1)
        pinned = {pins.lookups[one.name] for pins in (tail.entry.pins, begun) if pins and one.name in pins.lookups}
        if pinned:
            version = min(pinned)
            since = _removed_since(log, version + 1, False, now_ms)
            yield Need(reader.name, f"has looked up rows in version {version}", since, version, version + 1)


def _stream(
    reader: TablePlan, source: VersionsSource, tail: LedgerHead | None, log: RecentLog, now_ms: int
) -> Iterator[Need]:
    at = _begins(reader, source, log) if tail is None else _position(reader, source, tail.entry)
    if at is None:
        return
    if at.version > log.newest() + 1:
        if table_id(log, log.versions()) not in (None, at.table_id):
            return  # the table was made again: what the reader needs is gone, and it is stopped
        what = f"has read up to version {at.read_up_to}, and the table ends with {log.newest()}"
        yield Need(reader.name, what, None, at.version)
        return
    first = _first_needed(at, source, log)
    since = _removed_since(log, first, source.changes, now_ms)
    yield Need(
        reader.name, _said(at, log.newest(), source.changes, tail), since, at.version, first, changes=source.changes
    )


def _first_needed(at: Version, source: VersionsSource, log: RecentLog) -> int:
    """The first version that the reader still reads files of. Spark's position stays at the last file of a version
    until a later one brings files; then a reader of changes has read all of it."""
    if not source.changes or at.snapshot:
        return at.read_up_to + 1
    commit = log.commit(at.version)
    done = commit is not None and 0 < commit.feed_files <= at.index + 1
    return at.version + 1 if done else at.version


def _said(at: Version, newest: int, changes: bool, tail: LedgerHead | None) -> str:
    if tail is None:
        return f"is not made yet, and begins at version {at.version}"
    if at.snapshot:
        return f"is reading the whole table as of version {at.version}"
    what = "followed its changes" if changes else "read it"
    return f"has {what} up to version {at.read_up_to} of {newest}"


def _position(reader: TablePlan, source: VersionsSource, entry: Entry) -> Version | None:
    """Where its last batch began; where it was told to begin, if it has had none."""
    positions = entry.after if entry.batch == 0 else entry.before
    names = named_streams(entry)
    if not names:
        owed = pending_replay(entry)  # given up, it goes on where it was before
        ends = [one for one in (positions[0], *(owed.position if owed else ())) if "reservoirVersion" in one]
        return min(map(parse_version, ends), key=lambda one: one.version, default=None)
    found = [
        parse_version(one) for name, one in zip(names, positions, strict=False) if name == (source.table or source.uri)
    ]
    return min(found, key=lambda one: one.version, default=None)


def _begins(reader: TablePlan, source: VersionsSource, log: RecentLog) -> Version | None:
    versions = log.versions()
    identity = table_id(log, versions)
    if identity is None:
        return None
    try:
        return resolve_version(source.starting, identity, versions, log, reader.name)
    except PenstockError:
        return None  # it cannot begin there: its log is gone


def _removed_since(log: RecentLog, first: int, changes: bool, now_ms: int) -> int | None:
    """The earliest removal in the versions from `first` on; None if the log no longer has them all."""
    since = now_ms
    for version in range(max(0, first), log.newest() + 1):
        commit = log.commit(version)
        if commit is None:
            return None
        if commit.removed_ms is not None:
            since = min(since, commit.removed_ms)
        if changes and commit.feeds:  # the files of a feed count as removed from the moment in which they are written
            begun = commit.entry.pins.time_ms if commit.entry is not None else commit.timestamp_ms
            since = min(since, begun - HOUR_MS, commit.timestamp_ms - HOUR_MS)
    return since


def still_needed(store: Store, uri: str, found: Sequence[Need]) -> dict[str, str]:
    """File by file, by its name within the table, who needs it: the proof of what the horizon promises."""
    readers = [need for need in found if need.first is not None]
    wanted: dict[str, str] = {}
    for version in range(min((need.first or 0 for need in readers), default=1), RecentLog(store, uri, "").newest() + 1):
        text = store.read(f"{uri}/_delta_log/{version:020d}.json") or ""
        for need in (one for one in readers if (one.first or 0) <= version):
            wanted |= dict.fromkeys(removed_files(text, feed=need.changes), need.who)
    return wanted


def _sources(reader: TablePlan, uri: str) -> list[VersionsSource]:
    read: tuple[VersionsSource, ...] = (reader.files,) if reader.files is not None else reader.delta_sources
    return [source for source in read if same_place(source.uri, uri)]


def ledger_end(log: DeltaLog) -> LedgerHead | str | None:
    """None if the table is not made; text if its ledger cannot be read."""
    try:
        return read_head(log)
    except PenstockError as error:
        return error.message
    except (ValueError, KeyError, OSError) as error:
        return f"its log cannot be read: {error}"


def same_place(one: str, other: str) -> bool:
    """By another spelling, or over a link, it is the same table."""
    return _place(one) == _place(other)


def _place(uri: str) -> str:
    scheme, colon, rest = uri.partition("://")
    if not colon:
        return os.path.realpath(uri)
    if scheme == "file":
        return os.path.realpath(rest)
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest.rstrip('/')}"
