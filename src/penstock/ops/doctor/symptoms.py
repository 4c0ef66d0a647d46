"""What people see first: the table has failed, nothing comes, rows are there twice. Told from evidence."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.ops.doctor.backlog import Backlog
from penstock.ops.doctor.check import About, Check
from penstock.ops.doctor.lately import Lately
from penstock.ops.doctor.said import count, listed, span
from penstock.ops.doctor.times import Pause
from penstock.ops.status import ALIVE, CRASHED, NOT_CREATED, UNREADABLE, Status
from penstock.plan.model import Trigger

_STUCK = 3
"""Triggers, or usual batches, without a commit although something waits."""
_LEAST_STUCK = 60.0
_FRESH = 3600.0


@dataclass(frozen=True)
class Quiet:
    """What tells why nothing comes."""

    trigger: Trigger
    starting: str
    """What `starting` says."""
    held: int | None = None
    """Records that its topics hold in all; None of other sources, or if unknown."""
    newest_ms: int | None = None
    """Time of the newest record of its topics."""


def state(status: Status) -> Check:
    about = About("table.state", status.table)
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


def silent(status: Status, quiet: Quiet, backlog: Backlog, recent: Lately, pause: Pause | None, now_ms: float) -> Check:
    """Why nothing comes into a table, or that something does."""
    about = About("table.silent", status.table)
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


def _nothing_waits(about: About, status: Status, quiet: Quiet, now_ms: float) -> Check:
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
    about = About("table.foreign", status.table)
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
