"""The complete result of `verify` as one document, with queries that show the same by other means."""

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
from penstock.spec.quantity import counted
from penstock.verify.report import COLLECTED, report_document

if TYPE_CHECKING:
    from penstock.plan.model import Plan, TablePlan
    from penstock.verify.report import Outcome, Report

# All comparisons in one list: what was compared, with what, and the outcome.


def proofs(table: TablePlan, report: Report) -> list[dict[str, Any]]:
    if report.version is None or report.chain is None:
        return []
    table_label = f"{table.name} version {report.version}"
    return [
        *_ledger_proof(report),
        *_coordinate_proofs(table, report, table_label),
        *_count_proofs(report, table_label),
        *(_proof(check.name, check.held, check.against, check.outcome, check.said) for check in report.checks),
    ]


def _proof(check: str, subject: str, against: str, outcome: Outcome, result: str) -> dict[str, Any]:
    return {"check": check, "held": subject, "against": against, "outcome": outcome, "said": result}


def _ledger_proof(report: Report) -> Iterator[dict[str, Any]]:
    chain = report.chain
    assert chain is not None
    undecided = [commit for commit in chain.foreign if commit.undecided]
    since = (
        "from its genesis" if chain.from_genesis else f"from version {chain.known_from} on: older ones were cleaned up"
    )
    entries = f"{chain.entries:,} {'entry' if chain.entries == 1 else 'entries'}"
    batches = f"{chain.batches:,} {'batch' if chain.batches == 1 else 'batches'}"
    outcome: Outcome = "same"
    result = f"{entries}, {batches}, unbroken {since}"
    if chain.broken or undecided:
        outcome = "differs"
        result = f"{counted(len(chain.broken), 'break')}, {counted(len(undecided), 'change')} by others, undecided"
    subject = f"the ledger, versions {chain.first_version} to {chain.last_version}"
    yield _proof("ledger", subject, "itself: each batch starts where the last one ended", outcome, result)


def _coordinate_proofs(table: TablePlan, report: Report, table_label: str) -> Iterator[dict[str, Any]]:
    partitions = report.partitions
    if not partitions:
        return
    reads_kafka = table.topics is not None
    sizes = {
        "missing": sum(partition.lost.size for partition in partitions),
        "doubled": sum(d.end - d.start for partition in partitions for d in partition.doubled),
        "too few": sum(d.end - d.start for partition in partitions for d in partition.short),
        "unexpected": sum(partition.unexpected.size for partition in partitions) + report.rows_without_coordinates,
        "unverifiable": sum(partition.unverifiable.size for partition in partitions),
    }
    outcome: Outcome = "differs" if any(sizes[category] for category in sizes if category != "unverifiable") else "same"
    if outcome == "same" and sizes["unverifiable"]:
        outcome = "unverifiable"
    deviations = ", ".join(f"{size:,} {category}" for category, size in sizes.items() if size)
    empty = sum(partition.empty.size for partition in partitions)
    read = sum(partition.expected.size for partition in partitions)
    extent = f"{counted(read, 'offset')} in {counted(len(partitions), 'partition')}"
    result = f"{extent}: {deviations or 'none missing, none doubled'}"
    quarantine_text = " and its quarantine" if table.may_reject else ""
    against = "what the ledger says was read" if reads_kafka else f"those of {report.upstream}"
    yield _proof(
        "coordinates",
        f"topic, partition and offset of every row of {table_label}{quarantine_text}",
        against,
        outcome,
        result,
    )
    if not reads_kafka:
        return
    if report.broker_problem:
        yield _proof("Kafka", "offsets that are not there", "the broker", "not made", report.broker_problem)
        return
    lag = str(report.unread) if report.behind is None else f"{report.behind:,} records not landed yet"
    result = f"{empty:,} offsets have no record there: markers, aborted transactions or compaction; {lag}"
    kafka: Outcome = "differs" if sizes["missing"] else "unverifiable" if sizes["unverifiable"] else "same"
    yield _proof("Kafka", "offsets that are not there, and the position", "the broker", kafka, result)


def _count_proofs(report: Report, table_label: str) -> Iterator[dict[str, Any]]:
    if report.conserved is None:
        return
    outcome: Outcome = "differs" if report.unbalanced else "same"
    result = "; ".join([report.conserved.description, *report.unbalanced])
    if report.conserved.uncounted:
        outcome = "not made"
        result += f"; of {report.conserved.uncounted:,} batches the numbers are not known"
    yield _proof("counts", f"rows that were read, by the ledger; rows of {table_label}", "each other", outcome, result)


# Commands that show by other means what `verify` checked: queries as of the versions that it read.


_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def sql_command(query: str) -> str:
    return f"penstock sql {shlex.quote(query)}"


def quote_name(column: str) -> str:
    """Quote a column name where necessary."""
    return column if _PLAIN.fullmatch(column) else "`" + column.replace("`", "``") + "`"


def _quoted(table: str) -> str:
    return ".".join(map(quote_name, table.split(".")))


def _as_of(table: str, version: int) -> str:
    return f"{_quoted(table)} VERSION AS OF {version}"


def rows_query(table: TablePlan, version: int) -> list[str]:
    return [] if table.sink is not None else [sql_command(f"SELECT * FROM {_as_of(table.name, version)}")]


def groups_query(table: TablePlan, version: int) -> list[str]:
    """Empty if the source is not a table of the project: `penstock sql` knows no others."""
    source, plan = table.delta, table.aggregate
    if plan is None or source is None or source.table is None:
        return []
    columns = groups = [quote_name(key) for key in plan.keys]
    if plan.time is not None:
        window = f"window({quote_name(plan.time)}, '{plan.size_ms} milliseconds', '{plan.every_ms} milliseconds')"
        columns = ["window.start AS window_start", "window.end AS window_end", *columns]
        groups = [window, *groups]
    metrics = [f"{expression} AS {quote_name(metric)}" for metric, expression in plan.metrics.items()]
    where = f" WHERE {source.where}" if source.where is not None else ""
    from_clause = f"FROM {_as_of(source.table, version)}{where}"
    return [sql_command(f"SELECT {', '.join([*columns, *metrics])} {from_clause} GROUP BY {', '.join(groups)}")]


def copy_queries(table: TablePlan, version: int, upstream: int) -> list[str]:
    upstream_table = table.source.project_table
    if upstream_table is None:
        return rows_query(table, version)
    return [sql_command(f"SELECT * FROM {_as_of(upstream_table, upstream)}"), *rows_query(table, version)]


def count_queries(table: TablePlan, version: int) -> list[str]:
    """For a table that lands records: its offsets; for any other: how many rows it has, and its quarantine."""
    if table.sink is not None:
        return []
    if table.columns and table.stages is None:
        topic, partition, offset = (quote_name(table.columns[column]) for column in ("topic", "partition", "offset"))
        return [
            sql_command(
                f"SELECT {topic}, {partition}, min({offset}), max({offset}), count(*), count(DISTINCT {offset}) "
                f"FROM {_as_of(table.name, version)} GROUP BY {topic}, {partition}"
            )
        ]
    queries = [sql_command(f"SELECT count(*) FROM {_as_of(table.name, version)}")]
    if table.may_reject:
        quarantine = _quoted(quarantine_of(table.name, table.uri).table)
        queries.append(sql_command(f"SELECT error_reason, count(*) FROM {quarantine} GROUP BY error_reason"))
    return queries


# The document: the request, who made it, with which versions, and the result of each table. The page for auditors shows
# the same.


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
    """The part of the command that decides what is checked."""

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
    plan: Plan, tables: Sequence[TablePlan], reports: Sequence[Report], request: VerifyRequest
) -> dict[str, Any]:
    """In the document, `complete` means that every table is, and `ok` that the exit code is 0 with what the command
    allows."""
    return {
        "complete": all(report.verdict == "complete" for report in reports),
        "ok": all(
            report.ok(allow_behind=request.allow_behind, allow_partial=request.allow_partial) for report in reports
        ),
        "project": plan.name,
        "folder": plan.root,
        "lake": plan.lake,
        "checked_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": request.command,
        "deep": request.deep,
        "recomputed": not request.no_recompute,
        "ran_by": {"user": _user(), "host": socket.gethostname()},
        "versions": versions(),
        "limits": list(LIMITS),
        "tables": [_table_document(*pair) for pair in zip(tables, reports, strict=True)],
    }


def _table_document(table: TablePlan, report: Report) -> dict[str, Any]:
    document = report_document(report)
    document["reads"] = table.source.name
    document["definition_now"] = table.definition
    document["origin"] = table.origin
    document["proofs"] = proofs(table, report)
    document["commands"] = _commands(table, report)
    document["not_named"] = {
        check.name: check.differing - COLLECTED for check in report.checks if check.differing > COLLECTED
    }
    return document


def _commands(table: TablePlan, report: Report) -> list[str]:
    """Commands that repeat each check or show by other means what it compared."""
    repeat = shlex.join(["penstock", "verify", table.name, *(["--deep"] if report.checks else [])])
    if report.version is None:
        return [repeat]
    history = shlex.join(["penstock", "history", table.name, "-n", "0"])
    check_commands = [command for check in report.checks for command in check.commands]
    return list(dict.fromkeys([repeat, history, *count_queries(table, report.version), *check_commands]))


def versions() -> dict[str, str]:
    software = {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    for component, package in _PARTS.items():
        try:
            software[component] = version(package)
        except PackageNotFoundError:
            software[component] = "unknown"
    return software


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "unknown"
