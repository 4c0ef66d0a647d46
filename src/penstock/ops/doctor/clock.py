"""Clocks: nothing may have happened in the future."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.ops.doctor.check import About, Check
from penstock.ops.doctor.said import span

ALLOWED = 5.0
"""Seconds by which two clocks may differ without a word."""
FAR = 300.0


@dataclass(frozen=True)
class Newest:
    """The newest record of a topic."""

    time_ms: int
    by_broker: bool


def skew(commits: Mapping[str, int | None], records: Mapping[str, Newest], now_ms: float, unknown: str | None) -> Check:
    """`commits` is the time of each table's newest commit, `records` of each topic's newest record; `unknown` says why
    there are none of the latter. A clock that is behind ours is not seen: its records look old."""
    about = About("clock.skew")
    ahead = [
        ((time_ms - now_ms) / 1000, f"the newest commit of {table}", "the clock of this machine went back")
        for table, time_ms in commits.items()
        if time_ms is not None
    ]
    for topic, newest in records.items():
        whose = "the broker's clock" if newest.by_broker else "the clock of whoever wrote it"
        ahead.append(((newest.time_ms - now_ms) / 1000, f"the newest record of {topic}", f"{whose} is ahead"))
    if not ahead:
        return about.unknown(f"there is no commit and no record to compare with{': ' + unknown if unknown else ''}")
    seconds, what, means = max(ahead)
    said = f"{what} lies {span(seconds)} in the future: {means}, or this machine's clock is behind"
    fix = "set both clocks by NTP (`timedatectl set-ntp true`); times in the tables are only as good as these"
    if seconds > FAR:
        return about.red(said, fix)
    if seconds > ALLOWED:
        return about.warn(said, fix)
    known = f"{len(ahead)} commits and records looked at, the newest {span(max(0.0, -seconds))} old, none in the future"
    return about.ok(known if unknown is None else f"{known}; of records nothing is known: {unknown}")
