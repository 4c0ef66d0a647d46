"""How far a vacuum may go: which readers still need files that are no longer in the newest version."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from penstock.errors import PenstockError
from penstock.ledger.checkpoint import checkpoint_folder, read_checkpoint, read_pins
from penstock.ledger.commit import removed_files
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.entry import stream_tables
from penstock.ledger.head import LedgerHead, read_head
from penstock.ledger.pending import pending_replay, pending_rewind
from penstock.ledger.position import parse_version
from penstock.maintenance.tables import optimize_started_ms
from penstock.plan.sources import VersionsSource
from penstock.sources.delta_changes import resolve_version, table_id
from penstock.spec.quantity import duration_text, time_text
from penstock.storage.locks import holder, lock_path

if TYPE_CHECKING:
    from penstock.ledger.delta_log import Commit, DeltaLog
    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Version
    from penstock.maintenance.tables import MaintainedTable
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

# How far a vacuum may go: the only place that decides which files nobody needs any more.
#
# Delta's VACUUM keeps the files of the newest version, and those that were removed at or after a given time. So each
# need for older files is expressed as a time, and the earliest is the horizon. Two facts that Delta does not document
# (both verified by running it): it rounds hours, so that 0.4 becomes 0; and it knows which files were removed only for
# as long as the table's property says, 7 days by default: it would delete a file that was removed earlier, however many
# hours it is told to retain.
#
# No Spark, no clock, no files here: every command that deletes anything asks this module.


HOUR_MS = 3_600_000
MARGIN_MS = 10 * 60_000
"""Margin for the time between our decision and the moment at which Delta reads the clock."""


@dataclass(frozen=True)
class Need:
    """A reader, or a setting, that needs files which are no longer in the newest version."""

    reader: str
    what: str
    """Continues the sentence that starts with `reader`: `has read up to version 7 of 12`."""
    since_ms: int | None
    """It needs files that were removed then or later. None: unknown, so no file may be deleted."""
    version: int | None = None
    """For a reader: the oldest version that it reads."""
    first_version: int | None = None
    """For a reader: the first version whose removed files it still reads."""
    changes: bool = False
    """For a reader: whether it reads the files of the change feed as well."""
    window: bool = False
    """A length of time that the user chose, rather than a position in the table."""

    def __str__(self) -> str:
        return f"{self.reader} {self.what}"


@dataclass(frozen=True)
class Horizon:
    table: str
    asked_ms: int
    at_ms: int | None
    """Files that were removed before this time may be deleted; None: none may."""
    needs: tuple[Need, ...]
    """All needs, the one that goes back furthest first."""
    why: str | None = None
    """Why no file may be deleted."""
    batches_paused: bool = False
    """No batch of the table runs, and none will start before this is over."""

    @property
    def limits(self) -> tuple[Need, ...]:
        """The needs because of which less may be deleted than was asked for."""
        return tuple(need for need in self.needs if need.since_ms is None or need.since_ms < self.asked_ms)

    @property
    def all_may_go(self) -> bool:
        """Whether every file that is not in the newest version may be deleted."""
        return self.batches_paused and self.at_ms is not None and self.at_ms >= self.asked_ms


def horizon(table: str, asked_ms: int, needs: Sequence[Need], known_since_ms: int, *, still: bool = False) -> Horizon:
    """`asked_ms`: removals before it are requested to go. `known_since_ms`: Delta knows no earlier removal."""
    ordered = tuple(sorted(needs, key=lambda need: -1 if need.since_ms is None else need.since_ms))
    result = Horizon(table, asked_ms, None, ordered, batches_paused=still)
    unclear = next((need for need in ordered if need.since_ms is None), None)
    if unclear is not None:
        return _nothing_may_go(result, str(unclear))
    forgotten = f"Delta has forgotten what was removed before {time_text(known_since_ms)}"
    for need in ordered:
        assert need.since_ms is not None
        early = (
            need.since_ms + MARGIN_MS < known_since_ms if need.window else need.since_ms < known_since_ms + MARGIN_MS
        )
        if early:
            return _nothing_may_go(result, f"{need}, and {forgotten}")
    if asked_ms + MARGIN_MS < known_since_ms:
        return _nothing_may_go(result, f"what was removed before {time_text(asked_ms)} may go, and {forgotten}")
    at_ms = min([asked_ms, *(need.since_ms for need in ordered if need.since_ms is not None)])
    return replace(result, at_ms=at_ms)


def hours(now_ms: int, limit: Horizon) -> int:
    """The hours for VACUUM so that it goes no further than the horizon: rounded up to whole hours, at least 1. 0 only
    where every old file may be deleted and nothing writes."""
    assert limit.at_ms is not None
    if limit.all_may_go:
        return 0
    return max(1, -((limit.at_ms - MARGIN_MS - now_ms) // HOUR_MS))


def span_text(ms: int) -> str:
    """Rounded for people to read: `7d`, `2h10m`."""
    seconds = max(0, round(ms / 1000))
    for unit, minimum in ((3600, 2 * 86400), (60, 7200)):
        if seconds >= minimum:
            seconds = round(seconds / unit) * unit
            break
    return duration_text(seconds) if seconds else "0s"


def _nothing_may_go(limit: Horizon, reason: str) -> Horizon:
    return replace(limit, at_ms=None, why=reason)


# Which readers still need files of a table that are no longer in its newest version: from ledgers and logs, without a
# JVM.
#
# A reader needs everything after the position *before* its last batch: a rebuilt checkpoint runs that batch again. The
# log of the table that it reads says what it needs: the files that were removed in the versions from there on, and
# when. That time is not the commit's: a long OPTIMIZE dates its removals back to its start.


_RECENT_COMMITS = 50
"""How many recent commits are searched for the longest batch."""
_MAX_BATCH_MS = 24 * HOUR_MS
"""A batch that seems to take longer was planned and then waited for its table to be restarted."""


def needs(
    plan: Plan, owner: TablePlan, place: MaintainedTable, store: Store, now_ms: int, *, still: bool = False
) -> list[Need]:
    """The needs for files of the Delta table at `place`: the table of `owner`, or one beside it. `still`: no batch of
    it runs, and none will start before this is over."""
    log = RecentLog(store, place.uri, place.name)
    batch_needs = () if still else _running_batch(plan, owner, store, now_ms)
    table_needs = [*batch_needs, *_owner_needs(plan, owner, place, store, now_ms), *_time_windows(plan, owner, now_ms)]
    for reader in plan.tables:
        table_needs += _reader_needs(reader, place.uri, log, store, now_ms)
    return table_needs


def _running_batch(plan: Plan, owner: TablePlan, store: Store, now_ms: int) -> Iterator[Need]:
    """Protects files that are written and not yet committed: they look like files that nobody needs."""
    log = RecentLog(store, owner.uri, owner.name)
    longest = min(
        _MAX_BATCH_MS, max((_batch_ms(commit) for commit in islice(log.backwards(), _RECENT_COMMITS)), default=0)
    )
    yield Need(
        "whoever is writing or reading now",
        f"has an hour and the longest batch, {span_text(longest)}",
        now_ms - longest - HOUR_MS,
        window=True,
    )
    head = ledger_end(log)
    may_run = not plan.local or holder(lock_path(plan.system, owner.name, "run")) is not None
    planned_ms = _unfinished_batch_ms(store, owner, head.entry) if may_run and isinstance(head, LedgerHead) else None
    if planned_ms is not None:
        yield Need(owner.name, f"has had a batch under way since {time_text(planned_ms)}", planned_ms - HOUR_MS)


def _owner_needs(plan: Plan, owner: TablePlan, place: MaintainedTable, store: Store, now_ms: int) -> Iterator[Need]:
    log = RecentLog(store, owner.uri, owner.name)
    head = ledger_end(log)
    if isinstance(head, LedgerHead) and pending_replay(head.entry) is not None:
        opened = head.entry.pins.time_ms
        yield Need(owner.name, f"is being replayed since {time_text(opened)}", opened - HOUR_MS)
    rewind = pending_rewind(head.entry) if isinstance(head, LedgerHead) else None
    if rewind is not None:
        what = f"is going back to version {rewind.version}"
        yield Need(owner.name, what, _removed_since(log, rewind.version + 1, False, now_ms))
    began = None if plan.local else optimize_started_ms(store, plan.system, place.name)
    if began is not None:  # a local lake has a lock instead
        what = (
            f"that began at {time_text(began)} has not ended; was it killed, `penstock optimize {owner.name}` clears it"
        )
        yield Need("an optimize", what, began - HOUR_MS)


def _batch_ms(commit: Commit) -> int:
    entry = commit.entry
    return commit.timestamp_ms - entry.pins.time_ms if entry is not None and entry.kind == "batch" else 0


def _unfinished_batch_ms(store: Store, table: TablePlan, entry: Entry) -> int | None:
    """When the batch that is not complete yet was planned; None if there is none."""
    checkpoint = read_checkpoint(store, checkpoint_folder(table.checkpoints, entry))
    if checkpoint is None or not checkpoint.offsets:
        return None
    newest = max(checkpoint.offsets)
    planned = checkpoint.offsets[newest]
    return None if planned is None or newest in checkpoint.commits else planned.time_ms


def _time_windows(plan: Plan, owner: TablePlan, now_ms: int) -> Iterator[Need]:
    maintenance = plan.maintenance
    if maintenance.replay_ms:
        what = f"of {span_text(maintenance.replay_ms)} keeps all that can be read again"
        yield Need("the replay window", what, now_ms - maintenance.replay_ms, window=True)
    for reader in maintenance.external:
        if reader.table == owner.name:
            what = f"reads it from outside the project, up to {span_text(reader.lag_ms)} behind"
            yield Need(reader.name, what, now_ms - reader.lag_ms, window=True)


def _reader_needs(reader: TablePlan, uri: str, log: RecentLog, store: Store, now_ms: int) -> Iterator[Need]:
    sources = _sources_at(reader, uri)
    lookups = [lookup for lookup in (reader.stages.lookups if reader.stages else ()) if same_place(lookup.uri, uri)]
    if not sources and not lookups:
        return
    head = ledger_end(RecentLog(store, reader.uri, reader.name))
    if isinstance(head, str):
        yield Need(reader.name, f"reads it, and how far is unknown: {head}", None)
        return
    for source in sources:
        yield from _stream_needs(reader, source, head, log, now_ms)
    if head is None:
        return
    for lookup in lookups:
        folder = checkpoint_folder(reader.checkpoints, head.entry)
        next_pins = read_pins(store, folder, head.entry.batch + 1)
        pinned = {
            pins.lookups[lookup.name] for pins in (head.entry.pins, next_pins) if pins and lookup.name in pins.lookups
        }
        if pinned:
            version = min(pinned)
            since = _removed_since(log, version + 1, False, now_ms)
            yield Need(reader.name, f"has looked up rows in version {version}", since, version, version + 1)


def _stream_needs(
    reader: TablePlan, source: VersionsSource, head: LedgerHead | None, log: RecentLog, now_ms: int
) -> Iterator[Need]:
    position = _configured_start(reader, source, log) if head is None else _last_batch_start(reader, source, head.entry)
    if position is None:
        return
    if position.version > log.newest() + 1:
        if table_id(log, log.versions()) not in (None, position.table_id):
            return  # the table was recreated: what the reader needs is gone, and it is stopped
        what = f"has read up to version {position.read_up_to}, and the table ends with {log.newest()}"
        yield Need(reader.name, what, None, position.version)
        return
    first = _first_needed(position, source, log)
    since = _removed_since(log, first, source.changes, now_ms)
    yield Need(
        reader.name,
        _describe_position(position, log.newest(), source.changes, head),
        since,
        position.version,
        first,
        changes=source.changes,
    )


def _first_needed(position: Version, source: VersionsSource, log: RecentLog) -> int:
    """The first version whose files the reader still reads. Spark's position stays at the last file of a version until
    a later one brings files; at that last file, a reader of changes has read all of the version."""
    if not source.changes or position.snapshot:
        return position.read_up_to + 1
    commit = log.commit(position.version)
    complete = commit is not None and 0 < commit.feed_files <= position.index + 1
    return position.version + 1 if complete else position.version


def _describe_position(position: Version, newest: int, changes: bool, head: LedgerHead | None) -> str:
    if head is None:
        return f"is not made yet, and begins at version {position.version}"
    if position.snapshot:
        return f"is reading the whole table as of version {position.version}"
    what = "followed its changes" if changes else "read it"
    return f"has {what} up to version {position.read_up_to} of {newest}"


def _last_batch_start(reader: TablePlan, source: VersionsSource, entry: Entry) -> Version | None:
    """Where the reader's last batch started; before its first batch, where the reader is to start."""
    positions = entry.after if entry.batch == 0 else entry.before
    names = stream_tables(entry)
    if not names:
        replay = pending_replay(entry)  # if the replay is given up, it continues where it was before
        starts = [
            version for version in (positions[0], *(replay.position if replay else ())) if "reservoirVersion" in version
        ]
        return min(map(parse_version, starts), key=lambda version: version.version, default=None)
    versions = [
        parse_version(version)
        for name, version in zip(names, positions, strict=False)
        if name == (source.table or source.uri)
    ]
    return min(versions, key=lambda version: version.version, default=None)


def _configured_start(reader: TablePlan, source: VersionsSource, log: RecentLog) -> Version | None:
    versions = log.versions()
    identity = table_id(log, versions)
    if identity is None:
        return None
    try:
        return resolve_version(source.starting, identity, versions, log, reader.name)
    except PenstockError:
        return None  # it cannot start there: the log no longer reaches back


def _removed_since(log: RecentLog, first: int, changes: bool, now_ms: int) -> int | None:
    """The earliest removal in the versions from `first` on; None if the log no longer has them all."""
    since = now_ms
    for version in range(max(0, first), log.newest() + 1):
        commit = log.commit(version)
        if commit is None:
            return None
        if commit.removed_ms is not None:
            since = min(since, commit.removed_ms)
        if changes and commit.has_change_feed:  # files of a change feed count as removed as soon as they are written
            written_ms = commit.entry.pins.time_ms if commit.entry is not None else commit.timestamp_ms
            since = min(since, written_ms - HOUR_MS, commit.timestamp_ms - HOUR_MS)
    return since


def files_needed(store: Store, uri: str, all_needs: Sequence[Need]) -> dict[str, str]:
    """By file, as a path in the table: which reader needs it. Proves what the horizon promises."""
    readers = [need for need in all_needs if need.first_version is not None]
    needed_by: dict[str, str] = {}
    for version in range(
        min((need.first_version or 0 for need in readers), default=1), RecentLog(store, uri, "").newest() + 1
    ):
        text = store.read(f"{uri}/_delta_log/{version:020d}.json") or ""
        for need in (reader for reader in readers if (reader.first_version or 0) <= version):
            needed_by |= dict.fromkeys(removed_files(text, feed=need.changes), need.reader)
    return needed_by


def _sources_at(reader: TablePlan, uri: str) -> list[VersionsSource]:
    sources: tuple[VersionsSource, ...] = (reader.files,) if reader.files is not None else reader.delta_sources
    return [source for source in sources if same_place(source.uri, uri)]


def ledger_end(log: DeltaLog) -> LedgerHead | str | None:
    """None if the table does not exist; text if its ledger cannot be read."""
    try:
        return read_head(log)
    except PenstockError as error:
        return error.message
    except (ValueError, KeyError, OSError) as error:
        return f"its log cannot be read: {error}"


def same_place(uri: str, other_uri: str) -> bool:
    """Whether both are the same table, also by another spelling or through a link."""
    return _canonical_uri(uri) == _canonical_uri(other_uri)


def _canonical_uri(uri: str) -> str:
    scheme, colon, rest = uri.partition("://")
    if not colon:
        return os.path.realpath(uri)
    if scheme == "file":
        return os.path.realpath(rest)
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest.rstrip('/')}"
