"""Walking the ledger from the oldest commit that the log still has: does each batch start where the last one ended?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.ledger import position
from penstock.ledger.delta_log import Origin
from penstock.ledger.entry import OUTSIDE_BATCHES, REPLACING_KINDS
from penstock.ledger.pending import first_offsets_of, owes_jump, pending_replay, pending_rewind
from penstock.ledger.position import Range, same_positions
from penstock.ledger.spans import Spans
from penstock.verify.coordinates import Coordinates, Expected

if TYPE_CHECKING:
    from penstock.ledger.delta_log import Commit, DeltaLog
    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Offsets
    from penstock.verify.coordinates import Key

# The result of walking a table's ledger: its breaks, what people decided, and what the table should hold.
#
# A person may move a table's position (an entry that opens a generation): what that skips or reads again is listed
# with its note and is no loss.


@dataclass(frozen=True)
class Foreign:
    """A commit that Penstock did not make and that added or changed rows."""

    version: int
    operation: str
    origin: Origin
    rows: int
    restored_to: int | None
    accepted_in: int | None = None
    """The version of the entry with which a person accepted it."""

    @property
    def undecided(self) -> bool:
        return self.origin is Origin.FOREIGN_CHANGE and self.accepted_in is None


@dataclass(frozen=True)
class Accepted:
    """A position set by a person, or by a change of the topics that the project names."""

    version: int
    generation: int
    note: str | None
    skipped: tuple[Range, ...] = ()
    """Never landed, or removed from the table by others."""
    reread: tuple[Range, ...] = ()
    dropped: tuple[str, ...] = ()
    """Topics that are no longer read."""
    remade: tuple[str, ...] = ()
    """Topics that were deleted and recreated: their offsets started over."""


@dataclass
class Chain:
    first_version: int
    last_version: int
    from_genesis: bool = False
    start_position: tuple[str, ...] = ()
    """Where the table began to read, if that is known."""
    known_from: int = -1
    """The version of the first entry that the log still has."""
    entries: int = 0
    batches: int = 0
    broken: list[str] = field(default_factory=list)
    accepted: list[Accepted] = field(default_factory=list)
    foreign: list[Foreign] = field(default_factory=list)
    expected: Expected = field(default_factory=Expected)
    assumed: dict[Key, int] = field(default_factory=dict)
    """Where the first known entry starts, if the log no longer reaches back to the genesis. What lies before it was
    landed by commits that are no longer there; it is assumed to begin at 0 until the table shows a later start."""
    earlier_rows: int = 0
    """Rows that were in the table before its ledger began; they are not checked."""
    earlier_without: int = 0
    unclear: list[tuple[str, dict[Key, Spans]]] = field(default_factory=list)
    """Accepted changes whose removed rows can no longer be determined: the reason, and among which offsets."""

    @property
    def moves(self) -> list[Accepted]:
        """The decisions that skipped something, or had it read again."""
        return [decision for decision in self.accepted if decision.skipped or decision.reread]


# Comparing positions of ledger entries.


def offsets_of(sources: tuple[str, ...]) -> Offsets:
    """The positions of all sources of an entry, merged."""
    offsets: Offsets = {}
    for source in sources:
        offsets |= position.parse(source)
    return offsets


def by_partition(offsets: Mapping[str, Mapping[int, int]]) -> dict[Key, int]:
    return {(topic, number): offset for topic, numbers in offsets.items() for number, offset in numbers.items()}


def batches_up_to(entry: Entry) -> str:
    """Condition for rows of a quarantine, or of tombstones, that the table of this entry knows of: a running batch may
    have written more."""
    return f"generation < {entry.generation} OR (generation = {entry.generation} AND batch <= {entry.batch})"


def describe_move(last: Entry, entry: Entry) -> str:
    """Describe moves between the end of one entry and the start of the next: `orders-0 ended at 12, starts at 10`."""
    ended, starts = by_partition(offsets_of(last.after)), by_partition(offsets_of(entry.before))
    texts = []
    for topic, partition in sorted(ended.keys() | starts.keys()):
        ended_at, starts_at = ended.get((topic, partition)), starts.get((topic, partition))
        if ended_at != starts_at:
            texts.append(
                f"{topic}-{partition} "
                + ("was not known" if ended_at is None else f"ended at {ended_at}")
                + (" and is gone" if starts_at is None else f", starts at {starts_at}")
            )
    return ", ".join(texts[:4]) + (f" and {len(texts) - 4} more" if len(texts) > 4 else "")


# The walk.


Progress = Callable[[float], None]
RowsAt = Callable[[int], Coordinates | None]
"""What the table held at a version; None if that can no longer be read."""


def read_chain(log: DeltaLog, version: int, rows_at: RowsAt, progress: Progress = lambda _: None) -> Chain:
    """Walk the ledger up to `version`. The log has at least one commit."""
    return _walk_log(log, version, rows_at, progress).end()


def _walk_log(log: DeltaLog, version: int, rows_at: RowsAt, progress: Progress) -> _Walk:
    first = _contiguous_from([number for number in log.versions() if number <= version])
    walk = _Walk(log, Chain(first_version=first, last_version=version), rows_at)
    for commit in _commits(log, first, version):
        walk.take(commit)
        if commit.version % 1000 == 0:
            progress((commit.version - first) / (version - first + 1))
    return walk


class _Walk:
    def __init__(self, log: DeltaLog, chain: Chain, rows_at: RowsAt) -> None:
        self._log = log
        self._chain = chain
        self._rows_at = rows_at
        self._last: Entry | None = None
        self._last_version = -1
        self._undecided: list[Foreign] = []

    def take(self, commit: Commit) -> None:
        if commit.origin in (Origin.FOREIGN_APPEND, Origin.FOREIGN_CHANGE):
            foreign = Foreign(commit.version, commit.operation, commit.origin, commit.rows, commit.restored_to)
            (self._undecided if foreign.undecided else self._chain.foreign).append(foreign)
            return
        if commit.origin is not Origin.LEDGER or commit.entry is None:
            return
        entry, last = commit.entry, self._last
        if last is None:
            self._begin(entry, commit.version)
        elif entry.ledger != last.ledger:
            self._report_break(commit, f"is of another ledger ({entry.ledger}) than the entries before it")
        elif entry.kind == "fill":
            self._take_fill(commit, entry, last)
        elif entry.kind == "rewind":
            self._take_rewind(commit, entry, last)
        elif entry.key == last.key:
            self._check_repetition(commit, entry, last)
            return
        elif entry.kind in OUTSIDE_BATCHES and entry.key < last.key:
            return  # its writer had not seen the last batch: it moves no position
        elif entry.kind == "open":
            self._take_open(commit, entry, last)
        else:
            self._take_batch(commit, entry, last)
        self._chain.entries += 1
        self._last, self._last_version = entry, commit.version

    def end(self) -> Chain:
        self._leave_undecided()
        self._chain.foreign.sort(key=lambda commit: commit.version)
        return self._chain

    def _begin(self, entry: Entry, version: int) -> None:
        chain = self._chain
        chain.from_genesis, chain.known_from = entry.kind == "genesis", version
        if entry.kind == "fill":
            self._rebuild(entry, version)
            return
        if chain.from_genesis:
            chain.start_position = entry.after
            if version > chain.first_version:
                self._adopt_existing_rows(version - 1)
        else:
            chain.assumed = by_partition(offsets_of(entry.after if entry.kind in OUTSIDE_BATCHES else entry.before))
            for key, offset in chain.assumed.items():
                chain.expected.add(key, 0, offset, entry.topics.get(key[0], ""))
        if entry.kind == "batch":
            self._record_reads(entry)
        self._add_partitions(entry)

    def _add_partitions(self, entry: Entry) -> None:
        """Make the partitions of an entry known, those without records too."""
        for key, offset in by_partition(offsets_of(entry.after)).items():
            self._chain.expected.add(key, offset, offset, "")

    def _adopt_existing_rows(self, version: int) -> None:
        """The table existed before its ledger: a person chose to continue in it, whatever it held."""
        chain = self._chain
        chain.foreign, self._undecided = [], []
        coordinates = self._rows_at(version)
        if coordinates is None:
            chain.broken.append(
                f"what the table held before its ledger began (version {version}) can no longer be read"
            )
            return
        chain.earlier_rows, chain.earlier_without = coordinates.rows, coordinates.without
        chain.expected.add_all(coordinates.levels(), "before the ledger")

    def _take_batch(self, commit: Commit, entry: Entry, last: Entry) -> None:
        self._check_follows(commit, entry, last, entry.generation == last.generation and entry.batch == last.batch + 1)
        if self._undecided:
            versions = ", ".join(str(foreign.version) for foreign in self._undecided)
            self._report_break(commit, f"was written while the foreign change in version {versions} awaited a decision")
            self._leave_undecided()
        self._record_reads(entry)

    def _take_fill(self, commit: Commit, entry: Entry, last: Entry) -> None:
        """All rows were rebuilt: what was there before is gone."""
        self._check_follows(commit, entry, last, entry.key == last.key and last.kind not in REPLACING_KINDS)
        self._rebuild(entry, commit.version)

    def _take_rewind(self, commit: Commit, entry: Entry, last: Entry) -> None:
        """The table holds again what it held at the restored version."""
        self._check_follows(commit, entry, last, entry.key == last.key and last.kind not in REPLACING_KINDS)
        chain, restored_to = self._chain, commit.restored_to if commit.restored_to is not None else -1
        self._undecided = []
        if restored_to < chain.first_version:  # the log no longer says what that was
            chain.expected, chain.batches, chain.accepted, chain.foreign = Expected(), 0, [], []
            self._begin(entry, commit.version)
            return
        walk = _walk_log(self._log, restored_to, self._rows_at, lambda _: None)
        walk.accept(restored_to)
        restored = walk.end()
        chain.expected, chain.batches, chain.assumed = restored.expected, restored.batches, restored.assumed
        chain.start_position, chain.from_genesis, chain.known_from = (
            restored.start_position,
            restored.from_genesis,
            restored.known_from,
        )
        chain.accepted, chain.foreign, chain.unclear = restored.accepted, restored.foreign, restored.unclear
        chain.earlier_rows, chain.earlier_without = restored.earlier_rows, restored.earlier_without
        self._add_partitions(entry)  # topics that the project added since then start again

    def _rebuild(self, entry: Entry, version: int) -> None:
        chain, previous = self._chain, self._chain.expected
        chain.from_genesis, chain.known_from, chain.batches = bool(entry.began), version, 1
        chain.start_position, chain.assumed, chain.expected = entry.began, {}, Expected()
        chain.accepted, chain.foreign, chain.unclear, self._undecided = [], [], [], []
        chain.earlier_rows = chain.earlier_without = 0
        kept_offsets = first_offsets_of(entry)
        if kept_offsets is not None:  # rows that the source no longer had were kept as they were
            chain.expected.add_all({key: [level] for key, (level, *_) in previous.levels.items()})
        starts = by_partition(offsets_of(entry.began) if kept_offsets is None else kept_offsets)
        for key, end in by_partition(offsets_of(entry.after)).items():
            for first, last in Spans([(starts.get(key, 0), end)]) - chain.expected.once(key):
                chain.expected.add(key, first, last, entry.topics.get(key[0], ""))
        self._add_partitions(entry)

    def _take_open(self, commit: Commit, entry: Entry, last: Entry) -> None:
        self._check_follows(commit, entry, last, entry.generation > last.generation and entry.batch == 0)
        if _is_unfinished(entry) or _is_unfinished(last):
            return  # the entry after it says what the table holds; an abandoned operation has changed nothing
        before, after = offsets_of(last.after), offsets_of(entry.after)
        old_offsets = by_partition(before)
        remade = {t for t in after if t in last.topics and entry.topics.get(t) != last.topics[t]}
        skipped, reread = self.accept(commit.version), []
        for key, offset in sorted(by_partition(after).items()):
            old_offset, reached = old_offsets.get(key), self._chain.expected.end(key)
            if key[0] in remade:
                continue
            if old_offset is not None and offset > old_offset:
                skipped.append(Range(*key, old_offset, offset))
            elif reached is not None and offset < reached:
                reread.append(Range(*key, offset, reached))
        dropped = tuple(sorted(set(before) - set(after)))
        self._chain.accepted.append(
            Accepted(
                commit.version,
                entry.generation,
                entry.note,
                tuple(skipped),
                tuple(reread),
                dropped,
                tuple(sorted(remade)),
            )
        )

    def accept(self, version: int) -> list[Range]:
        """A person continued from a table that others had changed: from here on that state is the expected one."""
        removed: list[Range] = []
        for foreign in self._undecided:
            chain = self._chain
            chain.foreign.append(replace(foreign, accepted_in=version))
            if foreign.restored_to is not None and foreign.restored_to >= chain.first_version:
                restored = self._expected_at(foreign.restored_to)
                for key in sorted(chain.expected.levels):
                    lost = chain.expected.once(key) - restored.once(key)
                    removed.extend(Range(*key, start, end) for start, end in lost)
                chain.expected = restored
                continue
            before, after = self._rows_at(foreign.version - 1), self._rows_at(foreign.version)
            if before is None or after is None:
                reason = (
                    f"what version {foreign.version} ({foreign.operation}) removed can no longer be "
                    "distinguished from what was lost"
                )
                chain.unclear.append(
                    (reason, {key: levels[0] | Spans() for key, levels in chain.expected.levels.items()})
                )
                continue
            remaining = after.levels()
            for key, levels in sorted(before.levels().items()):
                for times, level in enumerate(levels):
                    removed_spans = level - (remaining[key][times] if times < len(remaining.get(key, [])) else Spans())
                    chain.expected.remove(key, removed_spans)
                    removed.extend(Range(*key, start, end) for start, end in removed_spans)
        self._undecided = []
        return removed

    def _expected_at(self, version: int) -> Expected:
        """Continuing from a version accepts it as it was, with whatever others had done to it by then."""
        walk = _walk_log(self._log, version, self._rows_at, lambda _: None)
        walk.accept(version)
        return walk.end().expected

    def _check_follows(self, commit: Commit, entry: Entry, last: Entry, number_fits: bool) -> None:
        if not number_fits:
            self._report_break(commit, f"follows {last.generation}.{last.batch}")
        if not same_positions(entry.before, last.after):
            self._report_break(
                commit, f"does not start where {last.generation}.{last.batch} ended: {describe_move(last, entry)}"
            )

    def _check_repetition(self, commit: Commit, entry: Entry, last: Entry) -> None:
        if not (same_positions(entry.before, last.before) and same_positions(entry.after, last.after)):
            self._report_break(commit, f"has the number of version {self._last_version} and other positions")
        elif entry.kind == "batch" and commit.rows and not commit.files_removed:
            self._report_break(commit, f"was already written in version {self._last_version}")
        elif entry.kind == "carry" and (commit.changes or (commit.files_added and commit.rows)):
            self._report_break(commit, "changes rows, which such an entry never does")
        # Else a carry, or a compaction that repeats the text of the commit it followed.

    def _record_reads(self, entry: Entry) -> None:
        self._chain.batches += 1
        for before, after in zip(entry.before, entry.after, strict=True):
            for span in position.ranges(before, after):
                topic_id = entry.topics.get(span.topic, "")
                self._chain.expected.add((span.topic, span.partition), span.start, span.end, topic_id)

    def _leave_undecided(self) -> None:
        self._chain.foreign.extend(self._undecided)
        self._undecided = []

    def _report_break(self, commit: Commit, problem: str) -> None:
        assert commit.entry is not None
        entry = commit.entry
        self._chain.broken.append(f"version {commit.version} ({entry.kind} {entry.generation}.{entry.batch}) {problem}")


def _is_unfinished(entry: Entry) -> bool:
    return pending_replay(entry) is not None or pending_rewind(entry) is not None or owes_jump(entry)


def _commits(log: DeltaLog, first: int, last: int) -> Iterator[Commit]:
    for version in range(first, last + 1):
        commit = log.commit(version)
        if commit is not None:  # None: log retention removed it while we were reading
            yield commit


def _contiguous_from(versions: list[int]) -> int:
    """The oldest version after which none is missing."""
    first = versions[-1]
    for version in reversed(versions[:-1]):
        if version != first - 1:
            break
        first = version
    return first
