"""What a table could not take, and what people see first: a failed table, nothing arriving, rows that are there
twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.doctor.check import CheckSubject, count, listed, span
from penstock.doctor.table_log import version_at
from penstock.ledger.checkpoint import folder_of
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.row_counts import READ, read_row_counts
from penstock.operations.status import ALIVE, CRASHED, NOT_CREATED, UNREADABLE
from penstock.plan.quarantine import quarantine_of

if TYPE_CHECKING:
    from penstock.doctor.backlog import Backlog
    from penstock.doctor.check import Check
    from penstock.doctor.table_log import Lately, Pause
    from penstock.ledger.entry import Entry
    from penstock.operations.status import Status
    from penstock.plan.model import TablePlan, TriggerPlan
    from penstock.storage.stores import Store

# What a table could not take: rows in quarantine by reason, and fields that its schema does not name.


MANY, MOST = 0.01, 0.5
"""Shares of the rows that were read."""
_COLUMN = "_rescued"
_LONGEST = 40
_OF_A_FIELD = ("wrong_type", "out_of_range", "missing_field", "decode_failed")


@dataclass(frozen=True)
class Rejected:
    """Over the last day, or since the table was made."""

    seconds: float
    rows: int
    read: int | None = None
    """None: not counted."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    """`wrong_type amount` -> rows: the reason, and the field or the check where one is named."""
    before: int | None = None
    """Rows of the time before that, as long, if the log goes back so far."""


@dataclass(frozen=True)
class Rescued:
    """Over the last batches, from the statistics of their files."""

    rows: int
    """With fields that the schema does not name."""
    of: int
    batches: int


def quarantine(table: str, rejected: Rejected) -> Check:
    about = CheckSubject("quarantine.share", table)
    lately = f"in the last {span(rejected.seconds)}"
    if not rejected.rows:
        return about.ok(f"no row was rejected {lately}")
    reasons = sorted(rejected.reasons.items(), key=lambda pair: -pair[1])
    named = f": {listed((f'{number:,} {reason}' for reason, number in reasons), 4)}" if reasons else ""
    share = rejected.rows / rejected.read if rejected.read else None
    part = f" ({share:.1%} of {rejected.read:,} read)" if share is not None else ""
    was = f"; {rejected.before:,} in the time before" if rejected.before is not None else ""
    said = f"{count(rejected.rows, 'row')} to quarantine {lately}{part}{named}{was}"
    fix = f"`penstock dlq show {table}` shows them; correct the schema or the expectation, then `penstock dlq redrive "
    fix += f"{table}` lands what passes; or correct whoever writes the records"
    if share is not None and share >= MOST:
        return about.red(said, fix)
    if share is None or share >= MANY:
        return about.warn(said, fix)
    return about.note(said, fix)


def rescued(table: str, found: Rescued) -> Check:
    about = CheckSubject("schema.rescued", table)
    said = f"{found.rows:,} of {found.of:,} rows of the last {count(found.batches, 'batch', 'batches')}"
    if not found.rows:
        return about.ok(f"{said} have fields that the schema does not name")
    fix = f"the fields are in the column {_COLUMN} of {table}: name those that matter in its schema"
    if found.rows >= MOST * found.of:
        return about.warn(f"{said} have fields that the schema does not name", fix)
    return about.note(f"{said} have fields that the schema does not name", fix)


def reason_said(reason: str | None, detail: str | None) -> str:
    """The reason and the field it is about. What the record held stays out: it may be anybody's."""
    name = (detail or "").partition(":")[0].strip() if reason in _OF_A_FIELD else ""
    if reason == "expectation":
        name = (detail or "").strip()
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)[:_LONGEST]
    return f"{reason} {shown}".strip() if reason else "without a reason"


def read_rescued(store: Store, uri: str, versions: list[int]) -> Rescued | None:
    """None if the files have no statistics of that column."""
    rows = of = batches = 0
    for version in versions:
        counted = _counted(store.read(f"{uri}/_delta_log/{version:020d}.json") or "")
        if counted is None:
            return None
        rows, of, batches = rows + counted[0], of + counted[1], batches + 1
    return Rescued(rows, of, batches)


def _counted(commit: str) -> tuple[int, int] | None:
    rows = of = 0
    for line in commit.split("\n"):
        add = json.loads(line).get("add") if line else None
        if add is None:
            continue
        stats = json.loads(add.get("stats") or "{}")
        without = (stats.get("nullCount") or {}).get(_COLUMN)
        if without is None or "numRecords" not in stats:
            return None
        rows, of = rows + stats["numRecords"] - without, of + stats["numRecords"]
    return rows, of


# The quarantine of a table, read without a JVM: how many rows of the last day, and why.


DAY_MS = 86_400_000
_MOST_REASONS = 1_000


def read_rejected(table: TablePlan, store: Store, now_ms: float) -> Rejected | None:
    """None if the table has no quarantine yet. Raises what `deltalake` raises if its rows cannot be read."""
    place = quarantine_of(table.name, table.uri)
    log, own = RecentLog(store, place.uri, place.table), RecentLog(store, table.uri, table.name)
    if log.newest() < 0 or own.newest() < 0:
        return None
    since = now_ms - DAY_MS
    made = own.commit(0)
    if made is not None and made.timestamp_ms > since:
        since = made.timestamp_ms
    now, then = _total(log, None), _total(log, since)
    earlier = _total(log, since - DAY_MS) if now_ms - since >= DAY_MS else None
    return Rejected(
        seconds=(now_ms - since) / 1000,
        rows=now - (then or 0) if now is not None else 0,
        read=_read(own, table, store, since),
        reasons=_reasons(place.uri, since) if now and now != then else {},
        before=then - earlier if then is not None and earlier is not None else None,
    )


def _total(log: RecentLog, at_ms: float | None) -> int | None:
    """Rows of all batches up to a time, as the quarantine's own ledger counts them."""
    version = log.newest() if at_ms is None else version_at(log, at_ms)
    while version is not None and version >= 0 and (commit := log.commit(version)) is not None:
        if commit.entry is not None:
            return commit.entry.counts.total + (commit.rows if commit.entry.kind == "batch" else 0)
        version -= 1
    return None


def _read(log: RecentLog, table: TablePlan, store: Store, since_ms: float) -> int | None:
    """Rows that the table read since then; None if nobody counts them. Those of the last batch are in a file until the
    entry of the next one has them."""
    now, then = _entry(log, log.newest()), _entry(log, version_at(log, since_ms))
    if now is None:
        return None
    last = read_row_counts(store, folder_of(table.checkpoints, now), now.batch) if now.kind == "batch" else {}
    if READ not in now.counts.row_counts and READ not in last:
        return None
    before = then.counts.row_counts.get(READ, 0) if then is not None else 0
    return now.counts.row_counts.get(READ, 0) + last.get(READ, 0) - before


def _entry(log: RecentLog, version: int | None) -> Entry | None:
    while version is not None and version >= 0 and (commit := log.commit(version)) is not None:
        if commit.entry is not None:
            return commit.entry
        version -= 1
    return None


def _reasons(uri: str, since_ms: float) -> dict[str, int]:
    from deltalake import QueryBuilder

    from penstock.storage.delta_rows import open_table

    engine = QueryBuilder().register("rows", open_table(uri))
    batches = engine.execute(
        "SELECT error_reason, CASE WHEN error_reason = 'expectation' THEN error_detail "
        "ELSE split_part(error_detail, ':', 1) END AS detail, count(*) AS rows FROM rows "
        f"WHERE error_timestamp >= to_timestamp_millis({round(since_ms)}) GROUP BY 1, 2 ORDER BY 3 DESC "
        f"LIMIT {_MOST_REASONS}"
    )
    found: dict[str, int] = {}
    for batch in batches:
        for reason, detail, rows in zip(*(batch.column(index).to_pylist() for index in range(3)), strict=True):
            said = reason_said(reason, detail)
            found[said] = found.get(said, 0) + int(rows)
    return found


# What people see first: the table has failed, nothing comes, rows are there twice. Told from evidence.


_STUCK = 3
"""Triggers, or usual batches, without a commit although something waits."""
_LEAST_STUCK = 60.0
_FRESH = 3600.0


@dataclass(frozen=True)
class SilenceEvidence:
    """What tells why nothing comes."""

    trigger: TriggerPlan
    starting: str
    """What `starting` says."""
    held: int | None = None
    """Records that its topics hold in all; None of other sources, or if unknown."""
    newest_ms: int | None = None
    """Time of the newest record of its topics."""


def state(status: Status) -> Check:
    about = CheckSubject("table.state", status.table)
    since = f" since {status.since}" if status.since else ""
    if status.state in ("failed", CRASHED, UNREADABLE):
        reason = status.reason or "nobody said why"
        return about.red(
            f"{status.state}{since}: {reason}", status.hint or f"`penstock run {status.table}` tries again"
        )
    if status.state == "retrying":
        return about.warn(
            f"trying again{since}: {status.reason or 'nobody said why'}", status.hint or "it goes on by itself"
        )
    if status.state == NOT_CREATED:
        return about.note("not created yet: it never ran", f"`penstock run {status.table}` makes it")
    return about.ok(f"{status.state}{since}")


def silent(
    status: Status, quiet: SilenceEvidence, backlog: Backlog, recent: Lately, pause: Pause | None, now_ms: float
) -> Check:
    """Why nothing comes into a table, or that something does."""
    about = CheckSubject("table.silent", status.table)
    if status.state in (NOT_CREATED, UNREADABLE):
        return about.unknown(f"the table is {status.state}")
    if backlog.lag is None:
        return about.unknown(backlog.unknown or "how much waits is not known")
    if not backlog.lag:
        return _nothing_waits(about, status, quiet, now_ms)
    age = backlog.age(now_ms)
    waits = f"{count(backlog.lag, backlog.unit)} {'waits' if backlog.lag == 1 else 'wait'}"
    waits += f", the oldest for {span(age)}" if age is not None else ""
    if status.state not in ALIVE:
        run = f"`penstock run {status.table}`"
        usual = max(_FRESH, pause.seconds if pause is not None else 0.0)
        if age is not None and age <= usual and status.state in ("finished", "stopped"):
            return about.note(f"{waits}; nobody runs the table: it {_ended(status)}", run)
        longer = f", longer than any pause before ({span(pause.seconds)})" if pause and (age or 0) > usual else ""
        return about.warn(f"{waits}{longer}; nobody runs the table: it {_ended(status)}", run)
    patience = max(_LEAST_STUCK, _STUCK * (quiet.trigger.seconds or 0), _STUCK * (recent.usual_seconds or 0))
    quiet_for = status.age(now_ms)
    if quiet_for is not None and quiet_for > patience and (age or 0) > patience:
        return about.red(
            f"{waits}; it runs (process {status.process}), but its last commit is {span(quiet_for)} old",
            "Spark's log in .penstock/logs says what it does; stop it and start it again: it goes on where the ledger "
            "ends",
        )
    if not status.rows and quiet_for is not None and quiet.trigger.seconds and quiet_for < quiet.trigger.seconds:
        return about.note(
            f"{waits}; the first batch has not begun: the trigger is {span(quiet.trigger.seconds)}, the table was made "
            f"{span(quiet_for)} ago"
        )
    return about.ok(f"{waits}; batches come")


def _nothing_waits(about: CheckSubject, status: Status, quiet: SilenceEvidence, now_ms: float) -> Check:
    if status.rows:
        newest = ""
        if quiet.newest_ms is not None:
            newest = f"; the newest record of its topics is {span(max(0.0, (now_ms - quiet.newest_ms) / 1000))} old"
        return about.ok(f"all is read, {count(status.rows, 'row')} so far{newest}")
    if quiet.held == 0:
        return about.note("the table is empty, and so are its topics: nobody has written to them")
    if status.batch:
        return about.note(
            f"{count(status.batch, 'batch', 'batches')} of this generation left no row: all were filtered, rejected or "
            "without data",
            f"`penstock history {status.table}` shows what each of them read",
        )
    if quiet.held and quiet.starting == "latest":
        return about.note(
            f"the table is empty: it began with what came after it was made (starting: latest), and nothing did; its "
            f"topics hold {count(quiet.held, 'record')} from before",
            f"`penstock checkpoints reset {status.table} --to earliest` reads those too",
        )
    return about.note(f"the table is empty, and nothing waits (starting: {quiet.starting})")


def foreign(status: Status, recent: Lately) -> Check:
    """Commits of others: rows that no ledger has."""
    about = CheckSubject("table.foreign", status.table)
    if status.state == NOT_CREATED:
        return about.ok("there is no table yet")
    if recent.doubled:
        first, second = recent.doubled[0]
        return about.red(
            f"{count(len(recent.doubled), 'batch', 'batches')} written twice: versions {first} and {second}"
            + (" and others" if len(recent.doubled) > 1 else ""),
            f"two processes wrote without a common lock: stop one; `penstock verify {status.table}` names the doubled "
            "rows",
        )
    changed = [commit for commit in status.foreign if commit.changes]
    if changed:
        one = changed[0]
        return about.red(
            f"version {one.version} ({one.operation}) removed or replaced rows, and nobody has decided what follows: "
            "the table stops at its next batch",
            f"`penstock checkpoints reset {status.table} --to ledger` accepts it; docs/recovery.md has the ways on",
        )
    if recent.appended:
        rows = sum(commit.rows for commit in recent.appended)
        return about.warn(
            f"{count(rows, 'row')} were added by others in {count(len(recent.appended), 'commit')} of the last "
            f"{recent.commits} (version {listed((str(commit.version) for commit in recent.appended), 3)})",
            f"`penstock verify {status.table}` names what is doubled; let nobody else write to the table",
        )
    return about.ok(f"the last {count(recent.commits, 'commit')} are Penstock's own or changed no row")


def _ended(status: Status) -> str:
    since = f" since {status.since}" if status.since else ""
    return f"is {status.state}{since}"
