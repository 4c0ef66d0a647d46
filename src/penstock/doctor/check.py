"""The result of one check: the finding, why it matters, what to do; and every check by its id.

`doctor` is a production checklist that is answered from evidence. Evidence, each piece read once: the snapshot of a
table (its log, its upstreams, its quarantine), topics and backlog (brokers), machine. The checks are pure functions
over it: backlog, files, machine, rejected, retention, security, topics, versions. `examine` reads the snapshots and
brings both together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

REASONS: Mapping[str, str] = {
    "lake.durable": "the lake holds the tables, their ledgers and their checkpoints: what takes it takes them all",
    "lake.locks": "on a local lake two writers are kept apart by POSIX locks, which not every file system has",
    "lake.readable": "without the lake nothing is known about the tables",
    "lake.leftovers": "unused data takes space, or shows that another project uses the same lake",
    "disk.room": "a full disk stops every table, and Spark's temporary files with it",
    "memory.driver": "a JVM that grows beyond the memory there is gets killed by the kernel, in the midst of a batch",
    "versions.packages": "other versions of Spark and Delta than the pinned ones have other faults",
    "versions.jars": "jars that are not the listed ones are other programs",
    "versions.java": "Spark runs on it",
    "secrets.plain": "who may read the project file, or any copy of it, has the secret",
    "secrets.files": "who can read the file of a key or a password has it; who can change a project runs code",
    "kafka.secure": "who listens on the way reads the records, and a password that is sent in clear",
    "targets.secure": "who listens on the way reads the rows, and a password that is sent in clear",
    "kafka.answers": "without a broker nothing is landed, and what it keeps meanwhile ages",
    "kafka.consumers": "consumers beyond the cache are reopened in every batch",
    "clock.skew": "times of batches, retention and windows of time go by the clocks of this machine and of Kafka",
    "table.state": "a table that does not run lands nothing",
    "table.checkpoint": "each stream has a checkpoint of its own, which says what its ledger says",
    "table.foreign": "what others write is in no ledger: rows may be doubled or gone, and `verify` finds them",
    "kafka.topics": "what a table reads has to be there, and has to be what it was when it was read last",
    "kafka.retention": "Kafka deletes what is too old, whether it was read or not",
    "kafka.compaction": "of the records with one key compaction leaves the newest, whether the others were read or not",
    "kafka.partitions": "a partition is read by one task at a time",
    "delta.retention": "the log and the replaced files of a table go after a time, whether they were read or not",
    "table.silent": "a table into which nothing comes looks like one where all is well",
    "pace.batches": "batches that take longer than the trigger run back to back, and there is no reserve left",
    "pace.sla": "data older than the SLA breaches the freshness target",
    "pace.behind": "a table that falls behind reaches the end of retention sooner or later",
    "table.files": "every query opens every file: many small ones cost more time than their rows",
    "table.log": "whoever opens the table reads all commits since Delta's last checkpoint",
    "quarantine.share": "rejected rows are kept, but queries of the table miss them",
    "schema.rescued": "fields that the schema does not name are kept as JSON, and are in no column",
}
"""Every check by its id, in the order in which they run, and why it matters. docs/doctor.md describes them all."""

Level = Literal["red", "warn", "unknown", "note", "ok"]
LEVELS: tuple[Level, ...] = ("red", "warn", "unknown", "note", "ok")
"""The worst first. Only red makes `doctor` fail."""
PROJECT = "the project"
"""The subject of checks that are not about one table. It has a space, so no table can have this name."""


@dataclass(frozen=True)
class Check:
    id: str
    subject: str
    """A table or a sink by its name, or the project."""
    level: Level
    found: str
    """The finding, with the numbers that decided it; for `unknown`, why it could not be determined."""
    why: str
    fix: str = ""
    """A command, or a line of the project file; empty if there is nothing to do."""


@dataclass(frozen=True)
class CheckSubject:
    """One check of one subject, before its outcome is known."""

    id: str
    subject: str = PROJECT

    def ok(self, finding: str) -> Check:
        return self._check("ok", finding, "")

    def note(self, finding: str, fix: str = "") -> Check:
        return self._check("note", finding, fix)

    def warn(self, finding: str, fix: str) -> Check:
        return self._check("warn", finding, fix)

    def red(self, finding: str, fix: str) -> Check:
        return self._check("red", finding, fix)

    def unknown(self, reason: str, fix: str = "") -> Check:
        """For what cannot be determined: it never counts as fine."""
        return self._check("unknown", reason, fix)

    def _check(self, level: Level, finding: str, fix: str) -> Check:
        return Check(self.id, self.subject, level, finding, REASONS[self.id], fix)


def is_healthy(checks: Iterable[Check]) -> bool:
    return all(check.level != "red" for check in checks)


def check_json(check: Check) -> dict[str, Any]:
    return asdict(check)


# Numbers in readable form.


_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def span(seconds: float) -> str:
    """`3 d 4 h`, `2 h 5 min`, `40 s`, `0.3 s`: two units at most."""
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    remaining = round(seconds)
    for index, (length, unit) in enumerate(_SPANS):
        if remaining >= length:
            amount, remaining = divmod(remaining, length)
            smaller, smaller_unit = _SPANS[index + 1] if index + 1 < len(_SPANS) else (1, "s")
            return (
                f"{amount} {unit} {remaining // smaller} {smaller_unit}" if remaining // smaller else f"{amount} {unit}"
            )
    return f"{remaining} s"


def size(number: float) -> str:
    """`1.5 GiB`."""
    for unit in _SIZES[:-1]:
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if unit == "bytes" or abs(number) >= 100 else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} {_SIZES[-1]}"


def count(number: int, noun: str, nouns: str | None = None) -> str:
    """`1 record`, `1,200 records`."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def rate(per_second: float) -> str:
    """`12/s`; slow rates as `3/h` or `0.5/d`."""
    if per_second >= 1:
        return f"{per_second:,.0f}/s"
    hourly = per_second * 3600
    return f"{hourly:,.0f}/h" if hourly >= 1 else f"{per_second * 86_400:.1f}/d"


def listed(names: Iterable[str], most: int = 5) -> str:
    """`a, b, c and 4 more`."""
    all_names: Sequence[str] = list(names)
    more = f" and {len(all_names) - most:,} more" if len(all_names) > most else ""
    return ", ".join(all_names[:most]) + more
