"""`status`: what each table does, how far and how fast it reads: from its runner's state, its lock, its log and the
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
from penstock.ledger.entry import stream_tables
from penstock.ledger.head import read_head
from penstock.ledger.position import parse, parse_version
from penstock.ledger.row_counts import READ, read_row_counts
from penstock.operations.broker import PartitionLag, fetch_offsets, partition_lags, request_key
from penstock.operations.staleness import describe_open_work, stale_against
from penstock.plan.sources import DeltaSource, FilesSource, TopicsSource
from penstock.sources.delta_changes import changes_read_past
from penstock.sources.files.backlog import unread
from penstock.storage.locks import holder, lock_path
from penstock.storage.stores import source_store

if TYPE_CHECKING:
    from penstock.ledger.delta_log import Commit
    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead
    from penstock.ledger.position import Offsets
    from penstock.operations.broker import RequestKey
    from penstock.operations.staleness import Stale
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

# How fast a table reads: over the last minutes, and while its batches ran. Read from the end of its log alone.


WINDOW = 300.0
"""Seconds."""
MOST_BATCHES = 30
"""Batches read per table: with many small ones the window is shorter, so that `status` of many tables stays quick."""
_MOST_COMMITS = 2 * MOST_BATCHES
"""Includes those of maintenance."""


@dataclass(frozen=True)
class BatchPace:
    """The pace of one batch, from the ledger."""

    generation: int
    batch: int
    committed_ms: int
    rows: int
    """Rows read, including rejected, dropped and duplicate rows."""
    seconds: float
    """From the start of the batch to its commit."""


@dataclass(frozen=True)
class Rates:
    window_seconds: float
    input_rows: int
    """Rows read by the batches of the window."""
    batch_seconds: float
    """Time that these batches took."""
    last: BatchPace | None
    """The last batch, however long ago."""

    @property
    def input_rows_per_second(self) -> float:
        """Per second of the window: 0 if nothing was read in it."""
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
    next_entry: Entry | None = None
    for index, commit in enumerate(islice(commits, _MOST_COMMITS), start=1):
        entry = commit.entry
        if index == _MOST_COMMITS:
            begin = max(begin, commit.timestamp_ms)  # the commits before it are not read
            break
        if commit.origin is not Origin.LEDGER or entry is None:
            continue
        if commit.timestamp_ms < begin and last is not None:
            break
        if entry.kind == "genesis":
            begin = max(begin, commit.timestamp_ms)
            break
        if entry.kind != "batch":
            next_entry = next_entry or entry
            continue
        pace = _batch_pace(commit, entry, next_entry, store, checkpoints)
        last, next_entry = last or pace, entry
        if commit.timestamp_ms < begin:
            break
        if count == MOST_BATCHES:
            begin = commit.timestamp_ms  # this batch and those before it are outside the window
            break
        rows, seconds, count = rows + pace.rows, seconds + pace.seconds, count + 1
    return Rates(max(0.0, now - begin) / 1000, rows, seconds, last)


def _batch_pace(commit: Commit, entry: Entry, next_entry: Entry | None, store: Store, checkpoints: str) -> BatchPace:
    started_ms = entry.started_ms if entry.started_ms is not None else entry.pins.time_ms
    seconds = max(1, commit.timestamp_ms - started_ms) / 1000
    return BatchPace(
        entry.generation,
        entry.batch,
        commit.timestamp_ms,
        _rows_read(commit, entry, next_entry, store, checkpoints),
        seconds,
    )


def _rows_read(commit: Commit, entry: Entry, next_entry: Entry | None, store: Store, checkpoints: str) -> int:
    """Rows that a batch read: from the totals of the next entry, for the last batch from a file beside its offsets. A
    table without stages counts nothing, because it writes what it reads."""
    if next_entry is not None:
        read = next_entry.counts.row_counts.get(READ, 0) - entry.counts.row_counts.get(READ, 0)
        return read if read > 0 else commit.rows
    row_counts = read_row_counts(store, f"{checkpoints}/{entry.generation}", entry.batch)
    return row_counts.get(READ) or commit.rows


# The state that a runner reports for each table: one small file per table, written when the state changes.


RunnerPhase = Literal["starting", "running", "retrying", "failed", "finished", "stopped"]


@dataclass(frozen=True)
class RunnerStatus:
    state: RunnerPhase
    reason: str | None = None
    hint: str | None = None
    since: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    process: int = field(default_factory=os.getpid)
    host: str = field(default_factory=socket.gethostname)


def _state_path(system: str, table: str) -> str:
    return f"{system}/state/{table}.json"


def write_state(store: Store, system: str, table: str, state: RunnerStatus) -> None:
    store.write(_state_path(system, table), json.dumps(asdict(state)))


def read_state(store: Store, system: str, table: str) -> RunnerStatus | None:
    """None if the table never ran, or if the file is unreadable."""
    try:
        return RunnerStatus(**json.loads(store.read(_state_path(system, table)) or "null"))
    except (ValueError, TypeError):
        return None


# No JVM, no Delta library: only the last few commits of a table are read, and each cluster is asked once for all
# tables.


BROKER_TIMEOUT = 2.5
"""Seconds that an unreachable broker may delay the answer."""
ALIVE = ("starting", "running", "retrying")
NOT_CREATED, CRASHED, UNREADABLE = "not created", "crashed", "unreadable"


@dataclass(frozen=True)
class Status:
    table: str
    state: str
    """The last state that the runner wrote, or: not created, crashed (no process runs it, and none stopped it),
    unreadable."""
    since: str | None = None
    reason: str | None = None
    hint: str | None = None
    process: int | None = None
    """Process of the runner, while it holds the table's lock."""
    generation: int | None = None
    batch: int | None = None
    version: int | None = None
    rows: int = 0
    """Rows landed by batches, as the ledger counts them."""
    rates: Rates | None = None
    """How fast it reads, over the last minutes."""
    last_commit_ms: int | None = None
    partition_lags: tuple[PartitionLag, ...] = ()
    lag: int | None = None
    """Offsets behind the broker's end over all partitions, commits behind the table upstream, or listed files that are
    not read yet; None: unknown."""
    lag_of: str = ""
    """The unit of the lag, unless it is records."""
    lag_unknown: str | None = None
    """Why the lag is unknown."""
    foreign: tuple[Commit, ...] = field(default=())
    """Commits of other programs since the last entry that added or changed rows."""
    stale: Stale | None = None
    replaying: str | None = None
    """Set while a replay of the table is not done: which process runs it, or that none does."""
    skipped_changes: str | None = None
    """Versions upstream that changed rows, and were skipped or ignored because of an option of the source."""

    def age(self, now_ms: float) -> float | None:
        return None if self.last_commit_ms is None else max(0.0, (now_ms - self.last_commit_ms) / 1000)


def status(plan: Plan, tables: Sequence[TablePlan], store: Store) -> list[Status]:
    """One per table, in their order. A table or a broker that cannot be read is reported in its place, not raised."""
    return _with_lag(tables, status_without_broker(plan, tables, store))


def status_without_broker(plan: Plan, tables: Sequence[TablePlan], store: Store) -> list[Status]:
    """The same without asking a broker: for tables that read topics, `partition_lags` have no end and the lag is
    unknown."""
    if plan.local:
        statuses = [_table_status(plan, table, store) for table in tables]
    else:
        with ThreadPoolExecutor(16) as threads:
            statuses = list(threads.map(lambda table: _table_status(plan, table, store), tables))
    return [
        _with_upstream_lag(table, table_status, store) for table, table_status in zip(tables, statuses, strict=True)
    ]


def _table_status(plan: Plan, table: TablePlan, store: Store) -> Status:
    state = read_state(store, plan.system, table.name)
    runner_status = _runner_status(Status(table.name, "stopped"), plan, table, state)
    log = RecentLog(store, table.uri, table.name)
    try:
        head = read_head(log)
        rates = read_rates(log.backwards(), store, table.checkpoints) if head is not None else None
    except PenstockError as error:
        return replace(runner_status, state=UNREADABLE, reason=error.message, hint=error.hint)
    except (ValueError, KeyError, OSError) as error:
        return replace(runner_status, state=UNREADABLE, reason=f"the log of {table.uri} cannot be read: {error}")
    if head is None:
        state_name = runner_status.state if state is not None and runner_status.state != "stopped" else NOT_CREATED
        return replace(runner_status, state=state_name, hint=runner_status.hint or "`penstock run` makes it")
    table_status = replace(
        replace(_with_ledger(runner_status, head), rates=rates),
        stale=stale_against(table, head, store),
        replaying=describe_open_work(plan, table, head),
    )
    if table.delta is not None:
        table_status = replace(table_status, skipped_changes=_passed_over(table.delta, head, store))
    if table.source.follows_changes:
        table_status = replace(table_status, partition_lags=_at_version_ends(table_status.partition_lags, head))
    return _with_unread_files(table.files, table_status, head, store) if table.files is not None else table_status


def _runner_status(status: Status, plan: Plan, table: TablePlan, last_state: RunnerStatus | None) -> Status:
    """The lock tells whether a process runs the table now; the state file has the last state that it wrote."""
    if last_state is not None:
        status = replace(
            status, state=last_state.state, since=last_state.since, reason=last_state.reason, hint=last_state.hint
        )
    if plan.local:
        process = runner(plan, table)
        if process is not None:
            state_name = last_state.state if last_state is not None and last_state.state != "stopped" else "starting"
            return replace(status, state=state_name, process=process)
        process_ended = True
    else:
        process_ended = last_state is not None and has_ended(last_state)
    if last_state is not None and last_state.state in ALIVE and process_ended:
        reason = (
            f"it was {last_state.state}; process {last_state.process} died without shutting down: "
            "killed, or the machine stopped"
        )
        return replace(status, state=CRASHED, reason=reason, hint="`penstock run` continues where the ledger ends")
    return status


def runner(plan: Plan, table: TablePlan) -> int | None:
    """The process that holds the table's run lock; None if none does, or there are no locks."""
    return holder(lock_path(plan.system, table.name, "run")) if plan.local else None


def has_ended(state: RunnerStatus) -> bool:
    """Whether its process ran on this machine and has ended. Processes of other machines cannot be checked."""
    return state.host == socket.gethostname() and not _is_alive(state.process)


def _with_ledger(status: Status, head: LedgerHead) -> Status:
    streams = stream_tables(head.entry)
    lags = [
        PartitionLag(streams[index] if streams else topic, partition, offset)
        for index, source in enumerate(head.entry.after)
        for topic, partitions in sorted(parse(source).items())
        for partition, offset in sorted(partitions.items())
    ]
    foreign = (Origin.FOREIGN_APPEND, Origin.FOREIGN_CHANGE)
    return replace(
        status,
        generation=head.entry.generation,
        batch=head.entry.batch,
        version=head.version,
        rows=head.counts.total,
        last_commit_ms=head.commit.timestamp_ms,
        partition_lags=tuple(lags),
        foreign=tuple(commit for commit in head.later if commit.origin in foreign),
    )


def _at_version_ends(lags: tuple[PartitionLag, ...], head: LedgerHead) -> tuple[PartitionLag, ...]:
    """The changes of a version are read all at once, so a position within one is at its end."""
    versions = [parse_version(text) for text in head.entry.after]
    return tuple(
        lag if version.whole or version.snapshot else replace(lag, position=version.version + 1)
        for lag, version in zip(lags, versions, strict=True)
    )


def _with_unread_files(source: FilesSource, status: Status, head: LedgerHead, store: Store) -> Status:
    count = unread(store, source.uri, head.entry.after[0])
    unknown = None if count is not None else f"the log of {source.uri} does not tell"
    return replace(status, partition_lags=(), lag=count, lag_of="files", lag_unknown=unknown)


def _with_upstream_lag(table: TablePlan, status: Status, store: Store) -> Status:
    """For a table that reads another: how many commits of that one it has not read yet."""
    if table.delta is None or not status.partition_lags:
        return status
    by_name = {source.label: source for source in table.delta_sources}
    lags = [
        _upstream_lag(by_name.get(partition_lag.topic, table.delta), partition_lag, store)
        for partition_lag in status.partition_lags
    ]
    missing = [partition_lag.topic for partition_lag in lags if partition_lag.end is None]
    lag = None if missing else sum(partition_lag.lag or 0 for partition_lag in lags)
    unknown = f"{', '.join(missing)} does not exist" if missing else None
    return replace(status, partition_lags=tuple(lags), lag=lag, lag_unknown=unknown)


def _passed_over(source: DeltaSource, head: LedgerHead, store: Store) -> str | None:
    entry = head.entry
    if len(entry.began) != 1 or len(entry.after) != 1:
        return None
    try:
        return changes_read_past(source_store(source, store), source, entry.began[0], entry.after[0])
    except (PenstockError, OSError, ValueError, KeyError):
        return None


def _upstream_lag(source: DeltaSource, lag: PartitionLag, store: Store) -> PartitionLag:
    log = RecentLog(source_store(source, store), source.uri, source.label)
    return PartitionLag(source.label, 0, lag.position, log.readable_end(lag.position))


def _with_lag(tables: Sequence[TablePlan], statuses: list[Status]) -> list[Status]:
    requests: dict[RequestKey, tuple[TopicsSource, list[int]]] = {}
    for index, table in enumerate(tables):
        if statuses[index].partition_lags and table.topics is not None:
            requests.setdefault(request_key(table.topics), (table.topics, []))[1].append(index)
    for source, indexes in requests.values():
        topics = {lag.topic for index in indexes for lag in statuses[index].partition_lags}
        offsets = fetch_offsets(source, topics, timeout=BROKER_TIMEOUT, earliest=False)
        for index in indexes:
            table_status = statuses[index]
            if offsets.problem:
                statuses[index] = replace(table_status, lag_unknown=offsets.problem)
            else:
                statuses[index] = at_broker(table_status, partition_lags(offsets_of(table_status), offsets))
    return statuses


def at_broker(status: Status, lags: Sequence[PartitionLag]) -> Status:
    """The status with the lags as the broker reports them."""
    missing = sorted({lag.topic for lag in lags if lag.end is None})
    total = None if missing else sum(lag.lag or 0 for lag in lags)
    unknown = f"the broker does not know {', '.join(missing)}" if missing else None
    return replace(status, partition_lags=tuple(lags), lag=total, lag_unknown=unknown)


def offsets_of(status: Status) -> Offsets:
    offsets: Offsets = {}
    for lag in status.partition_lags:
        offsets.setdefault(lag.topic, {})[lag.partition] = lag.position
    return offsets


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _rates_document(rates: Rates | None) -> dict[str, Any]:
    """`rows_per_second` is kept for older scripts."""
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
        **_rates_document(status.rates),
        "last_commit_ms": status.last_commit_ms,
        "age_seconds": None if age is None else round(age, 1),
        "lag": status.lag,
        "lag_of": status.lag_of or None,
        "lag_unknown": status.lag_unknown,
        "partitions": [
            {"topic": lag.topic, "partition": lag.partition, "position": lag.position, "end": lag.end, "lag": lag.lag}
            for lag in status.partition_lags
        ],
        "stale": asdict(status.stale) if status.stale else None,
        "replaying": status.replaying,
        "passed_over": status.skipped_changes,
        "foreign": [
            {
                "version": commit.version,
                "operation": commit.operation,
                "origin": commit.origin.value,
                "rows": commit.rows,
            }
            for commit in status.foreign
        ],
    }
