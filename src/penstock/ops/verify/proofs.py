"""Everything that was held against something else, in one list: what, against what, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.ops.verify.check import Outcome
from penstock.ops.verify.report import Report
from penstock.plan.model import KafkaSource, TablePlan


def proofs(table: TablePlan, report: Report) -> list[dict[str, Any]]:
    if report.version is None or report.chain is None:
        return []
    named = f"{table.name}@v{report.version}"
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
    of_kafka = isinstance(table.source, KafkaSource)
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
