"""The whole answer of `verify` as one document, with queries that show the same by other means."""

from __future__ import annotations

import getpass
import platform
import re
import shlex
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from penstock.plan.quarantine import quarantine_of
from penstock.verify.report import COLLECTED, report_document

if TYPE_CHECKING:
    from penstock.plan.model import Plan, TablePlan
    from penstock.plan.stages import AggregatePlan
    from penstock.verify.report import Outcome, Report

# Everything that was held against something else, in one list: what, against what, and what came of it.


def proofs(table: TablePlan, report: Report) -> list[dict[str, Any]]:
    if report.version is None or report.chain is None:
        return []
    named = f"{table.name} version {report.version}"
    return [*_ledger(report), *_coordinates(table, report, named), *_counts(report, named), *_others(report)]


def _proof(name: str, held: str, against: str, outcome: Outcome, said: str) -> dict[str, Any]:
    return {"check": name, "held": held, "against": against, "outcome": outcome, "said": said}


def _many(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"


def _ledger(report: Report) -> Iterator[dict[str, Any]]:
    chain = report.chain
    assert chain is not None
    undecided = [one for one in chain.foreign if one.undecided]
    since = (
        "from its genesis" if chain.from_genesis else f"from version {chain.known_from} on: older ones were cleaned up"
    )
    said = f"{_many(chain.entries, 'entry', 'entries')}, {_many(chain.batches, 'batch', 'batches')}, unbroken {since}"
    outcome: Outcome = "same"
    if chain.broken or undecided:
        breaks = _many(len(chain.broken), "break", "breaks")
        outcome, said = "differs", f"{breaks}, {_many(len(undecided), 'change', 'changes')} by others, undecided"
    held = f"the ledger, versions {chain.first_version} to {chain.last_version}"
    yield _proof("ledger", held, "itself: each batch starts where the last one ended", outcome, said)


def _coordinates(table: TablePlan, report: Report, named: str) -> Iterator[dict[str, Any]]:
    parts = report.partitions
    if not parts:
        return
    of_kafka = table.topics is not None
    sizes = {
        "missing": sum(one.lost.size for one in parts),
        "doubled": sum(d.end - d.start for one in parts for d in one.doubled),
        "too few": sum(d.end - d.start for one in parts for d in one.short),
        "unexpected": sum(one.unexpected.size for one in parts) + report.without,
        "unverifiable": sum(one.unverifiable.size for one in parts),
    }
    outcome: Outcome = "differs" if any(sizes[name] for name in sizes if name != "unverifiable") else "same"
    if outcome == "same" and sizes["unverifiable"]:
        outcome = "unverifiable"
    wrong = ", ".join(f"{size:,} {name}" for name, size in sizes.items() if size)
    empty = sum(one.empty.size for one in parts)
    read = sum(one.expected.size for one in parts)
    where = f"{_many(read, 'offset', 'offsets')} in {_many(len(parts), 'partition', 'partitions')}"
    said = f"{where}: {wrong or 'none missing, none doubled'}"
    beside = " and its quarantine" if table.may_reject else ""
    against = "what the ledger says was read" if of_kafka else f"those of {report.upstream}"
    yield _proof("coordinates", f"topic, partition and offset of every row of {named}{beside}", against, outcome, said)
    if not of_kafka:
        return
    if report.broker_problem:
        yield _proof("Kafka", "offsets that are not there", "the broker", "not made", report.broker_problem)
        return
    said = f"{empty:,} offsets have no record there: markers, aborted transactions or compaction; {_behind(report)}"
    kafka: Outcome = "differs" if sizes["missing"] else "unverifiable" if sizes["unverifiable"] else "same"
    yield _proof("Kafka", "offsets that are not there, and the position", "the broker", kafka, said)


def _behind(report: Report) -> str:
    return str(report.unread) if report.behind is None else f"{report.behind:,} records not landed yet"


def _counts(report: Report, named: str) -> Iterator[dict[str, Any]]:
    if report.conserved is None:
        return
    outcome: Outcome = "differs" if report.unbalanced else "same"
    said = "; ".join([report.conserved.said, *report.unbalanced])
    if report.conserved.uncounted:
        outcome = "not made"
        said += f"; of {report.conserved.uncounted:,} batches the numbers are not known"
    yield _proof("counts", f"rows that were read, by the ledger; rows of {named}", "each other", outcome, said)


def _others(report: Report) -> Iterator[dict[str, Any]]:
    for one in report.checks:
        yield _proof(one.name, one.held, one.against, one.outcome, one.said)


# Commands that show by other means what `verify` looked at: queries as of the versions that it read.


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def sql(query: str) -> str:
    return f"penstock sql {shlex.quote(query)}"


def name(column: str) -> str:
    """Quoted where it has to be."""
    return column if _PLAIN.fullmatch(column) else "`" + column.replace("`", "``") + "`"


def _quoted(table: str) -> str:
    return ".".join(map(name, table.split(".")))


def _as_of(table: str, version: int) -> str:
    return f"{_quoted(table)} VERSION AS OF {version}"


def rows_query(table: TablePlan, version: int) -> list[str]:
    return [] if table.sink is not None else [sql(f"SELECT * FROM {_as_of(table.name, version)}")]


def groups_query(table: TablePlan, version: int) -> list[str]:
    """None if the source is no table of the project: `penstock sql` knows no other."""
    source, plan = table.delta, table.aggregate
    if plan is None or source is None or source.table is None:
        return []
    columns = [*_window_columns(plan), *map(name, plan.keys)]
    metrics = [f"{expression} AS {name(metric)}" for metric, expression in plan.metrics.items()]
    where = f" WHERE {source.where}" if source.where is not None else ""
    groups = [*_window(plan), *map(name, plan.keys)]
    read = f"FROM {_as_of(source.table, version)}{where}"
    return [sql(f"SELECT {', '.join([*columns, *metrics])} {read} GROUP BY {', '.join(groups)}")]


def _window(plan: AggregatePlan) -> list[str]:
    if plan.time is None:
        return []
    return [f"window({name(plan.time)}, '{plan.size_ms} milliseconds', '{plan.every_ms} milliseconds')"]


def _window_columns(plan: AggregatePlan) -> list[str]:
    return ["window.start AS window_start", "window.end AS window_end"] if plan.time is not None else []


def copy_queries(table: TablePlan, version: int, upstream: int) -> list[str]:
    upstream_table = table.source.project_table
    if upstream_table is None:
        return rows_query(table, version)
    return [sql(f"SELECT * FROM {_as_of(upstream_table, upstream)}"), *rows_query(table, version)]


def counting(table: TablePlan, version: int) -> list[str]:
    """Of a table that lands records: its offsets; of any other how many rows it has, and its quarantine."""
    if table.sink is not None:
        return []
    if table.columns and table.stages is None:
        topic, partition, offset = (name(table.columns[one]) for one in ("topic", "partition", "offset"))
        return [
            sql(
                f"SELECT {topic}, {partition}, min({offset}), max({offset}), count(*), count(DISTINCT {offset}) "
                f"FROM {_as_of(table.name, version)} GROUP BY {topic}, {partition}"
            )
        ]
    counted = [sql(f"SELECT count(*) FROM {_as_of(table.name, version)}")]
    if table.may_reject:
        beside = _quoted(quarantine_of(table.name, table.uri).table)
        counted.append(sql(f"SELECT error_reason, count(*) FROM {beside} GROUP BY error_reason"))
    return counted


# The whole answer of `verify` as one document: what was asked, by whom, with what, and what each table came to. The
# page for auditors shows the same.


_PARTS = {"penstock": "penstock", "spark": "pyspark", "delta": "delta-spark", "deltalake": "deltalake"}
LIMITS = (
    "A record that was lost and that Kafka's compaction removed later looks like any other gap of Kafka's own.",
    "Without --deep, rows of bronze and silver are compared by where they came from, not by their contents: a row that "
    "was changed in place is found by the commit that changed it, which is listed. In aggregates, merged tables and "
    "copies it is found by its values, if it is in the sample.",
    "Before the first entry that a table's log still has, the chain is not known; Delta keeps its log for 30 days.",
    "Numbers of DOUBLE are equal within 1e-9 of their size, or of 1 if they are smaller; of FLOAT within 1e-6: their "
    "sums depend on the order of their parts. All others are compared exactly.",
    "What a sink has sent to another system is counted, not read back.",
)


@dataclass(frozen=True)
class VerifyRequest:
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


def audit_document(
    plan: Plan, tables: Sequence[TablePlan], reports: Sequence[Report], asked: VerifyRequest
) -> dict[str, Any]:
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
    made["reads"] = table.source.name
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
