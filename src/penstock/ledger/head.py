"""The end of a table's ledger: the last entry, what others committed since, and whether a batch is already in the
table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from penstock.errors import ChainBroken, Fenced, TableChanged
from penstock.ledger.delta_log import Origin
from penstock.ledger.entry import OUTSIDE_BATCHES, REPLACING_KINDS, Counts
from penstock.ledger.position import describe_position, differences, filled, same, same_positions
from penstock.ledger.row_counts import add_counts

if TYPE_CHECKING:
    from penstock.ledger.delta_log import Commit, DeltaLog
    from penstock.ledger.entry import Entry, RowCounts


@dataclass(frozen=True)
class LedgerHead:
    """The last entry, the commit that carries it, and the commits after it, oldest first."""

    entry: Entry
    commit: Commit
    later: tuple[Commit, ...]
    unseen: tuple[Commit, ...] = ()
    """Commits by others just before it, which its writer had not seen when it decided to write."""
    row_counts: RowCounts = field(default_factory=dict)
    """What became of the rows of its batch, if that is known: it is not in the log yet."""

    @property
    def version(self) -> int:
        return self.later[-1].version if self.later else self.commit.version

    @property
    def counts(self) -> Counts:
        """For the next entry: rows of the last batch and of all so far."""
        before = self.entry.counts
        if self.entry.kind == "redrive":  # outside the batches: the rows of the last batch stay those of that batch
            # In a quarantine it marks and removes rows: what such a commit writes was there before.
            new_rows = 0 if self.commit.changes and self.entry.applied is None else self.commit.rows
            return Counts(before.rows, before.total + new_rows, before.row_counts)
        if self.entry.kind not in ("batch", "fill"):
            return before
        return Counts(self.commit.rows, before.total + self.commit.rows, add_counts(before.row_counts, self.row_counts))

    @property
    def filled(self) -> tuple[int, int] | None:
        """Generation and version of the last commit that replaced all rows."""
        return (self.entry.generation, self.commit.version) if self.entry.kind in REPLACING_KINDS else self.entry.filled

    @property
    def carry_entry(self) -> Entry:
        """A copy of the last entry, to commit again."""
        return replace(self.entry.carry_entry(self.counts, self.version), filled=self.filled)


def read_head(log: DeltaLog) -> LedgerHead | None:
    """None if the folder holds no Delta log at all. Raises if it holds one without an entry of this table."""
    later: list[Commit] = []
    for commit in log.backwards():
        if commit.origin is Origin.LEDGER and commit.entry is not None:
            return _build_head(log, commit, later[::-1])
        later.append(commit)
    if not later:
        return None
    raise TableChanged(
        f"the folder holds a Delta table ({len(later)} commits) without a ledger entry of this table: it was made or "
        "replaced by hand",
        where=log.table,
        hint="move it away; or continue in it from a position of your choice, whatever it holds already: "
        f'`penstock checkpoints reset {log.table} --to earliest|latest|\'{{"topic": {{"0": 120}}}}\'`',
    )


def advance(head: LedgerHead, log: DeltaLog) -> LedgerHead:
    """The head, with the commits that are new since it was read. Usually there are none: that costs one file lookup."""
    if log.commit(head.version) is None:
        raise TableChanged(
            f"version {head.version}, which was there before, is gone: the table was deleted or replaced while it was "
            "being written to",
            where=log.table,
            hint="put it back; at a start it is compared with its checkpoint",
        )
    for commit in log.since(head.version):
        entry = commit.entry if commit.origin is Origin.LEDGER else None
        if entry is not None and entry.kind in OUTSIDE_BATCHES and entry.key < head.entry.key:
            entry = None  # its writer had not seen the last batch, so its position is outdated
        if entry is not None and (entry.key != head.entry.key or entry.kind in (*OUTSIDE_BATCHES, *REPLACING_KINDS)):
            head = LedgerHead(entry, commit, (), _unseen_commits(log, commit))
        else:
            head = replace(head, later=(*head.later, commit))
    return head


def _build_head(log: DeltaLog, commit: Commit, later: list[Commit]) -> LedgerHead:
    """An entry outside the batches repeats the position that its writer knew. On a store without our locks a batch can
    have been committed in between: its position counts, or that batch would be read again."""
    unseen = _unseen_commits(log, commit)
    batch = _overlooked_batch(commit, unseen)
    assert commit.entry is not None
    if batch is None or batch.entry is None:
        return LedgerHead(commit.entry, commit, tuple(later), unseen)
    after = [other for other in unseen if other.version > batch.version]
    return LedgerHead(batch.entry, batch, (*after, commit, *later), _unseen_commits(log, batch))


def position_commit(log: DeltaLog, commit: Commit) -> Commit:
    """The commit with the table's position at the time of a ledger entry: that entry's own, or a batch that its writer
    had not seen."""
    return _overlooked_batch(commit, _unseen_commits(log, commit)) or commit


@dataclass(frozen=True)
class LastRows:
    """The entry that the table's rows belong to, whatever was opened since."""

    entry: Entry
    opened: frozenset[tuple[int, int]]
    """Keys of the later entries, which wrote no rows."""
    abandoned: bool
    """A replay was opened after it and never finished."""


def last_rows(head: LedgerHead, log: DeltaLog) -> LastRows:
    """The last entry that wrote or replaced rows; if there is none, the oldest that the log still has."""
    entry, version, opened, abandoned = head.entry, head.commit.version, set(), False
    while entry.kind == "open" or (entry.kind in OUTSIDE_BATCHES and entry.batch == 0):
        abandoned = abandoned or (entry.key != head.entry.key and entry.unfinished)
        if not entry.unfinished:
            opened.add(entry.key)
        version -= 1
        while (commit := log.commit(version) if version >= 0 else None) and commit.origin is not Origin.LEDGER:
            version -= 1
        if commit is None:
            break
        earlier = position_commit(log, commit)
        assert earlier.entry is not None
        entry, version = earlier.entry, earlier.version
    return LastRows(entry, frozenset(opened), abandoned)


def _overlooked_batch(commit: Commit, unseen: tuple[Commit, ...]) -> Commit | None:
    """The last unseen commit with a later batch than the one that an entry outside the batches repeats."""
    entry = commit.entry
    if entry is None or entry.kind not in OUTSIDE_BATCHES:
        return None
    for other in reversed(unseen):
        if other.origin is Origin.LEDGER and other.entry is not None and other.entry.key > entry.key:
            return other
    return None


def _is_beside_batches(commit: Commit) -> bool:
    return commit.entry is not None and commit.entry.kind in OUTSIDE_BATCHES


def _unseen_commits(log: DeltaLog, commit: Commit) -> tuple[Commit, ...]:
    if commit.entry is None or commit.entry.seen is None:
        return ()
    commits = (log.commit(version) for version in range(commit.entry.seen + 1, commit.version))
    return tuple(commit for commit in commits if commit is not None)


def refuse_foreign_changes(head: LedgerHead, log: DeltaLog) -> list[Commit]:
    """Raises if rows were removed or the table replaced since the writer of the last entry read the log; returns the
    foreign appends to report."""
    other_commits = (*head.unseen, *head.later)
    for commit in other_commits:
        if commit.origin is Origin.FOREIGN_CHANGE or commit.operation.startswith(("CREATE", "REPLACE")):
            raise _table_changed_error(head, commit, log)
        if commit.origin is Origin.LEDGER and commit.rows and not _is_beside_batches(commit):
            raise TableChanged(
                f"batch {head.entry.batch} was committed twice, in versions {head.commit.version} and {commit.version}",
                where=head.entry.table,
                hint="two processes wrote to the table without a common lock. Stop one; "
                f"`penstock verify {head.entry.table}` shows what is doubled",
            )
    return [commit for commit in other_commits if commit.origin is Origin.FOREIGN_APPEND]


def refuse_gap(head: LedgerHead, log: DeltaLog) -> None:
    """Raises if the last entry does not follow the one before it, as far as the log still shows: the table was deleted
    or replaced by an older copy at the very moment when a batch was written."""
    entry, version = head.entry, head.commit.version - 1
    while version >= 0 and (commit := log.commit(version)) is not None and commit.origin is not Origin.LEDGER:
        version -= 1
    earlier = log.commit(version) if version >= 0 else None
    if entry.kind == "genesis" or (version >= 0 and earlier is None):
        return
    last = position_commit(log, earlier).entry if earlier is not None else None
    if last is not None and (entry.kind in OUTSIDE_BATCHES or all(map(same, last.after, entry.before))):
        return
    actual = f"the entry before it ends at {', '.join(last.after)}" if last else "there is no entry before it"
    raise TableChanged(
        f"{entry.kind} {entry.generation}.{entry.batch} begins at {', '.join(entry.before)}, but {actual}: the table "
        "was replaced while it was being written to",
        where=entry.table,
        hint=f"`penstock verify {entry.table}` shows what is missing. Put the table back, or accept it as it is: "
        f"`penstock checkpoints reset {entry.table} --to ledger`",
    )


def position_at(log: DeltaLog, version: int) -> Entry | None:
    """The last entry at or before a version; None if the log no longer reaches back to one."""
    while version >= 0:
        commit = log.commit(version)
        if commit is None:
            return None
        if commit.origin is Origin.LEDGER:
            return position_commit(log, commit).entry
        version -= 1
    return None


def _table_changed_error(head: LedgerHead, commit: Commit, log: DeltaLog) -> TableChanged:
    table, entry = head.entry.table, head.entry
    change = f"{commit.files_removed} files removed, {commit.files_added} added"
    restored = position_at(log, commit.restored_to) if commit.restored_to is not None else None
    if restored is not None:
        expected = entry.before if commit.version < head.commit.version else entry.after
        lost = differences(restored.after, expected)
        change = f"the table went back to version {commit.restored_to}, so it no longer holds {lost}"
    option = f"--to version:{commit.restored_to if restored else 'N'}"
    return TableChanged(
        f"version {commit.version} ({commit.operation}), not made by Penstock, changed rows after batch {entry.batch}: "
        f"{change}",
        where=table,
        hint=f"decide: `penstock checkpoints reset {table} --to ledger` accepts the table as it is and continues from "
        f"{', '.join(map(describe_position, entry.after))}; `penstock checkpoints reset {table} {option}` reads again "
        "from the position of that version",
    )


# The check that decides, from the ledger, whether a batch is already in the table.
#
# It covers half-written seeds, restored old backups, two runners and lost metadata, because all of them show as a batch
# that does not start where the last entry ended.


class Verdict(Enum):
    WRITE = "write"
    RETRY = "retry"
    """The rows are in the table already: skip the write and complete the rest of the batch."""


def check(last: Entry, generation: int, batch: int, before: tuple[str, ...], after: tuple[str, ...]) -> Verdict:
    """Whether batch `batch` of `generation`, which covers before..after, may be written after the entry `last`."""
    if last.generation > generation:
        raise Fenced(
            f"generation {generation} was replaced by generation {last.generation} ({last.kind})",
            where=last.table,
            hint="the table continues from its ledger by itself",
        )
    if last.generation == generation:
        if (
            batch == last.batch
            and same_positions(after, last.after)
            and same_positions(_fill_partitions(before, after), _fill_partitions(last.before, after))
        ):
            return Verdict.RETRY
        if batch == last.batch + 1 and same_positions(before, last.after):
            return Verdict.WRITE
    raise ChainBroken(
        f"batch {batch} of generation {generation} reads {differences(before, after)}, but the ledger ends with "
        f"batch {last.batch} of generation {last.generation} at {', '.join(last.after)}",
        where=last.table,
        hint="nothing was written. Start again: the checkpoint is then compared with the ledger. If this comes back, "
        "another process writes to the table or its checkpoint",
    )


def _fill_partitions(before: tuple[str, ...], after: tuple[str, ...]) -> tuple[str, ...]:
    """A healed checkpoint names the partitions that were new in its last batch; the ledger has Spark's own text."""
    return tuple(map(filled, before, after))
