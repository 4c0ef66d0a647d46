"""The end of a table's ledger: the last entry, what others committed since, and whether a batch is already in the
table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from penstock.errors import ChainBroken, Fenced, TableChanged
from penstock.ledger import position
from penstock.ledger.delta_log import Origin
from penstock.ledger.entry import BESIDE, WHOLE, Counts
from penstock.ledger.position import describe_position, difference, same
from penstock.ledger.row_counts import add_counts

if TYPE_CHECKING:
    from penstock.ledger.delta_log import Commit, DeltaLog
    from penstock.ledger.entry import Entry, RowCounts

# The ledger of a table: its last entry, and what others committed since.


@dataclass(frozen=True)
class LedgerHead:
    """The last entry, the commit that carries it, and the commits after it, oldest first."""

    entry: Entry
    commit: Commit
    later: tuple[Commit, ...]
    unseen: tuple[Commit, ...] = ()
    """Commits of others just before it, which its writer had not seen when it decided to write."""
    row_counts: RowCounts = field(default_factory=dict)
    """What became of the rows of its batch, if that is known: it is not in the log yet."""

    @property
    def version(self) -> int:
        return self.later[-1].version if self.later else self.commit.version

    @property
    def counts(self) -> Counts:
        """For the next entry: rows of the last batch and of all so far."""
        before = self.entry.counts
        if self.entry.kind == "redrive":  # beside the batches: the rows of the last one are still those of a batch
            return Counts(before.rows, before.total + self.commit.rows, before.row_counts)
        if self.entry.kind not in ("batch", "fill"):
            return before
        return Counts(self.commit.rows, before.total + self.commit.rows, add_counts(before.row_counts, self.row_counts))

    @property
    def filled(self) -> tuple[int, int] | None:
        """Generation and version of the last commit that exchanged all rows."""
        return (self.entry.generation, self.commit.version) if self.entry.kind in WHOLE else self.entry.filled

    @property
    def carried(self) -> Entry:
        """The last entry said again."""
        return replace(self.entry.carried(self.counts, self.version), filled=self.filled)


def read_head(log: DeltaLog) -> LedgerHead | None:
    """None if the folder holds no Delta log at all. Raises if it holds one without an entry of this table."""
    later: list[Commit] = []
    for commit in log.backwards():
        if commit.origin is Origin.LEDGER and commit.entry is not None:
            return _tail(log, commit, later[::-1])
        later.append(commit)
    if not later:
        return None
    raise TableChanged(
        f"the folder holds a Delta table ({len(later)} commits) without a ledger entry of this table: it was made or "
        "replaced by hand",
        where=log.table,
        hint="move it away; or go on in it from a position that you choose, whatever it holds already: "
        f'`penstock checkpoints reset {log.table} --to earliest|latest|\'{{"topic": {{"0": 120}}}}\'`',
    )


def advance(tail: LedgerHead, log: DeltaLog) -> LedgerHead:
    """The tail with the commits that are new since it was read. Usually there is none: one look for a file."""
    if log.commit(tail.version) is None:
        raise TableChanged(
            f"version {tail.version}, which was there before, is gone: the table was deleted or replaced while it was "
            "being written to",
            where=log.table,
            hint="put it back; at a start it is compared with its checkpoint",
        )
    for commit in log.since(tail.version):
        entry = commit.entry if commit.origin is Origin.LEDGER else None
        if entry is not None and entry.kind in BESIDE and entry.key < tail.entry.key:
            entry = None  # its writer had not seen the last batch: it says nothing about the position
        if entry is not None and (entry.key != tail.entry.key or entry.kind in (*BESIDE, *WHOLE)):
            tail = LedgerHead(entry, commit, (), _unseen(log, commit))
        else:
            tail = replace(tail, later=(*tail.later, commit))
    return tail


def _tail(log: DeltaLog, commit: Commit, later: list[Commit]) -> LedgerHead:
    """An entry beside the batches repeats the position that its writer knew. On a store without our locks a batch can
    have come in between: the position is that of the batch, or it would be read again."""
    unseen = _unseen(log, commit)
    batch = _overlooked(commit, unseen)
    assert commit.entry is not None
    if batch is None or batch.entry is None:
        return LedgerHead(commit.entry, commit, tuple(later), unseen)
    after = [one for one in unseen if one.version > batch.version]
    return LedgerHead(batch.entry, batch, (*after, commit, *later), _unseen(log, batch))


def standing(log: DeltaLog, commit: Commit) -> Commit:
    """The commit that says where the table was when a ledger entry was committed: that one, or a batch that its writer
    had not seen."""
    return _overlooked(commit, _unseen(log, commit)) or commit


@dataclass(frozen=True)
class LastRows:
    """What the rows of a table are of, whatever was opened since."""

    entry: Entry
    opened: frozenset[tuple[int, int]]
    """Keys of the entries without rows after it."""
    abandoned: bool
    """A replay was opened after it, and came to nothing."""


def last_rows(tail: LedgerHead, log: DeltaLog) -> LastRows:
    """The last entry that wrote rows, or exchanged them; the oldest that the log still has if there is none."""
    entry, version, opened, abandoned = tail.entry, tail.commit.version, set(), False
    while entry.kind == "open" or (entry.kind in BESIDE and entry.batch == 0):
        abandoned = abandoned or (entry.key != tail.entry.key and entry.unfinished)
        if not entry.unfinished:
            opened.add(entry.key)
        version -= 1
        while (commit := log.commit(version) if version >= 0 else None) and commit.origin is not Origin.LEDGER:
            version -= 1
        if commit is None:
            break
        before = standing(log, commit)
        assert before.entry is not None
        entry, version = before.entry, before.version
    return LastRows(entry, frozenset(opened), abandoned)


def _overlooked(commit: Commit, unseen: tuple[Commit, ...]) -> Commit | None:
    """The last commit with a later batch than that which an entry beside the batches repeats."""
    entry = commit.entry
    if entry is None or entry.kind not in BESIDE:
        return None
    for one in reversed(unseen):
        if one.origin is Origin.LEDGER and one.entry is not None and one.entry.key > entry.key:
            return one
    return None


def _beside(commit: Commit) -> bool:
    return commit.entry is not None and commit.entry.kind in BESIDE


def _unseen(log: DeltaLog, commit: Commit) -> tuple[Commit, ...]:
    if commit.entry is None or commit.entry.seen is None:
        return ()
    found = (log.commit(version) for version in range(commit.entry.seen + 1, commit.version))
    return tuple(commit for commit in found if commit is not None)


def refuse_foreign_changes(tail: LedgerHead, log: DeltaLog) -> list[Commit]:
    """Raises if rows were removed or the table replaced since the last entry was decided upon; gives the foreign
    appends to report."""
    others = (*tail.unseen, *tail.later)
    for commit in others:
        if commit.origin is Origin.FOREIGN_CHANGE or commit.operation.startswith(("CREATE", "REPLACE")):
            raise _table_changed(tail, commit, log)
        if commit.origin is Origin.LEDGER and commit.rows and not _beside(commit):
            raise TableChanged(
                f"batch {tail.entry.batch} was committed twice, in versions {tail.commit.version} and {commit.version}",
                where=tail.entry.table,
                hint="two processes wrote to the table without a common lock. Stop one; "
                f"`penstock verify {tail.entry.table}` shows what is doubled",
            )
    return [commit for commit in others if commit.origin is Origin.FOREIGN_APPEND]


def refuse_gap(tail: LedgerHead, log: DeltaLog) -> None:
    """Raises if the last entry does not follow the one before it, as far as the log still tells: the table was deleted
    or replaced by an older copy in the very moment in which a batch was written."""
    entry, version = tail.entry, tail.commit.version - 1
    while version >= 0 and (commit := log.commit(version)) is not None and commit.origin is not Origin.LEDGER:
        version -= 1
    earlier = log.commit(version) if version >= 0 else None
    if entry.kind == "genesis" or (version >= 0 and earlier is None):
        return
    last = standing(log, earlier).entry if earlier is not None else None
    if last is not None and (entry.kind in BESIDE or all(map(same, last.after, entry.before))):
        return
    was = f"the entry before it ends at {', '.join(last.after)}" if last else "there is no entry before it"
    raise TableChanged(
        f"{entry.kind} {entry.generation}.{entry.batch} begins at {', '.join(entry.before)}, but {was}: the table was "
        "replaced while it was being written to",
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
            return standing(log, commit).entry
        version -= 1
    return None


def _table_changed(tail: LedgerHead, commit: Commit, log: DeltaLog) -> TableChanged:
    table, entry = tail.entry.table, tail.entry
    what = f"{commit.files_removed} files removed, {commit.files_added} added"
    then = position_at(log, commit.restored_to) if commit.restored_to is not None else None
    if then is not None:
        held = entry.before if commit.version < tail.commit.version else entry.after
        lost = "; ".join(difference(a, b) for a, b in zip(then.after, held, strict=False))
        what = f"the table went back to version {commit.restored_to}, so it no longer holds {lost}"
    again = f"--to version:{commit.restored_to if then else 'N'}"
    return TableChanged(
        f"version {commit.version} ({commit.operation}), not made by Penstock, changed rows after batch {entry.batch}: "
        f"{what}",
        where=table,
        hint=f"decide: `penstock checkpoints reset {table} --to ledger` accepts the table as it is and goes on from "
        f"{', '.join(map(describe_position, entry.after))}; `penstock checkpoints reset {table} {again}` reads again "
        "from the position of that version",
    )


# Who decides that a batch is already in the table: this check, from the ledger.
#
# It covers half-written seeds, old backups put back, two runners and lost metadata, because all of them show as a
# batch that does not start where the last entry ended.


class Verdict(Enum):
    WRITE = "write"
    RETRY = "retry"
    """The rows are in the table already: skip that write and complete the rest of the batch."""


def check(last: Entry, generation: int, batch: int, before: tuple[str, ...], after: tuple[str, ...]) -> Verdict:
    """May batch `batch` of `generation`, which covers before..after, be written after the entry `last`?"""
    if last.generation > generation:
        raise Fenced(
            f"generation {generation} was replaced by generation {last.generation} ({last.kind})",
            where=last.table,
            hint="the table goes on from its ledger by itself",
        )
    if last.generation == generation:
        if (
            batch == last.batch
            and _same(after, last.after)
            and _same(_filled(before, after), _filled(last.before, after))
        ):
            return Verdict.RETRY
        if batch == last.batch + 1 and _same(before, last.after):
            return Verdict.WRITE
    raise ChainBroken(
        f"batch {batch} of generation {generation} reads {_describe(before, after)}, but the ledger ends with batch "
        f"{last.batch} of generation {last.generation} at {', '.join(last.after)}",
        where=last.table,
        hint="nothing was written. Start again: the checkpoint is then compared with the ledger. If this comes back, "
        "another process writes to the table or its checkpoint",
    )


def _filled(before: tuple[str, ...], after: tuple[str, ...]) -> tuple[str, ...]:
    """A healed checkpoint names the partitions that were new in its last batch; the ledger has Spark's own text."""
    return tuple(map(position.filled, before, after))


def _same(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return len(one) == len(other) and all(position.same(a, b) for a, b in zip(one, other, strict=True))


def _describe(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    return "; ".join(position.difference(a, b) for a, b in zip(before, after, strict=False))
