"""`status`: what each table does, how far it is and how fast: from its runner's state, its lock, its log and the
broker."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import PenstockError
from penstock.ledger.delta_log import Origin, RecentLog
from penstock.ledger.entry import named_streams
from penstock.ledger.head import read_head
from penstock.ledger.position import parse, parse_version
from penstock.ledger.row_counts import READ, read_row_counts
from penstock.operations.broker import PartitionLag
from penstock.operations.staleness import replaying, stale_against
from penstock.plan.sources import DeltaSource, FilesSource, TopicsSource
from penstock.sources.delta_changes import changes_read_past
from penstock.sources.files.backlog import unread
from penstock.storage.stores import store_of

if TYPE_CHECKING:
    from penstock.ledger.delta_log import Commit
    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead
    from penstock.ledger.position import Offsets
    from penstock.operations.broker import Question
    from penstock.operations.staleness import Stale
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

# How fast a table reads: over the last minutes, and while its batches ran. From the end of its log alone.


WINDOW = 300.0
"""Seconds."""
MOST_BATCHES = 30
"""Of a table with many small batches, so that `status` of many tables stays quick: the window is shorter then."""
_MOST_COMMITS = 2 * MOST_BATCHES
"""With those of maintenance among them."""


@dataclass(frozen=True)
class BatchPace:
    """One batch, as the ledger tells it."""

    generation: int
    batch: int
    committed_ms: int
    rows: int
    """Read: rejected, dropped and duplicate rows among them."""
    seconds: float
    """From the start of the batch to its commit."""


@dataclass(frozen=True)
class Rates:
    window_seconds: float
    input_rows: int
    """Read by the batches of the window."""
    batch_seconds: float
    """That these batches took."""
    last: BatchPace | None
    """The last batch, however long ago."""

    @property
    def input_rows_per_second(self) -> float:
        """Per second of the window: 0 if nothing came in it."""
        return self.input_rows / self.window_seconds if self.window_seconds > 0 else 0.0

    @property
    def processed_rows_per_second(self) -> float | None:
        """Per second of batch time; None if there was no batch in the window."""
        return self.input_rows / self.batch_seconds if self.batch_seconds > 0 else None


def read_rates(commits: Iterable[Commit], store: Store, checkpoints: str, *, now_ms: float | None = None) -> Rates:
    """`commits` are those of the table's log, the newest first."""
    now = time.time() * 1000 if now_ms is None else now_ms
    last: BatchPace | None = None
    begin = now - WINDOW * 1000
    rows, seconds, count = 0, 0.0, 0
    later: Entry | None = None
    for index, commit in enumerate(islice(commits, _MOST_COMMITS), start=1):
        entry = commit.entry
        if index == _MOST_COMMITS:
            begin = max(begin, commit.timestamp_ms)  # what was before it is not looked at
            break
        if commit.origin is not Origin.LEDGER or entry is None:
            continue
        if commit.timestamp_ms < begin and last is not None:
            break
        if entry.kind == "genesis":
            begin = max(begin, commit.timestamp_ms)
            break
        if entry.kind != "batch":
            later = later or entry
            continue
        pace = _batch_pace(commit, entry, later, store, checkpoints)
        last, later = last or pace, entry
        if commit.timestamp_ms < begin:
            break
        if count == MOST_BATCHES:
            begin = commit.timestamp_ms  # this batch and those before it are not in the window
            break
        rows, seconds, count = rows + pace.rows, seconds + pace.seconds, count + 1
    return Rates(max(0.0, now - begin) / 1000, rows, seconds, last)


def _batch_pace(commit: Commit, entry: Entry, later: Entry | None, store: Store, checkpoints: str) -> BatchPace:
    began = entry.started_ms if entry.started_ms is not None else entry.pins.time_ms
    seconds = max(1, commit.timestamp_ms - began) / 1000
    return BatchPace(
        entry.generation, entry.batch, commit.timestamp_ms, _rows(commit, entry, later, store, checkpoints), seconds
    )


def _rows(commit: Commit, entry: Entry, later: Entry | None, store: Store, checkpoints: str) -> int:
    """What a batch read is in the totals of the next entry; of the last one in a file beside its offsets. A table
    without stages counts nothing, because it writes what it reads."""
    if later is not None:
        read = later.counts.row_counts.get(READ, 0) - entry.counts.row_counts.get(READ, 0)
        return read if read > 0 else commit.rows
    found = read_row_counts(store, f"{checkpoints}/{entry.generation}", entry.batch)
    return found.get(READ) or commit.rows


# What a runner says about each table it runs: one small file per table, written when the state changes.


Kind = Literal["starting", "running", "retrying", "failed", "finished", "stopped"]


@dataclass(frozen=True)
class State:
    state: Kind
    reason: str | None = None
    hint: str | None = None
    since: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    process: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)


def _path(system: str, table: str) -> str:
    return f"{system}/state/{table}.json"


def write_state(store: Store, system: str, table: str, state: State) -> None:
    store.write(_path(system, table), json.dumps(asdict(state)))


def read_state(store: Store, system: str, table: str) -> State | None:
    """None if the table never ran, or if the file is unreadable."""
    try:
        return State(**json.loads(store.read(_path(system, table)) or "null"))
    except (ValueError, TypeError):
        return None


# `status`: what each table does and how far it is: by its runner's words, its lock, the end of its log, the broker.
#
# No JVM, no Delta library: of a table only the last few commits are read, and each cluster is asked once for all
# tables.


BROKER_TIMEOUT = 2.5
"""Seconds that a broker that is away may hold up the answer."""
ALIVE = ("starting", "running", "retrying")
NOT_CREATED, CRASHED, UNREADABLE = "not created", "crashed", "unreadable"


@dataclass(frozen=True)
class Status:
    table: str
    state: str
    """What the runner said last, or: not created, crashed (nobody runs it, and nobody stopped it), unreadable."""
    since: str | None = None
    reason: str | None = None
    hint: str | None = None
    process: int | None = None
    """Of the runner, while it holds the table's lock."""
    generation: int | None = None
    batch: int | None = None
    version: int | None = None
    rows: int = 0
    """Landed by batches, as the ledger counts them."""
    rates: Rates | None = None
    """How fast it reads, over the last minutes."""
    last_commit_ms: int | None = None
    places: tuple[PartitionLag, ...] = ()
    lag: int | None = None
    """Offsets behind the broker's end, over all partitions, commits behind the table upstream, or files that are listed
    and not read; None: unknown."""
    lag_of: str = ""
    """What is counted, where it is not records."""
    lag_unknown: str | None = None
    """Why."""
    foreign: tuple[Commit, ...] = field(default=())
    """Commits by others since the last entry that added or changed rows."""
    stale: Stale | None = None
    replaying: str | None = None
    """A replay of it is not done: who is at it, or that nobody is."""
    passed_over: str | None = None
    """Versions upstream that changed rows, and were skipped or ignored because an option of the source says so."""

    def age(self, now_ms: float) -> float | None:
        return None if self.last_commit_ms is None else max(0.0, (now_ms - self.last_commit_ms) / 1000)


def status(plan: Plan, tables: Sequence[TablePlan], store: Store) -> list[Status]:
    """One per table, in their order. A table or a broker that cannot be read is said in its place, not raised."""
    return _with_lag(tables, standing(plan, tables, store))


def standing(plan: Plan, tables: Sequence[TablePlan], store: Store) -> list[Status]:
    """The same without a question to a broker: of what reads topics, `places` have no end and the lag is unknown."""
    if plan.local:
        found = [_table(plan, table, store) for table in tables]
    else:
        with ThreadPoolExecutor(16) as threads:
            found = list(threads.map(lambda table: _table(plan, table, store), tables))
    return [_behind_upstream(table, one, store) for table, one in zip(tables, found, strict=True)]


def _table(plan: Plan, table: TablePlan, store: Store) -> Status:
    said = read_state(store, plan.system, table.name)
    known = _standing(Status(table.name, "stopped"), plan, table, said)
    log = RecentLog(store, table.uri, table.name)
    try:
        tail = read_head(log)
        rates = read_rates(log.backwards(), store, table.checkpoints) if tail is not None else None
    except PenstockError as error:
        return replace(known, state=UNREADABLE, reason=error.message, hint=error.hint)
    except (ValueError, KeyError, OSError) as error:
        return replace(known, state=UNREADABLE, reason=f"the log of {table.uri} cannot be read: {error}")
    if tail is None:
        state = known.state if said is not None and known.state != "stopped" else NOT_CREATED
        return replace(known, state=state, hint=known.hint or "`penstock run` makes it")
    landed = replace(
        replace(_landed(known, tail), rates=rates),
        stale=stale_against(table, tail, store),
        replaying=replaying(plan, table, tail),
    )
    if table.delta is not None:
        landed = replace(landed, passed_over=_passed_over(table.delta, tail, store))
    if table.source.follows_changes:
        landed = replace(landed, places=_after_changes(landed.places, tail))
    return _unread_files(table.files, landed, tail, store) if table.files is not None else landed


def _standing(status: Status, plan: Plan, table: TablePlan, said: State | None) -> Status:
    """The lock tells whether somebody runs the table now; the state file what he said last."""
    if said is not None:
        status = replace(status, state=said.state, since=said.since, reason=said.reason, hint=said.hint)
    if plan.local:
        process = runner(plan, table)
        if process is not None:
            state = said.state if said is not None and said.state != "stopped" else "starting"
            return replace(status, state=state, process=process)
        gone = True
    else:
        gone = said is not None and is_gone(said)
    if said is not None and said.state in ALIVE and gone:
        reason = (
            f"it was {said.state}, and its process {said.process} is gone without a word: killed, or the machine went"
        )
        return replace(status, state=CRASHED, reason=reason, hint="`penstock run` goes on where the ledger ends")
    return status


def runner(plan: Plan, table: TablePlan) -> int | None:
    """The process that holds the table's run lock; None if nobody does, or there are no locks."""
    if not plan.local:
        return None
    from penstock.storage.locks import holder, lock_path

    return holder(lock_path(plan.system, table.name, "run"))


def is_gone(said: State) -> bool:
    """Its process ran on this machine, and runs no more. Of another machine nothing is known."""
    return said.host == socket.gethostname() and not _alive(said.process)


def _landed(status: Status, tail: LedgerHead) -> Status:
    streams = named_streams(tail.entry)
    at = [
        PartitionLag(streams[index] if streams else topic, partition, offset)
        for index, source in enumerate(tail.entry.after)
        for topic, partitions in sorted(parse(source).items())
        for partition, offset in sorted(partitions.items())
    ]
    foreign = (Origin.FOREIGN_APPEND, Origin.FOREIGN_CHANGE)
    return replace(
        status,
        generation=tail.entry.generation,
        batch=tail.entry.batch,
        version=tail.version,
        rows=tail.counts.total,
        last_commit_ms=tail.commit.timestamp_ms,
        places=tuple(at),
        foreign=tuple(commit for commit in tail.later if commit.origin in foreign),
    )


def _after_changes(places: tuple[PartitionLag, ...], tail: LedgerHead) -> tuple[PartitionLag, ...]:
    """The changes of a version are read all at once, so a position within one is at its end."""
    at = [parse_version(position) for position in tail.entry.after]
    return tuple(
        place if one.whole or one.snapshot else replace(place, position=one.version + 1)
        for place, one in zip(places, at, strict=True)
    )


def _unread_files(source: FilesSource, status: Status, tail: LedgerHead, store: Store) -> Status:
    count = unread(store, source.uri, tail.entry.after[0])
    unknown = None if count is not None else f"the log of {source.uri} does not tell"
    return replace(status, places=(), lag=count, lag_of="files", lag_unknown=unknown)


def _behind_upstream(table: TablePlan, status: Status, store: Store) -> Status:
    """Of a table that reads another: how many of its commits are not read yet."""
    if table.delta is None or not status.places:
        return status
    by_name = {source.label: source for source in table.delta_sources}
    found = [_in_upstream(by_name.get(place.topic, table.delta), place, store) for place in status.places]
    missing = [place.topic for place in found if place.end is None]
    lag = None if missing else sum(place.lag or 0 for place in found)
    unknown = f"{', '.join(missing)} does not exist" if missing else None
    return replace(status, places=tuple(found), lag=lag, lag_unknown=unknown)


def _passed_over(source: DeltaSource, tail: LedgerHead, store: Store) -> str | None:
    entry = tail.entry
    if len(entry.began) != 1 or len(entry.after) != 1:
        return None
    try:
        return changes_read_past(store_of(source, store), source, entry.began[0], entry.after[0])
    except (PenstockError, OSError, ValueError, KeyError):
        return None


def _in_upstream(source: DeltaSource, place: PartitionLag, store: Store) -> PartitionLag:
    log = RecentLog(store_of(source, store), source.uri, source.label)
    return PartitionLag(source.label, 0, place.position, log.end(place.position))


def _with_lag(tables: Sequence[TablePlan], found: list[Status]) -> list[Status]:
    from penstock.operations.broker import ask, places, question

    together: dict[Question, list[int]] = {}
    sources: dict[Question, TopicsSource] = {}
    for index, table in enumerate(tables):
        if found[index].places and table.topics is not None:
            asked = question(table.topics)
            sources[asked] = table.topics
            together.setdefault(asked, []).append(index)
    for asked, indexes in together.items():
        topics = {place.topic for index in indexes for place in found[index].places}
        held = ask(sources[asked], topics, timeout=BROKER_TIMEOUT, earliest=False)
        for index in indexes:
            one = found[index]
            if held.problem:
                found[index] = replace(one, lag_unknown=held.problem)
                continue
            found[index] = at_broker(one, places(position_of(one), held))
    return found


def at_broker(status: Status, now: Sequence[PartitionLag]) -> Status:
    """With the places of a table as a broker knows them."""
    gone = sorted({place.topic for place in now if place.end is None})
    total = None if gone else sum(place.lag or 0 for place in now)
    unknown = f"the broker does not know {', '.join(gone)}" if gone else None
    return replace(status, places=tuple(now), lag=total, lag_unknown=unknown)


def position_of(status: Status) -> Offsets:
    found: Offsets = {}
    for place in status.places:
        found.setdefault(place.topic, {})[place.partition] = place.position
    return found


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _pace_document(rates: Rates | None) -> dict[str, Any]:
    """`rows_per_second` is what older scripts ask for."""
    processed = None if rates is None else rates.processed_rows_per_second
    last = None if rates is None else rates.last
    per_second = None if processed is None else round(processed, 1)
    return {
        "rows_per_second": per_second,
        "input_rows_per_second": None if rates is None else round(rates.input_rows_per_second, 1),
        "processed_rows_per_second": per_second,
        "window_seconds": None if rates is None else round(rates.window_seconds, 1),
        "last_batch_rows": None if last is None else last.rows,
        "last_batch_seconds": None if last is None else round(last.seconds, 3),
    }


def document(status: Status) -> dict[str, Any]:
    age = status.age(time.time() * 1000)
    return {
        "table": status.table,
        "state": status.state,
        "since": status.since,
        "reason": status.reason,
        "hint": status.hint,
        "process": status.process,
        "generation": status.generation,
        "batch": status.batch,
        "version": status.version,
        "rows": status.rows,
        **_pace_document(status.rates),
        "last_commit_ms": status.last_commit_ms,
        "age_seconds": None if age is None else round(age, 1),
        "lag": status.lag,
        "lag_of": status.lag_of or None,
        "lag_unknown": status.lag_unknown,
        "partitions": [
            {"topic": p.topic, "partition": p.partition, "position": p.position, "end": p.end, "lag": p.lag}
            for p in status.places
        ],
        "stale": asdict(status.stale) if status.stale else None,
        "replaying": status.replaying,
        "passed_over": status.passed_over,
        "foreign": [
            {"version": c.version, "operation": c.operation, "origin": c.origin.value, "rows": c.rows}
            for c in status.foreign
        ],
    }
