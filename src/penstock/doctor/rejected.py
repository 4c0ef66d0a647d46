"""Rejected rows and unknown fields, and the symptoms that people notice first: a failed table, nothing arriving,
duplicate rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.doctor.check import CheckSubject, count, listed, span
from penstock.doctor.table_log import oldest_version, version_at
from penstock.ledger.checkpoint import checkpoint_folder
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.row_counts import READ, add_counts, read_row_counts
from penstock.operations.status import ALIVE, CRASHED, NOT_CREATED, UNREADABLE
from penstock.plan.quarantine import quarantine_of

if TYPE_CHECKING:
    from penstock.doctor.backlog import Backlog
    from penstock.doctor.check import Check
    from penstock.doctor.table_log import Pause, RecentCommits
    from penstock.ledger.delta_log import Commit
    from penstock.ledger.entry import Entry
    from penstock.operations.status import Status
    from penstock.plan.model import TablePlan, TriggerPlan
    from penstock.storage.stores import Store

# The checks of what a table rejected: rows in quarantine by reason, and fields that its schema does not name.


MANY, MANY_ROWS_SHARE = 0.01, 0.5
"""Shares of the rows that were read, from which on a finding is more than a note."""
_COLUMN = "_rescued"
_MAX_LENGTH = 40
_FIELD_REASONS = ("wrong_type", "out_of_range", "missing_field", "decode_failed")


@dataclass(frozen=True)
class Rejected:
    """Rows in quarantine over the last day, or since the table was created."""

    seconds: float
    rows: int
    read: int | None = None
    """Rows read in that time; None if not counted."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """`wrong_type amount` -> rows: the reason, with the field or the expectation if one is named."""
    before: int | None = None
    """Rejected rows in the period of the same length before that, if the log reaches back that far."""


@dataclass(frozen=True)
class Rescued:
    """Rows with unknown fields over the last batches, from the statistics of their files."""

    rows: int
    """Rows with fields that the schema does not name."""
    total_rows: int
    batches: int


def quarantine(table: str, rejected: Rejected) -> Check:
    check = CheckSubject("quarantine.share", table)
    period = f"in the last {span(rejected.seconds)}"
    if not rejected.rows:
        return check.ok(f"no row was rejected {period}")
    reasons = sorted(rejected.reasons.items(), key=lambda pair: -pair[1])
    reasons_text = f": {listed((f'{number:,} {reason}' for reason, number in reasons), 4)}" if reasons else ""
    share = rejected.rows / rejected.read if rejected.read else None
    share_text = f" ({share:.1%} of {rejected.read:,} read)" if share is not None else ""
    before_text = f"; {rejected.before:,} in the time before" if rejected.before is not None else ""
    text = f"{count(rejected.rows, 'row')} to quarantine {period}{share_text}{reasons_text}{before_text}"
    fix = f"`penstock dlq show {table}` shows them; correct the schema or the expectation, then `penstock dlq redrive "
    fix += f"{table}` lands what passes; or correct whoever writes the records"
    if share is not None and share >= MANY_ROWS_SHARE:
        return check.red(text, fix)
    return check.warn(text, fix) if share is None or share >= MANY else check.note(text, fix)


def rescued(table: str, result: Rescued) -> Check:
    check = CheckSubject("schema.rescued", table)
    text = f"{result.rows:,} of {result.total_rows:,} rows of the last {count(result.batches, 'batch', 'batches')} "
    text += "have fields that the schema does not name"
    if not result.rows:
        return check.ok(text)
    fix = f"the fields are in the column {_COLUMN} of {table}: name those that matter in its schema"
    return check.warn(text, fix) if result.rows >= MANY_ROWS_SHARE * result.total_rows else check.note(text, fix)


def reason_text(reason: str | None, detail: str | None) -> str:
    """The reason and the field it is about. The content of the record stays out: it may be personal data."""
    name = (detail or "").partition(":")[0].strip() if reason in _FIELD_REASONS else ""
    if reason == "expectation":
        name = (detail or "").strip()
    printable = "".join(letter if letter.isprintable() else "?" for letter in name)[:_MAX_LENGTH]
    return f"{reason} {printable}".strip() if reason else "without a reason"


def read_rescued(store: Store, uri: str, versions: list[int]) -> Rescued | None:
    """None if the files have no statistics for the column of rescued fields."""
    rescued_rows = all_rows = batches = 0
    for version in versions:
        counts = _count_rescued(store.read(f"{uri}/_delta_log/{version:020d}.json") or "")
        if counts is None:
            return None
        rescued_rows, all_rows, batches = rescued_rows + counts[0], all_rows + counts[1], batches + 1
    return Rescued(rescued_rows, all_rows, batches)


def _count_rescued(commit: str) -> tuple[int, int] | None:
    rescued_rows = all_rows = 0
    for line in commit.split("\n"):
        add = json.loads(line).get("add") if line else None
        if add is None:
            continue
        stats = json.loads(add.get("stats") or "{}")
        null_rows = (stats.get("nullCount") or {}).get(_COLUMN)
        if null_rows is None or "numRecords" not in stats:
            return None
        rescued_rows, all_rows = rescued_rows + stats["numRecords"] - null_rows, all_rows + stats["numRecords"]
    return rescued_rows, all_rows


# The quarantine of a table, read without a JVM: how many rows in the last day, and why.


DAY_MS = 86_400_000
_MAX_REASONS = 1_000


def read_rejected(table: TablePlan, store: Store, now_ms: float) -> Rejected | None:
    """None if the table has no quarantine yet. Raises what `deltalake` raises if its rows cannot be read."""
    quarantine_table = quarantine_of(table.name, table.uri)
    quarantine_log = RecentLog(store, quarantine_table.uri, quarantine_table.table)
    table_log = RecentLog(store, table.uri, table.name)
    if quarantine_log.newest() < 0 or table_log.newest() < 0:
        return None
    # Nothing is known of the time before the first entry: the table was created with it, or its log was cleaned.
    since = max(now_ms - DAY_MS, _first_entry_ms(table_log))
    if quarantine_log.commit(0) is None:
        since = max(since, _first_entry_ms(quarantine_log))
    total_now = _total_rows(quarantine_log, quarantine_log.newest())
    total_before = _total_rows(quarantine_log, version_at(quarantine_log, since))
    total_earlier = (
        _total_rows(quarantine_log, version_at(quarantine_log, since - DAY_MS)) if now_ms - since >= DAY_MS else None
    )
    return Rejected(
        seconds=(now_ms - since) / 1000,
        rows=total_now - (total_before or 0) if total_now is not None else 0,
        read=_rows_read(table_log, table, store, since),
        reasons=_count_reasons(quarantine_table.uri, since) if total_now and total_now != total_before else {},
        before=total_before - total_earlier if total_before is not None and total_earlier is not None else None,
    )


def _first_entry_ms(log: RecentLog) -> float:
    first = _find_entry(log, range(oldest_version(log), log.newest() + 1))
    return first[0].timestamp_ms if first is not None else 0.0


def _total_rows(log: RecentLog, version: int | None) -> int | None:
    """Rows of all batches up to a version, as the ledger of the quarantine counts them."""
    last = _find_entry(log, range(-1 if version is None else version, -1, -1))
    if last is None:
        return None
    commit, entry = last
    return entry.counts.total + (commit.rows if entry.kind == "batch" else 0)


def _rows_read(log: RecentLog, table: TablePlan, store: Store, since_ms: float) -> int | None:
    """Rows that the table read since then; None if they are not counted. An entry counts the batches before it; the
    counts of the last batch are in a file until the next entry has them."""
    newest, version_before = log.newest(), version_at(log, since_ms)
    last = _find_entry(log, range(newest, -1, -1))
    if last is None:
        return None
    entry = last[1]
    counts = entry.counts.row_counts
    if entry.kind in ("batch", "fill"):
        folder = checkpoint_folder(table.checkpoints, entry)
        counts = add_counts(counts, read_row_counts(store, folder, entry.batch))
    if READ not in counts:
        return None
    first = _find_entry(log, range(0 if version_before is None else version_before + 1, newest + 1))
    counts_before = first[1].counts.row_counts if first is not None else counts
    rows = counts[READ] - counts_before.get(READ, 0)
    return rows if rows >= 0 else None  # a replay since then has begun to count from 0


def _find_entry(log: RecentLog, versions: Iterable[int]) -> tuple[Commit, Entry] | None:
    """The first of these commits that carries an entry, as far as the log reaches."""
    for version in versions:
        commit = log.commit(version)
        if commit is None:
            return None
        if commit.entry is not None:
            return commit, commit.entry
    return None


def _count_reasons(uri: str, since_ms: float) -> dict[str, int]:
    from deltalake import QueryBuilder

    from penstock.storage.delta_rows import open_table

    engine = QueryBuilder().register("rows", open_table(uri))
    batches = engine.execute(
        "SELECT error_reason, CASE WHEN error_reason = 'expectation' THEN error_detail "
        "ELSE split_part(error_detail, ':', 1) END AS detail, count(*) AS rows FROM rows "
        f"WHERE error_timestamp >= to_timestamp_millis({round(since_ms)}) GROUP BY 1, 2 ORDER BY 3 DESC "
        f"LIMIT {_MAX_REASONS}"
    )
    counts: dict[str, int] = {}
    for batch in batches:
        for reason, detail, rows in zip(*(batch.column(index).to_pylist() for index in range(3)), strict=True):
            label = reason_text(reason, detail)
            counts[label] = counts.get(label, 0) + int(rows)
    return counts


# The checks of symptoms that people notice first: the table failed, nothing arrives, rows are duplicated.


_STUCK_FACTOR = 3
"""This many triggers, or usual batch times, without a commit although records wait: the table is stuck."""
_MIN_STUCK_SECONDS = 60.0
_USUAL_REST = 3600.0


@dataclass(frozen=True)
class SilenceEvidence:
    """Evidence that explains why nothing arrives."""

    trigger: TriggerPlan
    starting: str
    """The value of `starting`."""
    records_held: int | None = None
    """Records that its topics hold in total; None for other sources, or if unknown."""
    newest_ms: int | None = None
    """Time of the newest record of its topics."""


def state(status: Status) -> Check:
    check = CheckSubject("table.state", status.table)
    since, reason = _since_text(status), status.reason or "no reason was recorded"
    if status.state in ("failed", CRASHED, UNREADABLE):
        fix = status.hint or f"`penstock run {status.table}` tries again"
        return check.red(f"{status.state}{since}: {reason}", fix)
    if status.state == "retrying":
        return check.warn(f"trying again{since}: {reason}", status.hint or "it continues by itself")
    if status.state == NOT_CREATED:
        return check.note("not created yet: it never ran", f"`penstock run {status.table}` makes it")
    return check.ok(f"{status.state}{since}")


def silent(
    status: Status,
    evidence: SilenceEvidence,
    backlog: Backlog,
    recent_commits: RecentCommits,
    pause: Pause | None,
    now_ms: float,
) -> Check:
    """Why nothing arrives in a table, or that something does."""
    check = CheckSubject("table.silent", status.table)
    if status.state in (NOT_CREATED, UNREADABLE):
        return check.unknown(f"the table is {status.state}")
    if backlog.lag is None:
        return check.unknown(backlog.unknown or "how much waits is not known")
    if not backlog.lag:
        return _check_without_lag(check, status, evidence, now_ms)
    age = backlog.age(now_ms)
    lag_text = f"{count(backlog.lag, backlog.unit)} {'waits' if backlog.lag == 1 else 'wait'}"
    lag_text += f", the oldest for {span(age)}" if age is not None else ""
    if status.state not in ALIVE:
        fix = f"`penstock run {status.table}`"
        idle_text = f"the table is not running: it is {status.state}{_since_text(status)}"
        usual_rest = max(_USUAL_REST, pause.seconds if pause is not None else 0.0)
        if age is not None and age <= usual_rest and status.state in ("finished", "stopped"):
            return check.note(f"{lag_text}; {idle_text}", fix)
        longer_text = (
            f", longer than any pause before ({span(pause.seconds)})" if pause and (age or 0) > usual_rest else ""
        )
        return check.warn(f"{lag_text}{longer_text}; {idle_text}", fix)
    trigger_seconds = evidence.trigger.seconds or 0.0
    patience = max(_MIN_STUCK_SECONDS, _STUCK_FACTOR * max(trigger_seconds, recent_commits.usual_seconds or 0.0))
    since_commit = status.age(now_ms)
    if since_commit is not None and since_commit > patience and (age or 0) > patience:
        return check.red(
            f"{lag_text}; it runs (process {status.process}), but its last commit is {span(since_commit)} old",
            "Spark's log in .penstock/logs says what it does; stop it and start it again: it continues where the "
            "ledger ends",
        )
    if not status.rows and since_commit is not None and since_commit < trigger_seconds:
        return check.note(
            f"{lag_text}; the first batch has not begun: the trigger is {span(trigger_seconds)}, the table was made "
            f"{span(since_commit)} ago"
        )
    return check.ok(f"{lag_text}; batches come")


def _check_without_lag(check: CheckSubject, status: Status, evidence: SilenceEvidence, now_ms: float) -> Check:
    if status.rows:
        text = f"all is read, {count(status.rows, 'row')} so far"
        if evidence.newest_ms is not None:
            text += f"; the newest record of its topics is {span(max(0.0, (now_ms - evidence.newest_ms) / 1000))} old"
        return check.ok(text)
    if evidence.records_held == 0:
        return check.note("the table is empty, and so are its topics: no record was written to them")
    if status.batch:
        return check.note(
            f"{count(status.batch, 'batch', 'batches')} of this generation left no row: all were filtered, rejected or "
            "without data",
            f"`penstock history {status.table}` shows what each of them read",
        )
    if evidence.records_held and evidence.starting == "latest":
        return check.note(
            f"the table is empty: it began with what came after it was made (starting: latest), and nothing did; its "
            f"topics hold {count(evidence.records_held, 'record')} from before",
            f"`penstock checkpoints reset {status.table} --to earliest` reads those too",
        )
    return check.note(f"the table is empty, and nothing waits (starting: {evidence.starting})")


def foreign(status: Status, recent_commits: RecentCommits) -> Check:
    """Commits of others: rows that no ledger entry covers."""
    check = CheckSubject("table.foreign", status.table)
    if status.state == NOT_CREATED:
        return check.ok("there is no table yet")
    if recent_commits.duplicates:
        first, second = recent_commits.duplicates[0]
        return check.red(
            f"{count(len(recent_commits.duplicates), 'batch', 'batches')} written twice: versions {first} and {second}"
            + (" and others" if len(recent_commits.duplicates) > 1 else ""),
            f"two processes wrote without a common lock: stop one; `penstock verify {status.table}` names the doubled "
            "rows",
        )
    changing = [commit for commit in status.foreign if commit.changes]
    if changing:
        first_change = changing[0]
        return check.red(
            f"version {first_change.version} ({first_change.operation}) removed or replaced rows and awaits a "
            "decision: the table stops at its next batch",
            f"`penstock checkpoints reset {status.table} --to ledger` accepts it; docs/recovery.md has the ways on",
        )
    if recent_commits.foreign_appends:
        rows = sum(commit.rows for commit in recent_commits.foreign_appends)
        return check.warn(
            f"{count(rows, 'row')} were added by others in {count(len(recent_commits.foreign_appends), 'commit')} of "
            f"the last {recent_commits.commits} (version "
            f"{listed((str(commit.version) for commit in recent_commits.foreign_appends), 3)})",
            f"`penstock verify {status.table}` names what is doubled; keep other writers off the table",
        )
    return check.ok(f"the last {count(recent_commits.commits, 'commit')} are Penstock's own or changed no row")


def _since_text(status: Status) -> str:
    return f" since {status.since}" if status.since else ""
