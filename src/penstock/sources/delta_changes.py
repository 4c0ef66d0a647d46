"""What happens to a Delta table upstream: where a reader starts, whether its versions are still there, and commits
that change rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from penstock.errors import DataLoss, Terminal, Transient
from penstock.ledger.position import Version, parse_version
from penstock.spec.quantity import counted

if TYPE_CHECKING:
    from penstock.ledger.delta_log import DeltaLog
    from penstock.plan.sources import VersionsSource, VersionStartPlan
    from penstock.storage.stores import Store

# Where a reader of a Delta table begins, and whether what it was promised is still there.


def table_id(log: DeltaLog, versions: Sequence[int]) -> str | None:
    """From the newest commit that carries the table's metadata; None if that has been cleaned up."""
    for version in reversed(versions):
        commit = log.commit(version)
        if commit is not None and commit.table_id is not None:
            return commit.table_id
    return None


def resolve_version(
    starting: VersionStartPlan, identity: str, versions: Sequence[int], log: DeltaLog, table: str
) -> Version:
    """`starting` as a version: resolved once, then in the ledger."""
    newest = versions[-1]
    if starting.kind == "earliest":
        return Version(identity, newest, snapshot=True)
    if starting.kind == "latest":
        return Version(identity, newest + 1)
    if starting.kind == "timestamp":
        assert starting.timestamp_ms is not None
        return Version(identity, first_since(starting.timestamp_ms, versions, log))
    assert starting.version is not None
    oldest = unbroken(versions)
    if not oldest <= starting.version <= newest + 1:
        raise Terminal(
            f"`starting: {{version: {starting.version}}}`: the log of {log.table} holds versions {oldest} to {newest}",
            where=table,
            hint=f"write a version from {oldest} to {newest + 1}, or earliest, which reads the whole table",
        )
    return Version(identity, starting.version)


def unbroken(versions: Sequence[int]) -> int:
    """The oldest version from which every commit is still there."""
    oldest = versions[-1]
    for version in reversed(versions[:-1]):
        if version != oldest - 1:
            break
        oldest = version
    return oldest


def first_since(timestamp_ms: int, versions: Sequence[int], log: DeltaLog) -> int:
    """The first version at or after a time; the one to come if there is none."""
    low, high = versions.index(unbroken(versions)), len(versions)
    while low < high:
        middle = (low + high) // 2
        commit = log.commit(versions[middle])
        if commit is None or commit.timestamp_ms < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return versions[low] if low < len(versions) else versions[-1] + 1


def refuse_lost(at: Version, identity: str | None, versions: Sequence[int], table: str, upstream: str) -> None:
    """Raises DataLoss where what comes after a position can no longer be read."""
    if not versions:
        raise Transient(f"the table {upstream} is not there", where=table, hint="it is made when its own run begins")
    decide = (
        f"`penstock checkpoints reset {table} --to earliest|latest|source:N` decides where to go on (N: a version of "
        f"{upstream})"
    )
    if identity is not None and identity != at.table_id:
        raise DataLoss(
            f"the table {upstream} was made again: its id was {at.table_id} and is {identity}", where=table, hint=decide
        )
    if at.version > versions[-1] + 1:
        raise DataLoss(
            f"the table {upstream} went back: it was read up to version {at.read_up_to}, and ends with {versions[-1]}",
            where=table,
            hint=decide,
        )
    oldest = unbroken(versions)
    if not at.snapshot and at.version < oldest:
        raise DataLoss(
            f"versions {at.version} to {oldest - 1} of {upstream} were not read, and its log no longer has them",
            where=table,
            hint=f"{decide}; a longer delta.logRetentionDuration of {upstream} keeps them longer",
        )


# Commits that change rows of a table upstream: what they did, and what the three options make of them.
#
# Delta's streaming source reads what is added. A commit that removes whole files, or rewrites files, stops it unless
# one of its options says what to do: `ignore_deletes`, `ignore_changes`, `skip_change_commits`. No JVM is needed to
# tell.


Option = Literal["ignore_deletes", "ignore_changes", "skip_change_commits"]
OPTIONS: Mapping[str, Option] = {
    "ignoreDeletes": "ignore_deletes",
    "ignoreChanges": "ignore_changes",
    "skipChangeCommits": "skip_change_commits",
}
_SHOWN = 5
"""Versions that a note names one by one."""


@dataclass(frozen=True)
class UpstreamChange:
    version: int
    operation: str
    deleted: int | None
    """Rows, as the writer of the commit counted them; None if it did not."""
    updated: int | None
    inserted: int | None
    files_removed: int
    files_added: int
    rows_added: int | None
    """In the files that it added, copied rows among them; None if their statistics do not say."""

    @property
    def only_removes(self) -> bool:
        """Whole files went, and none came: what `ignore_deletes` covers."""
        return self.files_added == 0

    @property
    def did(self) -> str:
        counts = (("deleted", self.deleted), ("updated", self.updated), ("inserted", self.inserted))
        parts = [f"{word} {counted(count, 'row')}" for word, count in counts if count]
        return _and(parts) or f"removed {counted(self.files_removed, 'file')} and added {self.files_added:,}"

    def __str__(self) -> str:
        return f"{self.version} ({self.operation}: {self.did})"


def read_change(store: Store, uri: str, version: int) -> UpstreamChange | None:
    """None if the commit changed no row that was there before, or is no longer in the log."""
    text = store.read(f"{uri}/_delta_log/{version:020d}.json")
    info: dict[str, Any] = {}
    removed = added = 0
    rows: int | None = 0
    for line in (text or "").split("\n"):
        action = json.loads(line) if line else {}
        if "commitInfo" in action:
            info = action["commitInfo"]
        elif "remove" in action and action["remove"]["dataChange"]:
            removed += 1
        elif "add" in action and action["add"]["dataChange"]:
            added += 1
            found = _rows_of(action["add"])
            rows = None if rows is None or found is None else rows + found
    if not removed:
        return None
    metrics = {name.replace("_", "").lower(): value for name, value in (info.get("operationMetrics") or {}).items()}
    operation = str(info.get("operation", "unknown operation"))
    overwrites = operation.upper() not in ("DELETE", "UPDATE", "MERGE")
    return UpstreamChange(
        version=version,
        operation=operation,
        deleted=_count(metrics, "numdeletedrows", "numtargetrowsdeleted"),
        updated=_count(metrics, "numupdatedrows", "numtargetrowsupdated"),
        inserted=_count(metrics, "numtargetrowsinserted", *(("numoutputrows",) if overwrites else ())),
        files_removed=removed,
        files_added=added,
        rows_added=rows,
    )


def _rows_of(add: Mapping[str, Any]) -> int | None:
    """Without those that a deletion vector hides."""
    try:
        found = int(json.loads(add.get("stats") or "{}")["numRecords"])
    except (ValueError, KeyError, TypeError):
        return None
    return found - int((add.get("deletionVector") or {}).get("cardinality", 0))


def _count(metrics: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        try:
            if (found := int(metrics[name])) >= 0:
                return found
        except (KeyError, ValueError, TypeError):
            continue
    return None


def chosen_option(options: Mapping[str, str]) -> Option | None:
    """The one of the three that a source has; Delta takes them in this order."""
    for delta in ("skipChangeCommits", "ignoreChanges", "ignoreDeletes"):
        if options.get(delta) == "true":
            return OPTIONS[delta]
    return None


def effect(option: Option, change: UpstreamChange, *, recomputed: bool) -> str:
    """What becomes of the rows of a change in a table that reads with the option."""
    if recomputed:
        return "the groups of this table are computed again from the rows that are left"
    stays = "the deleted rows stay in this table" if change.deleted or change.only_removes else ""
    if option == "ignore_changes" and not change.only_removes:
        rows = f"all {counted(change.rows_added, 'row')}" if change.rows_added is not None else "all rows"
        again = f"{rows} of the rewritten files come again, those that did not change as well"
        return _and([again, stays] if stays else [again])
    old = "updated rows keep their old values here" if change.updated else ""
    new = _not_read(change) if option == "skip_change_commits" else ""
    return _and([part for part in (stays, old, new) if part]) or "nothing of it is read"


def _not_read(change: UpstreamChange) -> str:
    if change.inserted:
        return f"its {counted(change.inserted, 'new row')} are not read"
    unknown = change.deleted is None and change.updated is None and not change.only_removes
    return "new rows in it are not read" if unknown else ""


def refusal(
    table: str, upstream: str, change: UpstreamChange, options: Mapping[str, str], *, recomputed: bool, stateful: bool
) -> Terminal:
    """Why a change stops a reader, and what each of the options that it does not have would do with this one.
    `stateful`: it is a stream with a state, which cannot be moved past a version."""
    offered: list[Option] = ["skip_change_commits", "ignore_changes"]
    if change.only_removes:
        offered.insert(0, "ignore_deletes")
    chosen = chosen_option(options)
    lines = ["to read on, set one of these under `from`:"]
    for option in (one for one in offered if one != chosen):
        scope = {
            "ignore_deletes": "commits that only remove whole files are passed over",
            "skip_change_commits": "this commit, and every later one that changes rows, is skipped whole",
            "ignore_changes": "rewritten files are read again",
        }[option]
        lines.append(f"     {option}: true — {scope}; here {effect(option, change, recomputed=recomputed)}")
    if not stateful:
        lines.append(
            f"     or go on after this version: `penstock checkpoints reset {table} --to source:{change.version + 1}`, "
            "which first shows every version that is not read then"
        )
    set_already = (
        "; `ignore_deletes` is set, but covers only commits that remove whole files"
        if chosen == "ignore_deletes" and not change.only_removes
        else ""
    )
    return Terminal(
        f"version {change.version} of {upstream} ({change.operation}) {change.did}, and {table} reads only rows that "
        f"are added{set_already}",
        where=table,
        hint="\n".join(lines),
    )


def changes_between(store: Store, uri: str, first: int, last: int) -> Iterator[UpstreamChange]:
    """Those that the log still has, oldest first."""
    for version in range(max(0, first), last + 1):
        if (change := read_change(store, uri, version)) is not None:
            yield change


def changes_read_past(store: Store, source: VersionsSource, began: str, after: str) -> str | None:
    """A note about the changes between two positions that one of the three options let pass; None if there were none.
    Those that its log no longer has are not counted."""
    option = chosen_option(source.options)
    if option is None or source.table is not None:
        return None
    first, last = parse_version(began), parse_version(after)
    begin = first.version + 1 if first.snapshot else first.version
    found = list(changes_between(store, source.uri, begin, last.read_up_to))
    return passed_over(source.uri, option, found) if found else None


def passed_over(upstream: str, option: Option, changes: list[UpstreamChange]) -> str:
    """A note about the changes that a table has read past."""
    named = ", ".join(map(str, changes[:_SHOWN])) + (", …" if len(changes) > _SHOWN else "")
    count = counted(len(changes), "version")
    were = "was" if len(changes) == 1 else "were"
    if option == "ignore_changes":
        return f"{count} of {upstream} rewrote files, whose rows {were} read again: {named}"
    if option == "ignore_deletes":
        return f"{count} of {upstream} that deleted rows {were} passed over: {named}"
    new = sum(change.inserted or 0 for change in changes)
    unread = f"; {counted(new, 'new row')} in {'it' if len(changes) == 1 else 'them'} not read" if new else ""
    return f"{count} of {upstream} that changed rows {were} skipped: {named}{unread}"


def _and(parts: list[str]) -> str:
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1] if parts else ""
