"""The result of `verify` for one table: what was compared, where the table began, what became of its rows, and the
verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from penstock.ledger.position import Range, parse_version
from penstock.ledger.spans import Spans
from penstock.verify.ledger_walk import by_partition, offsets_of
from penstock.verify.unread import RunnerState, UnreadSource, rows_in

if TYPE_CHECKING:
    from penstock.ledger.row_counts import RowBalance
    from penstock.operations.broker import PartitionLag, TopicOffsets
    from penstock.plan.sources import TopicsSource, VersionsSource
    from penstock.verify.coordinates import CoordinateDifference, Doubled, Key
    from penstock.verify.ledger_walk import Accepted, Chain

# Where a table began to read, and what of its source lies before that.


@dataclass(frozen=True)
class Beginning:
    where: str | None = None
    """None: with the first record that there was."""
    earlier: int | None = 0
    """Rows or records that the source holds from before it; None if that is not known."""
    unit: str = "record"
    doubt: str | None = None
    """The project declares an earlier start than the table had."""

    @property
    def description(self) -> str:
        if self.where is None:
            return ""
        how_many = "earlier ones" if self.earlier is None else f"{self.earlier:,} earlier {self.unit}s"
        return f", {self.where} as the project says ({how_many} are not part of it)"


def beginning_in_topics(
    source: TopicsSource, genesis_position: Sequence[str], broker_offsets: TopicOffsets
) -> Beginning:
    """`genesis_position` is the position of the table's genesis, () if that is no longer known."""
    if not genesis_position:
        return Beginning()
    start_offsets, declared = by_partition(offsets_of(tuple(genesis_position))), source.starting
    earlier: int | None = None
    if not broker_offsets.problem:
        earliest = by_partition(broker_offsets.earliest)
        earlier = sum(max(0, offset - earliest.get(key, offset)) for key, offset in start_offsets.items())
    if declared.kind == "earliest":
        if earlier:
            doubt = (
                f"the project starts at the earliest record, the table began later: {earlier:,} records are left out"
            )
            return Beginning("from the offsets at which it began", earlier, doubt=doubt)
        return Beginning()
    if declared.kind == "offsets":
        late = [
            f"{key[0]}-{key[1]} at {start_offsets[key]}, declared {declared_offset}"
            for key, declared_offset in by_partition(declared.offsets).items()
            if declared_offset >= 0 and start_offsets.get(key, declared_offset) > declared_offset
        ]
        reason = f"it began later than the project declares: {', '.join(sorted(late))}" if late else None
        return Beginning("from the declared offsets on", earlier, doubt=reason)
    start_text = "the end of its topics when it was created" if declared.kind == "latest" else "the declared time"
    return Beginning(f"from {start_text} on", earlier)


def beginning_in_table(source: VersionsSource, genesis_position: Sequence[str]) -> Beginning:
    unit = "row"
    if not genesis_position:
        return Beginning(unit=unit)
    start = parse_version(genesis_position[0])
    if source.as_files is not None:
        if source.starting.kind != "latest":
            return Beginning(unit="file")
        return Beginning(
            "with the files that came after it was created,", rows_in(source.uri, start.version - 1), "file"
        )
    if start.snapshot or start.version <= 0:
        return Beginning(unit=unit)
    declared, doubt = source.starting, None
    if declared.kind == "earliest":
        doubt = f"the project starts with the whole table, this one began with version {start.version}"
    elif declared.kind == "version" and declared.version is not None and start.version > declared.version:
        doubt = f"the project starts with version {declared.version}, the table began with version {start.version}"
    return Beginning(f"from version {start.version} on", rows_in(source.uri, start.version - 1), unit, doubt)


# One comparison and its outcome.


Outcome = Literal["same", "differs", "stale", "unverifiable", "not made"]
"""stale: it differs, for a reason that is not a mistake. not made: it was not checked."""
Kind = Literal["changed", "missing", "extra", "doubled", "altered"]
COLLECTED = 10_000
"""Differences listed one by one at most; beyond that they are only counted."""


@dataclass(frozen=True)
class Value:
    """As text; None is NULL."""

    column: str
    there: str | None
    should: str | None


@dataclass(frozen=True)
class Differing:
    """A group, or a row of a copy, that differs. missing: it should be there. extra: it should not. doubled: it is
    there more than once. altered: the row as a whole is a different one."""

    kind: Kind
    keys: dict[str, str | None]
    values: tuple[Value, ...] = ()

    def __str__(self) -> str:
        key_text = ", ".join(f"{name} {_value_text(value)}" for name, value in self.keys.items())
        if self.kind != "changed":
            return f"{key_text}: {_KINDS[self.kind]}"
        return f"{key_text}: " + ", ".join(
            f"{value.column} is {_value_text(value.there)}, should be {_value_text(value.should)}"
            for value in self.values
        )


_KINDS = {
    "missing": "is missing",
    "extra": "should not be there",
    "doubled": "is there more than once",
    "altered": "is not as its source has it",
}


def _value_text(value: str | None) -> str:
    return "NULL" if value is None else value


@dataclass
class Proof:
    name: str
    held: str
    """What was checked: `gold.sales version 7`."""
    against: str
    outcome: Outcome
    said: str
    unit: str = ""
    """What is compared: groups, rows."""
    compared: int = 0
    of: int = 0
    """How many of them the table has."""
    sampled: bool = False
    """Not all were compared."""
    differing: int = 0
    differences: list[Differing] = field(default_factory=list)
    """All of them, up to `COLLECTED`."""
    left_out: bool = False
    """The check is possible and was not made: without it the table is not proven."""
    remarks: list[str] = field(default_factory=list)
    """What was not compared, and why; how it was compared."""
    commands: list[str] = field(default_factory=list)
    """Commands that show the same by other means."""


# The result of `verify` for one table, and what follows from it.


Verdict = Literal["complete", "behind", "partial", "wrong", "not created"]
"""complete: all that the source holds from the declared start is here. behind: right so far, but not everything is
read. partial: right as far as it could be checked. wrong: something is missing, doubled or changed."""


@dataclass
class Partition:
    topic: str
    partition: int
    expected: Spans
    """What the ledger says was read."""
    difference: CoordinateDifference
    lost: Spans = field(default_factory=Spans)
    """The broker has a record there, the table has none."""
    empty: Spans = field(default_factory=Spans)
    """Kafka's own gaps: markers, aborted transactions, compaction."""
    unverifiable: Spans = field(default_factory=Spans)
    reasons: list[str] = field(default_factory=list)
    """Why some offsets are unverifiable."""

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

    def mark_unverifiable(self, spans: Spans, reason: str) -> None:
        if spans:
            self.unverifiable = self.unverifiable | spans
            self.reasons.append(reason)

    @property
    def is_complete(self) -> bool:
        return not (self.lost or self.short or self.doubled or self.unexpected)


@dataclass
class Report:
    table: str
    version: int | None = None
    generation: int | None = None
    batch: int | None = None
    rows: int = 0
    rows_without_coordinates: int = 0
    """Rows without coordinates: they did not come from Kafka."""
    chain: Chain | None = None
    partitions: list[Partition] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What else is wrong: foreign changes, a position that the broker does not know."""
    doubts: list[str] = field(default_factory=list)
    """What could not be proved, and why."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know that is not a mistake."""
    checks: list[Proof] = field(default_factory=list)
    """Other comparisons with its source: recomputed numbers, copies."""
    definition: str | None = None
    """The hash of the definition of its last entry."""
    conserved: RowBalance | None = None
    """For a table with stages: what became of the rows that it read."""
    unbalanced: list[str] = field(default_factory=list)
    """Which of its numbers do not add up; also among the problems."""
    upstream: str | None = None
    """The table that it reads, if it does not read a topic."""
    unit: str = "record"
    """The unit of what it reads and may be behind."""
    quarantined: int = 0
    """Rows in its quarantine."""
    lags: list[PartitionLag] = field(default_factory=list)
    broker_problem: str | None = None
    unread: UnreadSource = field(default_factory=UnreadSource)
    """What its source holds and no batch has read."""
    state: RunnerState = field(default_factory=lambda: RunnerState("never run"))
    beginning: Beginning = field(default_factory=Beginning)
    hint: str | None = None

    @property
    def verdict(self) -> Verdict:
        if self.version is None and not self.problems:
            return "not created"
        if self.is_wrong:
            return "wrong"
        if self.unproven:
            return "partial"
        return "behind" if self.unread.count else "complete"

    @property
    def is_wrong(self) -> bool:
        broken = self.chain is not None and self.chain.broken
        differs = any(check.outcome == "differs" for check in self.checks)
        return bool(
            broken
            or self.problems
            or self.rows_without_coordinates
            or differs
            or not all(partition.is_complete for partition in self.partitions)
        )

    @property
    def unproven(self) -> list[str]:
        """What was not checked or could not be determined, each with the reason."""
        texts = list(self.doubts)
        if self.version is not None and self.unread.count is None:
            texts.append(str(self.unread))
        for check in self.checks:
            if check.outcome in ("stale", "unverifiable") or check.left_out:
                texts.append(f"{check.name}: {check.said}")
        offsets = sum(partition.unverifiable.size for partition in self.partitions)
        if offsets:
            reasons = dict.fromkeys(reason for partition in self.partitions for reason in partition.reasons)
            texts.append(f"{offsets:,} offsets that it lacks cannot be looked up: {'; '.join(reasons)}")
        return texts

    def ok(self, *, allow_behind: bool = False, allow_partial: bool = False) -> bool:
        """Whether the exit code is 0."""
        if self.verdict in ("wrong", "not created"):
            return False
        return (allow_partial or not self.unproven) and (allow_behind or not self.unread.count)

    @property
    def behind(self) -> int | None:
        """Records, versions or files not landed yet; None if the source did not say."""
        return self.unread.count


def summary(report: Report) -> str:
    """One sentence: what was proven, and what is missing to `complete`. Its first word is the verdict's."""
    if report.version is None:
        return ""
    rows = f"{report.rows:,} rows"
    if report.verdict == "wrong":
        return rows
    proven = ", ".join(filter(None, [rows, describe_coverage(report)]))
    parts = [proven + report.beginning.description]
    if report.unread.count:
        parts.append(f"{report.unread} not landed yet ({report.state})")
    if report.unproven:
        parts.append(report.unproven[0] + (f" (and {len(report.unproven) - 1} more)" if report.unproven[1:] else ""))
    return "; ".join(parts)


def describe_coverage(report: Report) -> str:
    """What of the source is in the table, as far as that was proven."""
    if report.conserved is not None:
        uncounted = report.conserved.uncounted
        basis = f"{uncounted:,} of its batches without counts" if uncounted else report.conserved.description
    elif report.chain is not None and not report.partitions:
        batches = report.chain.batches
        basis = f"{batches:,} batch{'' if batches == 1 else 'es'} in an unbroken chain"
    else:
        return _describe_offsets(report)
    matching = [check for check in report.checks if check.outcome == "same" and check.compared]
    shown = [check for check in matching if check.name != "pages"] or matching
    return ", ".join([basis, *map(_describe_proof, shown)])


def _describe_proof(check: Proof) -> str:
    how = "computed again" if check.name == "numbers" else "compared"
    return f"{check.compared:,} of {check.of:,} {check.unit} {how}"


def _describe_offsets(report: Report) -> str:
    """Describe the offsets that were read: `every offset of orders 0..3 once` only if they go from the first to the
    last."""
    partitions = [partition for partition in report.partitions if partition.expected]
    if not partitions:
        return "nothing was read yet"
    accepted = report.chain.accepted if report.chain else []
    frequency = "as often as it was read" if any(decision.reread for decision in accepted) else "once"
    complete = all(len(partition.expected) == 1 and partition.expected.start == 0 for partition in partitions)
    if complete and report.unread.count == 0 and not report.unproven:
        return f"every offset of {_describe_topics(partitions)} {frequency}"
    if len(partitions) <= _FEW and all(len(partition.expected) <= _FEW for partition in partitions):
        spans = ", ".join(str(Range(*partition.key, *span)) for partition in partitions for span in partition.expected)
        return f"{spans} {frequency}"
    return (
        f"{sum(partition.expected.size for partition in partitions):,} offsets of {_describe_topics(partitions)} "
        f"{frequency}"
    )


_FEW = 4
"""At most this many partitions, or topics, are listed one by one."""


def _describe_topics(partitions: list[Partition]) -> str:
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    if len(topics) > _FEW:
        return f"{len(topics)} topics ({len(partitions)} partitions)"
    return ", ".join(f"{topic} {_describe_partitions(numbers)}" for topic, numbers in topics.items())


def _describe_partitions(partitions: list[int]) -> str:
    """`0..3`, or `0, 2, 5`."""
    if len(partitions) > 1 and partitions == list(range(partitions[0], partitions[-1] + 1)):
        return f"{partitions[0]}..{partitions[-1]}"
    return ", ".join(map(str, partitions))


def report_document(report: Report) -> dict[str, Any]:
    """The report as JSON. It lists every wrong offset, but only the number of Kafka's own gaps: there is one for every
    transaction."""
    chain = report.chain
    return {
        "table": report.table,
        "verdict": report.verdict,
        "summary": summary(report),
        "unproven": report.unproven,
        "unread": {**asdict(report.unread), "said": str(report.unread)},
        "state": asdict(report.state),
        "began": asdict(report.beginning),
        "version": report.version,
        "generation": report.generation,
        "batch": report.batch,
        "rows": report.rows,
        "rows_without_coordinates": report.rows_without_coordinates,
        "problems": report.problems,
        "doubts": report.doubts,
        "notes": report.notes,
        "hint": report.hint,
        "definition": report.definition,
        "checks": [asdict(check) for check in report.checks],
        "conserved": {**asdict(report.conserved), "quarantined": report.quarantined} if report.conserved else None,
        "ledger": _ledger_document(chain) if chain else None,
        "partitions": [_partition_document(partition) for partition in report.partitions],
        "broker": {
            "problem": report.broker_problem,
            "behind": report.behind,
            "partitions": [asdict(lag) for lag in report.lags],
        },
    }


def _ledger_document(chain: Chain) -> dict[str, Any]:
    return {
        "first_version": chain.first_version,
        "last_version": chain.last_version,
        "from_genesis": chain.from_genesis,
        "known_from": chain.known_from,
        "entries": chain.entries,
        "batches": chain.batches,
        "broken": chain.broken,
        "accepted": [_accepted_document(decision) for decision in chain.accepted],
        "foreign": [{**asdict(commit), "origin": commit.origin.value} for commit in chain.foreign],
    }


def _accepted_document(decision: Accepted) -> dict[str, Any]:
    return {
        "version": decision.version,
        "generation": decision.generation,
        "note": decision.note,
        "skipped": [asdict(span) for span in decision.skipped],
        "again": [asdict(span) for span in decision.reread],
        "dropped": list(decision.dropped),
        "remade": list(decision.remade),
    }


def _partition_document(partition: Partition) -> dict[str, Any]:
    def spans(offsets: Spans) -> dict[str, Any]:
        return {"offsets": offsets.size, "spans": [list(span) for span in offsets]}

    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "rows": partition.difference.rows,
        "read": spans(partition.expected),
        "missing": spans(partition.lost),
        "doubled": [asdict(stretch) for stretch in partition.doubled],
        "too_few": [asdict(stretch) for stretch in partition.short],
        "unexpected": spans(partition.unexpected),
        "unverifiable": {**spans(partition.unverifiable), "reasons": partition.reasons},
        "empty_in_kafka": {"offsets": partition.empty.size, "gaps": len(partition.empty)},
    }
