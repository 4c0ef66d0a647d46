"""The answer of `verify` for one table, and what follows from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from penstock.engine.protocol.position import Range
from penstock.ops.place import Place
from penstock.ops.verify.chain import Accepted, Chain
from penstock.ops.verify.check import Check
from penstock.ops.verify.check import document as check_document
from penstock.ops.verify.compare import Difference, Doubled
from penstock.ops.verify.conserved import Conserved
from penstock.ops.verify.expected import Key
from penstock.ops.verify.spans import Spans

Verdict = Literal["complete", "incomplete", "unverifiable", "not created"]


@dataclass
class Partition:
    topic: str
    partition: int
    expected: Spans
    """What the ledger says was read."""
    difference: Difference
    lost: Spans = field(default_factory=Spans)
    """The broker has a record there, the table has none."""
    empty: Spans = field(default_factory=Spans)
    """Kafka's own gaps: markers, aborted transactions, compaction."""
    unverifiable: Spans = field(default_factory=Spans)
    reasons: list[str] = field(default_factory=list)
    """Why the unverifiable ones are."""

    @property
    def key(self) -> Key:
        return self.topic, self.partition

    @property
    def short(self) -> list[Doubled]:
        return self.difference.short

    @property
    def doubled(self) -> list[Doubled]:
        return self.difference.doubled

    @property
    def unexpected(self) -> Spans:
        return self.difference.unexpected

    @property
    def whole(self) -> bool:
        return not (self.lost or self.short or self.doubled or self.unexpected)


@dataclass
class Report:
    table: str
    version: int | None = None
    generation: int | None = None
    batch: int | None = None
    rows: int = 0
    without: int = 0
    """Rows without coordinates: they did not come from Kafka."""
    chain: Chain | None = None
    partitions: list[Partition] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What else is wrong: foreign changes, a position that the broker does not know."""
    doubts: list[str] = field(default_factory=list)
    """What can no longer be proved."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know and that is no mistake."""
    checks: list[Check] = field(default_factory=list)
    """What else was held against its source: numbers computed again, copies."""
    definition: str | None = None
    """The hash of the definition of its last entry."""
    conserved: Conserved | None = None
    """Of a table with stages: what became of the rows that it read."""
    unbalanced: list[str] = field(default_factory=list)
    """Which of its numbers do not add up; among the problems too."""
    upstream: str | None = None
    """The table that it reads, if that is not a topic."""
    unit: str = "record"
    """Of what it reads, and may be behind."""
    quarantined: int = 0
    """Rows in its quarantine."""
    places: list[Place] = field(default_factory=list)
    broker_problem: str | None = None
    hint: str | None = None

    @property
    def verdict(self) -> Verdict:
        if self.version is None and not self.problems:
            return "not created"
        broken = self.chain is not None and self.chain.broken
        outcomes = {one.outcome for one in self.checks}
        if broken or self.problems or self.without or not all(one.whole for one in self.partitions):
            return "incomplete"
        if "differs" in outcomes:
            return "incomplete"
        if self.doubts or outcomes & {"stale", "unverifiable"} or any(one.unverifiable for one in self.partitions):
            return "unverifiable"
        return "complete"

    def ok(self, *, allow_unverifiable: bool = False) -> bool:
        return self.verdict == "complete" or (allow_unverifiable and self.verdict == "unverifiable")

    @property
    def behind(self) -> int | None:
        """Records not yet landed; None if the broker did not say."""
        known = [one.lag for one in self.places]
        return None if self.broker_problem or None in known else sum(n for n in known if n is not None)


def document(report: Report) -> dict[str, Any]:
    """Every offset that is wrong is in it. Of Kafka's own gaps only how many: there is one for every transaction."""
    chain = report.chain
    return {
        "table": report.table,
        "verdict": report.verdict,
        "version": report.version,
        "generation": report.generation,
        "batch": report.batch,
        "rows": report.rows,
        "rows_without_coordinates": report.without,
        "problems": report.problems,
        "doubts": report.doubts,
        "notes": report.notes,
        "hint": report.hint,
        "definition": report.definition,
        "checks": [check_document(one) for one in report.checks],
        "conserved": {**asdict(report.conserved), "quarantined": report.quarantined} if report.conserved else None,
        "ledger": _ledger(chain) if chain else None,
        "partitions": [_partition(one) for one in report.partitions],
        "broker": {
            "problem": report.broker_problem,
            "behind": report.behind,
            "partitions": [
                {"topic": one.topic, "partition": one.partition, "position": one.position, "end": one.end}
                for one in report.places
            ],
        },
    }


def _ledger(chain: Chain) -> dict[str, Any]:
    return {
        "first_version": chain.first_version,
        "last_version": chain.last_version,
        "from_genesis": chain.from_genesis,
        "known_from": chain.known_from,
        "entries": chain.entries,
        "batches": chain.batches,
        "broken": chain.broken,
        "accepted": [_accepted(one) for one in chain.accepted],
        "foreign": [
            {
                "version": one.version,
                "operation": one.operation,
                "origin": one.origin.value,
                "rows": one.rows,
                "restored_to": one.restored_to,
                "accepted_in": one.accepted_in,
            }
            for one in chain.foreign
        ],
    }


def _accepted(one: Accepted) -> dict[str, Any]:
    def plain(found: tuple[Range, ...]) -> list[dict[str, Any]]:
        return [{"topic": r.topic, "partition": r.partition, "start": r.start, "end": r.end} for r in found]

    return {
        "version": one.version,
        "generation": one.generation,
        "note": one.note,
        "skipped": plain(one.skipped),
        "again": plain(one.again),
        "dropped": list(one.dropped),
        "remade": list(one.remade),
    }


def _partition(one: Partition) -> dict[str, Any]:
    def spans(found: Spans) -> dict[str, Any]:
        return {"offsets": found.size, "spans": [list(span) for span in found]}

    def times(found: list[Doubled]) -> list[dict[str, int]]:
        return [{"start": d.start, "end": d.end, "times": d.times, "expected": d.expected} for d in found]

    return {
        "topic": one.topic,
        "partition": one.partition,
        "rows": one.difference.rows,
        "read": spans(one.expected),
        "missing": spans(one.lost),
        "doubled": times(one.doubled),
        "too_few": times(one.short),
        "unexpected": spans(one.unexpected),
        "unverifiable": {**spans(one.unverifiable), "reasons": one.reasons},
        "empty_in_kafka": {"offsets": one.empty.size, "gaps": len(one.empty)},
    }
