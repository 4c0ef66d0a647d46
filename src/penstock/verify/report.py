"""The answer of `verify` for one table: what was compared, where it began, what became of its rows, and the
verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from penstock.ledger.position import Range, parse_version
from penstock.verify.coordinates import Spans
from penstock.verify.ledger_walk import offsets_of
from penstock.verify.unread import RunnerState, UnreadSource, rows_in

if TYPE_CHECKING:
    from penstock.ledger.position import Offsets
    from penstock.ledger.row_counts import Conserved
    from penstock.operations.broker import PartitionLag, TopicOffsets
    from penstock.plan.sources import TopicsSource, VersionsSource
    from penstock.verify.coordinates import CoordinateDifference, Doubled, Key
    from penstock.verify.ledger_walk import Accepted, Chain

# What became of the rows that a table read.
#
# read + reshaped = written + rejected + dropped + duplicates + superseded + forgotten


# Where a table began to read, and what of its source lies before that.


@dataclass(frozen=True)
class Beginning:
    where: str | None = None
    """None: with the first that there was."""
    earlier: int | None = 0
    """Rows or records that the source holds from before it; None if that is not known."""
    unit: str = "record"
    doubt: str | None = None
    """The project declares an earlier start than the table had."""

    @property
    def said(self) -> str:
        if self.where is None:
            return ""
        how_many = "earlier ones" if self.earlier is None else f"{self.earlier:,} earlier {self.unit}s"
        return f", {self.where} as the project says ({how_many} are not part of it)"


def began_in_topics(source: TopicsSource, began: Sequence[str], held: TopicOffsets) -> Beginning:
    """`began`: the position of its genesis, () if that is no longer known."""
    if not began:
        return Beginning()
    at, declared = offsets_of(tuple(began)), source.starting
    known = not held.problem
    earlier = _before(at, held.earliest) if known else None
    if declared.kind == "earliest":
        if earlier:
            doubt = (
                f"the project starts at the earliest record, the table began later: {earlier:,} records are left out"
            )
            return Beginning("from the offsets at which it began", earlier, doubt=doubt)
        return Beginning()
    if declared.kind == "offsets":
        late = {
            f"{topic}-{part}": (wanted, at[topic][part])
            for topic, parts in declared.offsets.items()
            for part, wanted in parts.items()
            if wanted >= 0 and at.get(topic, {}).get(part, wanted) > wanted
        }
        why = (
            "it began later than the project declares: "
            + ", ".join(f"{name} at {began}, declared {wanted}" for name, (wanted, began) in sorted(late.items()))
            if late
            else None
        )
        return Beginning("from the declared offsets on", earlier, doubt=why)
    word = "the end of its topics when it was created" if declared.kind == "latest" else "the declared time"
    return Beginning(f"from {word} on", earlier)


def _before(at: Offsets, earliest: Offsets) -> int:
    return sum(
        max(0, offset - earliest.get(topic, {}).get(part, offset))
        for topic, parts in at.items()
        for part, offset in parts.items()
    )


def began_in_table(source: VersionsSource, began: Sequence[str]) -> Beginning:
    unit = "row"
    if not began:
        return Beginning(unit=unit)
    at = parse_version(began[0])
    if source.as_files is not None:
        if source.starting.kind != "latest":
            return Beginning(unit="file")
        return Beginning("with the files that came after it was created,", rows_in(source.uri, at.version - 1), "file")
    if at.snapshot or at.version <= 0:
        return Beginning(unit=unit)
    declared, doubt = source.starting, None
    if declared.kind == "earliest":
        doubt = f"the project starts with the whole table, this one began with version {at.version}"
    elif declared.kind == "version" and declared.version is not None and at.version > declared.version:
        doubt = f"the project starts with version {declared.version}, the table began with version {at.version}"
    return Beginning(f"from version {at.version} on", rows_in(source.uri, at.version - 1), unit, doubt)


# One thing that was held against another, and what came of it.


Outcome = Literal["same", "differs", "stale", "unverifiable", "not made"]
"""stale: it differs, and there is a reason for it that is no mistake. not made: nobody looked."""
Kind = Literal["changed", "missing", "extra", "doubled", "altered"]
COLLECTED = 10_000
"""Differences that are named one by one at most; beyond that they are counted."""


@dataclass(frozen=True)
class Value:
    """As text; None is NULL."""

    column: str
    there: str | None
    should: str | None


@dataclass(frozen=True)
class Differing:
    """A group, or a row of a copy. missing: it should be there. extra: it should not. doubled: it is there more than
    once. altered: it is another one, as a whole."""

    kind: Kind
    keys: dict[str, str | None]
    values: tuple[Value, ...] = ()

    def __str__(self) -> str:
        named = ", ".join(f"{name} {'NULL' if value is None else value}" for name, value in self.keys.items())
        if self.kind != "changed":
            return f"{named}: {_KINDS[self.kind]}"
        return f"{named}: " + ", ".join(
            f"{one.column} is {_text(one.there)}, should be {_text(one.should)}" for one in self.values
        )


_KINDS = {
    "missing": "is missing",
    "extra": "should not be there",
    "doubled": "is there more than once",
    "altered": "is not as its source has it",
}


def _text(value: str | None) -> str:
    return "NULL" if value is None else value


@dataclass
class Proof:
    name: str
    held: str
    """What was looked at: `gold.sales version 7`."""
    against: str
    outcome: Outcome
    said: str
    unit: str = ""
    """What is compared: groups, rows."""
    compared: int = 0
    of: int = 0
    """That the table has."""
    sampled: bool = False
    """Not all were looked at."""
    differing: int = 0
    differences: list[Differing] = field(default_factory=list)
    """All of them, up to `COLLECTED`."""
    left_out: bool = False
    """It can be made, and was not: without it the table is not proven."""
    remarks: list[str] = field(default_factory=list)
    """What was not compared, and why; how it was compared."""
    commands: list[str] = field(default_factory=list)
    """What shows the same by other means."""


def check_document(check: Proof) -> dict[str, Any]:
    return asdict(check)


# The answer of `verify` for one table, and what follows from it.


Verdict = Literal["complete", "behind", "partial", "wrong", "not created"]
"""complete: all that the source holds from the declared start is here. behind: right so far, and not all is read.
partial: right as far as it could be looked at. wrong: something is missing, doubled or changed."""


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
    """What could not be proved, and why."""
    notes: list[str] = field(default_factory=list)
    """What a reader should know and that is no mistake."""
    checks: list[Proof] = field(default_factory=list)
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
    places: list[PartitionLag] = field(default_factory=list)
    broker_problem: str | None = None
    unread: UnreadSource = field(default_factory=UnreadSource)
    """What its source holds and no batch has read."""
    state: RunnerState = field(default_factory=lambda: RunnerState("never run"))
    began: Beginning = field(default_factory=Beginning)
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
        differs = any(one.outcome == "differs" for one in self.checks)
        return bool(broken or self.problems or self.without or differs or not all(one.whole for one in self.partitions))

    @property
    def unproven(self) -> list[str]:
        """What was not looked at or could not be told, each with the reason."""
        found = list(self.doubts)
        if self.version is not None and self.unread.count is None:
            found.append(str(self.unread))
        for one in self.checks:
            if one.outcome in ("stale", "unverifiable") or one.left_out:
                found.append(f"{one.name}: {one.said}")
        offsets = sum(one.unverifiable.size for one in self.partitions)
        if offsets:
            reasons = dict.fromkeys(reason for one in self.partitions for reason in one.reasons)
            found.append(f"{offsets:,} offsets that it lacks cannot be looked up: {'; '.join(reasons)}")
        return found

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
    proven = ", ".join(filter(None, [rows, covered(report)]))
    parts = [proven + report.began.said]
    if report.unread.count:
        parts.append(f"{report.unread} not landed yet ({report.state})")
    if report.unproven:
        parts.append(report.unproven[0] + (f" (and {len(report.unproven) - 1} more)" if report.unproven[1:] else ""))
    return "; ".join(parts)


def covered(report: Report) -> str:
    """What of the source is in the table, as far as that was proven."""
    if report.conserved is not None:
        uncounted = report.conserved.uncounted
        counts = f"{uncounted:,} of its batches without counts" if uncounted else report.conserved.said
        return ", ".join([counts, *map(_proved, _same(report))])
    if report.chain is not None and not report.partitions:
        batches = report.chain.batches
        chain = f"{batches:,} batch{'' if batches == 1 else 'es'} in an unbroken chain"
        return ", ".join([chain, *map(_proved, _same(report))])
    return _offsets(report)


def _same(report: Report) -> list[Proof]:
    same = [one for one in report.checks if one.outcome == "same" and one.compared]
    return [one for one in same if one.name != "pages"] or same


def _proved(check: Proof) -> str:
    how = "computed again" if check.name == "numbers" else "compared"
    return f"{check.compared:,} of {check.of:,} {check.unit} {how}"


def _offsets(report: Report) -> str:
    """`every offset of orders 0..3 once` only where they are read from the first one to the last that there is."""
    read = [one for one in report.partitions if one.expected]
    if not read:
        return "nothing was read yet"
    accepted = report.chain.accepted if report.chain else []
    often = "as often as it was read" if any(one.again for one in accepted) else "once"
    whole = all(len(one.expected) == 1 and one.expected.start == 0 for one in read)
    if whole and report.unread.count == 0 and not report.unproven:
        return f"every offset of {_topics(read)} {often}"
    if len(read) <= _FEW and all(len(one.expected) <= _FEW for one in read):
        spans = ", ".join(str(Range(*one.key, *span)) for one in read for span in one.expected)
        return f"{spans} {often}"
    return f"{sum(one.expected.size for one in read):,} offsets of {_topics(read)} {often}"


_FEW = 4
"""Partitions, or topics, that are named one by one."""


def _topics(read: list[Partition]) -> str:
    topics: dict[str, list[int]] = {}
    for one in read:
        topics.setdefault(one.topic, []).append(one.partition)
    if len(topics) > _FEW:
        return f"{len(topics)} topics ({len(read)} partitions)"
    return ", ".join(f"{topic} {_numbers(parts)}" for topic, parts in topics.items())


def _numbers(partitions: list[int]) -> str:
    """`0..3`, or `0, 2, 5`."""
    if len(partitions) > 1 and partitions == list(range(partitions[0], partitions[-1] + 1)):
        return f"{partitions[0]}..{partitions[-1]}"
    return ", ".join(map(str, partitions))


def report_document(report: Report) -> dict[str, Any]:
    """Every offset that is wrong is in it. Of Kafka's own gaps only how many: there is one for every transaction."""
    chain = report.chain
    return {
        "table": report.table,
        "verdict": report.verdict,
        "summary": summary(report),
        "unproven": report.unproven,
        "unread": {**asdict(report.unread), "said": str(report.unread)},
        "state": asdict(report.state),
        "began": asdict(report.began),
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
