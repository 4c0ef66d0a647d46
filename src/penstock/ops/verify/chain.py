"""The ledger's chain: does each batch start where the last one ended, and what should the table hold therefore.

Walked from the oldest commit that the log still has to the version that is verified. A person may move a table's
position (an entry that opens a generation): what that skips or reads again is listed with its note and is no loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from penstock.engine.protocol import position
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.log import Commit, DeltaLog, Origin
from penstock.engine.protocol.position import Offsets, Range
from penstock.ops.verify.expected import Expected, Key
from penstock.ops.verify.positions import moved, offsets_of, same
from penstock.ops.verify.spans import Spans

Progress = Callable[[float], None]
RemovedBy = Callable[[int], Mapping[Key, list[Spans]] | None]
"""The offsets that a version removed from the table; None if that can no longer be read."""


@dataclass(frozen=True)
class Foreign:
    """A commit that Penstock did not make and that added or changed rows."""

    version: int
    operation: str
    origin: Origin
    rows: int
    restored_to: int | None
    accepted_in: int | None = None
    """The version of the entry by which a person went on from it."""

    @property
    def undecided(self) -> bool:
        return self.origin is Origin.FOREIGN_CHANGE and self.accepted_in is None


@dataclass(frozen=True)
class Accepted:
    """A position set by a person, or by topics that the project named anew."""

    version: int
    generation: int
    note: str | None
    skipped: tuple[Range, ...] = ()
    """Never landed, or removed from the table by others."""
    again: tuple[Range, ...] = ()
    dropped: tuple[str, ...] = ()
    """Topics that are no longer read."""
    remade: tuple[str, ...] = ()
    """Topics that were deleted and made again: their offsets began anew."""


@dataclass
class Chain:
    first_version: int
    last_version: int
    from_genesis: bool = False
    entries: int = 0
    batches: int = 0
    broken: list[str] = field(default_factory=list)
    accepted: list[Accepted] = field(default_factory=list)
    foreign: list[Foreign] = field(default_factory=list)
    expected: Expected = field(default_factory=Expected)
    assumed: Offsets = field(default_factory=dict)
    """Where the first known entry starts, if the log no longer reaches back to the genesis. What lies before it was
    landed by commits that are no longer there; it is taken to have begun at 0 until the table says better."""
    unclear: list[tuple[str, dict[Key, Spans]]] = field(default_factory=list)
    """Accepted changes whose removed rows cannot be told any more: why, and among which offsets."""


def read_chain(log: DeltaLog, version: int, removed_by: RemovedBy, progress: Progress = lambda _: None) -> Chain:
    """Up to `version`. The log has at least one commit."""
    first = _contiguous_from([one for one in log.versions() if one <= version])
    walk = _Walk(log, Chain(first_version=first, last_version=version), removed_by)
    for commit in _commits(log, first, version):
        walk.take(commit)
        if commit.version % 1000 == 0:
            progress((commit.version - first) / (version - first + 1))
    return walk.end()


class _Walk:
    def __init__(self, log: DeltaLog, chain: Chain, removed_by: RemovedBy) -> None:
        self._log = log
        self._chain = chain
        self._removed_by = removed_by
        self._last: Entry | None = None
        self._last_version = -1
        self._undecided: list[Foreign] = []

    def take(self, commit: Commit) -> None:
        if commit.origin in (Origin.FOREIGN_APPEND, Origin.FOREIGN_CHANGE):
            found = Foreign(commit.version, commit.operation, commit.origin, commit.rows, commit.restored_to)
            (self._undecided if found.undecided else self._chain.foreign).append(found)
            return
        if commit.origin is not Origin.LEDGER or commit.entry is None:
            return
        entry, last = commit.entry, self._last
        if last is None:
            self._begin(entry)
        elif entry.ledger != last.ledger:
            self._wrong(commit, f"is of another ledger ({entry.ledger}) than the entries before it")
        elif entry.key == last.key:
            self._repeated(commit, entry, last)
            return
        elif entry.kind == "open":
            self._open(commit, entry, last)
        else:
            self._batch(commit, entry, last)
        self._chain.entries += 1
        self._last, self._last_version = entry, commit.version

    def end(self) -> Chain:
        self._leave_undecided()
        self._chain.foreign.sort(key=lambda one: one.version)
        return self._chain

    def _begin(self, entry: Entry) -> None:
        chain = self._chain
        chain.from_genesis = entry.kind == "genesis"
        if not chain.from_genesis:
            chain.assumed = offsets_of(entry.after if entry.kind == "carry" else entry.before)
            for topic, partitions in chain.assumed.items():
                for partition, offset in partitions.items():
                    chain.expected.add((topic, partition), 0, offset, entry.topics.get(topic, ""))
        if entry.kind == "batch":
            self._read(entry)
        for topic, partitions in offsets_of(entry.after).items():
            for partition, offset in partitions.items():
                chain.expected.add((topic, partition), offset, offset, entry.topics.get(topic, ""))

    def _batch(self, commit: Commit, entry: Entry, last: Entry) -> None:
        self._follows(commit, entry, last, entry.generation == last.generation and entry.batch == last.batch + 1)
        if self._undecided:
            versions = ", ".join(str(one.version) for one in self._undecided)
            self._wrong(
                commit, f"was written although nobody had decided about the foreign change in version {versions}"
            )
            self._leave_undecided()
        self._read(entry)

    def _open(self, commit: Commit, entry: Entry, last: Entry) -> None:
        self._follows(commit, entry, last, entry.generation > last.generation and entry.batch == 0)
        before, after = offsets_of(last.after), offsets_of(entry.after)
        remade = {t for t in after if t in last.topics and entry.topics.get(t) != last.topics[t]}
        skipped, again = self._accept(commit), []
        for topic, partitions in sorted(after.items()):
            for partition, offset in sorted(partitions.items()):
                at = before.get(topic, {}).get(partition)
                reached = self._chain.expected.reached((topic, partition))
                if topic in remade:
                    continue
                if at is not None and offset > at:
                    skipped.append(Range(topic, partition, at, offset))
                elif reached is not None and offset < reached:
                    again.append(Range(topic, partition, offset, reached))
        dropped = tuple(sorted(set(before) - set(after)))
        self._chain.accepted.append(
            Accepted(
                commit.version,
                entry.generation,
                entry.note,
                tuple(skipped),
                tuple(again),
                dropped,
                tuple(sorted(remade)),
            )
        )

    def _accept(self, commit: Commit) -> list[Range]:
        """A person has gone on from a table that others had changed: from here on that state is the one to go by."""
        gone: list[Range] = []
        for one in self._undecided:
            chain = self._chain
            chain.foreign.append(replace(one, accepted_in=commit.version))
            if one.restored_to is not None and one.restored_to >= chain.first_version:
                then = read_chain(self._log, one.restored_to, self._removed_by).expected
                for key in sorted(chain.expected.times):
                    lost = chain.expected.once(key) - then.once(key)
                    gone.extend(Range(*key, start, end) for start, end in lost)
                chain.expected = then
                continue
            removed = self._removed_by(one.version)
            if removed is None:
                why = f"what version {one.version} ({one.operation}) removed can no longer be told from what was lost"
                chain.unclear.append((why, {key: levels[0] | Spans() for key, levels in chain.expected.times.items()}))
                continue
            for key, levels in sorted(removed.items()):
                chain.expected.remove(key, levels)
                gone.extend(Range(*key, start, end) for start, end in levels[0])
        self._undecided = []
        return gone

    def _follows(self, commit: Commit, entry: Entry, last: Entry, number_fits: bool) -> None:
        if not number_fits:
            self._wrong(commit, f"follows {last.generation}.{last.batch}")
        if not same(entry.before, last.after):
            self._wrong(commit, f"does not start where {last.generation}.{last.batch} ended: {moved(last, entry)}")

    def _repeated(self, commit: Commit, entry: Entry, last: Entry) -> None:
        if not (same(entry.before, last.before) and same(entry.after, last.after)):
            self._wrong(commit, f"has the number of version {self._last_version} and other positions")
        elif entry.kind == "batch" and commit.rows and not commit.files_removed:
            self._wrong(commit, f"was already written in version {self._last_version}")
        # Else a carry, or a compaction that repeats the text of the commit it followed.

    def _read(self, entry: Entry) -> None:
        self._chain.batches += 1
        for before, after in zip(entry.before, entry.after, strict=True):
            for one in position.ranges(before, after):
                topic_id = entry.topics.get(one.topic, "")
                self._chain.expected.add((one.topic, one.partition), one.start, one.end, topic_id)

    def _leave_undecided(self) -> None:
        self._chain.foreign.extend(self._undecided)
        self._undecided = []

    def _wrong(self, commit: Commit, what: str) -> None:
        assert commit.entry is not None
        entry = commit.entry
        self._chain.broken.append(f"version {commit.version} ({entry.kind} {entry.generation}.{entry.batch}) {what}")


def _commits(log: DeltaLog, first: int, last: int) -> Iterator[Commit]:
    for version in range(first, last + 1):
        commit = log.commit(version)
        if commit is not None:  # None: log retention took it while we were reading
            yield commit


def _contiguous_from(versions: list[int]) -> int:
    """The oldest version from which on none is missing."""
    first = versions[-1]
    for version in reversed(versions[:-1]):
        if version != first - 1:
            break
        first = version
    return first
