"""Does the table keep up: with its trigger, with its SLA, with what comes?"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.ops.doctor.backlog import Backlog
from penstock.ops.doctor.check import About, Check
from penstock.ops.doctor.lately import Lately
from penstock.ops.doctor.said import count, rate, span
from penstock.plan.model import Trigger

_LATE_SHARE = 2 / 3
"""Of the SLA, from which on there is no room for another late batch."""

_ENOUGH = 5
"""Batches from which on their median means something."""


@dataclass(frozen=True)
class Runner:
    """How a table is run."""

    table: str
    trigger: Trigger
    alive: bool
    most: str = ""
    """The bound of its batches as the project file says it; empty if there is none."""


def batches(runner: Runner, recent: Lately) -> Check:
    """How long batches take, against the trigger."""
    about = About("pace.batches", runner.table)
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
    about = About("pace.sla", runner.table)
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
    about = About("pace.behind", runner.table)
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
