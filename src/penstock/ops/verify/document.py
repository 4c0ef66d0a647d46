"""The whole answer of `verify` as one document: what was asked, by whom, with what, and what each table came to. The
page for auditors shows the same."""

from __future__ import annotations

import getpass
import platform
import shlex
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from penstock.ops.verify.check import COLLECTED
from penstock.ops.verify.proofs import proofs
from penstock.ops.verify.queries import counting
from penstock.ops.verify.report import Report
from penstock.ops.verify.report import document as report_document
from penstock.plan.model import DeltaSource, KafkaSource, Plan, TablePlan

_PARTS = {"penstock": "penstock", "spark": "pyspark", "delta": "delta-spark", "deltalake": "deltalake"}
LIMITS = (
    "A record that was lost and that Kafka's compaction removed later looks like any other gap of Kafka's own.",
    "Without --deep, rows of bronze and silver are told apart by where they came from, not by what they say: a row "
    "that somebody changed in place is found by the commit that did it, which is listed. In aggregates, merged tables "
    "and copies it is found by its values, if it is in the sample.",
    "Before the first entry that a table's log still has, the chain is not known; Delta keeps its log for 30 days.",
    "Numbers of DOUBLE are equal within 1e-9 of their size, or of 1 if they are smaller; of FLOAT within 1e-6: their "
    "sums depend on the order of their parts. All others are compared exactly.",
    "What a sink has sent to another system is counted, not read back.",
)


@dataclass(frozen=True)
class Asked:
    """The command, as far as it decides what is looked at."""

    tables: tuple[str, ...] = ()
    deep: bool = False
    no_recompute: bool = False
    allow_behind: bool = False
    allow_partial: bool = False
    report: str | None = None

    @property
    def command(self) -> str:
        words = ["penstock", "verify", *self.tables]
        words += ["--deep"] if self.deep else []
        words += ["--no-recompute"] if self.no_recompute else []
        words += ["--allow-behind"] if self.allow_behind else []
        words += ["--allow-partial"] if self.allow_partial else []
        words += ["--report", self.report] if self.report else []
        return shlex.join(words)


def audit_document(plan: Plan, tables: Sequence[TablePlan], reports: Sequence[Report], asked: Asked) -> dict[str, Any]:
    """`complete`: every table is; `ok`: the exit code is 0, with what the command allows."""
    return {
        "complete": all(one.verdict == "complete" for one in reports),
        "ok": all(one.ok(allow_behind=asked.allow_behind, allow_partial=asked.allow_partial) for one in reports),
        "project": plan.name,
        "folder": plan.root,
        "lake": plan.lake,
        "checked_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": asked.command,
        "deep": asked.deep,
        "recomputed": not asked.no_recompute,
        "ran_by": {"user": _user(), "host": socket.gethostname()},
        "versions": versions(),
        "limits": list(LIMITS),
        "tables": [_table(*both) for both in zip(tables, reports, strict=True)],
    }


def _table(table: TablePlan, report: Report) -> dict[str, Any]:
    made = report_document(report)
    made["reads"] = _reads(table)
    made["definition_now"] = table.definition
    made["origin"] = table.origin
    made["proofs"] = proofs(table, report)
    made["commands"] = _commands(table, report)
    made["not_named"] = {one.name: one.differing - COLLECTED for one in report.checks if one.differing > COLLECTED}
    return made


def _commands(table: TablePlan, report: Report) -> list[str]:
    """What repeats each check, or shows by other means what it looked at."""
    repeat = shlex.join(["penstock", "verify", table.name, *(["--deep"] if report.checks else [])])
    if report.version is None:
        return [repeat]
    history = shlex.join(["penstock", "history", table.name, "-n", "0"])
    more = [command for check in report.checks for command in check.commands]
    return list(dict.fromkeys([repeat, history, *counting(table, report.version), *more]))


def _reads(table: TablePlan) -> str:
    source = table.source
    if isinstance(source, KafkaSource):
        return f"topics {', '.join(source.topics)}" if source.topics else f"topics like {source.pattern}"
    assert isinstance(source, DeltaSource)
    name = source.table or source.uri
    return f"changes of {name}" if source.changes else name


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    for name, package in _PARTS.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"
