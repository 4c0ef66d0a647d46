"""The ledger of a table: its last entry, and what others committed since."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.protocol.entry import Counts, Entry
from penstock.engine.protocol.log import Commit, DeltaLog, Origin
from penstock.engine.protocol.position import difference
from penstock.errors import TableChanged


@dataclass(frozen=True)
class Tail:
    """The last entry, the commit that carries it, and the commits after it, oldest first."""

    entry: Entry
    commit: Commit
    later: tuple[Commit, ...]

    @property
    def version(self) -> int:
        return self.later[-1].version if self.later else self.commit.version

    @property
    def counts(self) -> Counts:
        """For the next entry: rows of the last batch and of all so far."""
        rows = self.commit.rows if self.entry.kind == "batch" else self.entry.counts.rows
        landed = self.commit.rows if self.entry.kind == "batch" else 0
        return Counts(rows=rows, total=self.entry.counts.total + landed)


def read_tail(log: DeltaLog) -> Tail | None:
    """None if the folder holds no Delta log at all. Raises if it holds one without an entry of this table."""
    later: list[Commit] = []
    for commit in log.backwards():
        if commit.origin is Origin.LEDGER and commit.entry is not None:
            return Tail(commit.entry, commit, tuple(reversed(later)))
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


def advance(tail: Tail, log: DeltaLog) -> Tail:
    """The tail with the commits that are new since it was read. Usually there is none: one look for a file."""
    for commit in log.since(tail.version):
        entry = commit.entry if commit.origin is Origin.LEDGER else None
        # The same entry twice is no new one: auto-compaction may repeat the metadata of the commit that it follows.
        if entry is not None and (entry.key != tail.entry.key or entry.kind == "carry"):
            tail = Tail(entry, commit, ())
        else:
            tail = Tail(tail.entry, tail.commit, (*tail.later, commit))
    return tail


def refuse_foreign_changes(tail: Tail, log: DeltaLog) -> list[Commit]:
    """Raises if rows were removed or the table replaced since the last entry; gives the foreign appends to report."""
    for commit in tail.later:
        if commit.origin is Origin.FOREIGN_CHANGE or commit.operation.startswith(("CREATE", "REPLACE")):
            raise _table_changed(tail, commit, log)
    return [commit for commit in tail.later if commit.origin is Origin.FOREIGN_APPEND]


def position_at(log: DeltaLog, version: int) -> Entry | None:
    """The last entry at or before a version; None if the log no longer reaches back to one."""
    while version >= 0:
        commit = log.commit(version)
        if commit is None:
            return None
        if commit.origin is Origin.LEDGER:
            return commit.entry
        version -= 1
    return None


def _table_changed(tail: Tail, commit: Commit, log: DeltaLog) -> TableChanged:
    table, entry = tail.entry.table, tail.entry
    what = f"{commit.files_removed} files removed, {commit.files_added} added"
    then = position_at(log, commit.restored_to) if commit.restored_to is not None else None
    if then is not None:
        lost = "; ".join(difference(a, b) for a, b in zip(then.after, entry.after, strict=False))
        what = f"the table went back to version {commit.restored_to}, so it no longer holds {lost}"
    again = f"--to version:{commit.restored_to if then else 'N'}"
    return TableChanged(
        f"version {commit.version} ({commit.operation}), not made by Penstock, changed rows after batch {entry.batch}: "
        f"{what}",
        where=table,
        hint=f"decide: `penstock checkpoints reset {table} --to ledger` accepts the table as it is and goes on from "
        f"{', '.join(entry.after)}; `penstock checkpoints reset {table} {again}` reads again from the position of that "
        "version",
    )
