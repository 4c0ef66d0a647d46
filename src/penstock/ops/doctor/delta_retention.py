"""How long the tables upstream keep what was not read yet."""

from __future__ import annotations

from penstock.ops.doctor.check import About, Check
from penstock.ops.doctor.said import count, span
from penstock.ops.doctor.times import Pause
from penstock.ops.doctor.upstream import Upstream

_HALF = 0.5


def delta_retention(reader: str, upstream: Upstream, pause: Pause | None, now_ms: float) -> Check:
    """`pause` is the longest of the reader."""
    about = About("delta.retention", reader)
    name = upstream.name
    if upstream.lost is not None:
        first, last = upstream.lost
        return about.red(
            f"versions {first} to {last} of {name} were not read, and its log no longer has them",
            f"`penstock checkpoints reset {reader} --to earliest|latest|source:N` decides where to go on",
        )
    if upstream.unknown:
        return about.unknown(upstream.unknown)
    log, files = upstream.log_kept, upstream.files_kept
    log_said = "for ever" if log is None else f"for {span(log)}"
    kept = f"{name} keeps its log {log_said}, replaced files for {span(files or 0)}"
    age = 0.0 if upstream.oldest_ms is None else max(0.0, (now_ms - upstream.oldest_ms) / 1000)
    waits = f"{count(upstream.lag, 'commit')} not read yet, the oldest {span(age)} old" if age else "all is read"
    run = f"`penstock run {reader}` reads them"
    shortest = min(one for one in (log, files) if one is not None)
    longer = _longer(name, max(2 * shortest, 2 * (pause.seconds if pause else 0.0)))
    if log is not None and age > log:
        return about.red(f"{waits}; {kept}: the next clean-up of the log takes them", f"{run}; or {longer}")
    if files is not None and age > files:
        return about.warn(
            f"{waits}; {kept}: VACUUM may delete files that compaction replaced before they are read",
            f"{run}, before the next VACUUM; or {longer}",
        )
    if age > _HALF * shortest:
        return about.warn(f"{waits}; {kept}", f"{run}; or {longer}")
    if pause is not None and pause.seconds > shortest:
        return about.warn(
            f"{kept}, less than the longest pause of {reader}, {span(pause.seconds)} (before version "
            f"{pause.before_version}): such a pause could lose rows",
            longer,
        )
    return about.ok(f"{waits}; {kept}")


def _longer(table: str, seconds: float) -> str:
    days = max(1, round(seconds / 86_400))
    properties = f"{{delta.logRetentionDuration: interval {max(30, days)} days, "
    properties += f"delta.deletedFileRetentionDuration: interval {days} days}}"
    return (
        f"keep it longer: `write: {{properties: {properties}}}` of {table} for a new table, ALTER TABLE … SET "
        "TBLPROPERTIES for one that is there"
    )
