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


def table_id(log: DeltaLog, versions: Sequence[int]) -> str | None:
    """The table's id from the newest commit with its metadata; None if that commit has been cleaned up."""
    for version in reversed(versions):
        commit = log.commit(version)
        if commit is not None and commit.table_id is not None:
            return commit.table_id
    return None


def resolve_version(
    starting: VersionStartPlan, identity: str, versions: Sequence[int], log: DeltaLog, table: str
) -> Version:
    """`starting` as a version: resolved once, from then on in the ledger."""
    newest = versions[-1]
    if starting.kind == "earliest":
        return Version(identity, newest, snapshot=True)
    if starting.kind == "latest":
        return Version(identity, newest + 1)
    if starting.kind == "timestamp":
        assert starting.timestamp_ms is not None
        return Version(identity, first_since(starting.timestamp_ms, versions, log))
    assert starting.version is not None
    oldest = oldest_unbroken(versions)
    if not oldest <= starting.version <= newest + 1:
        raise Terminal(
            f"`starting: {{version: {starting.version}}}`: the log of {log.table} holds versions {oldest} to {newest}",
            where=table,
            hint=f"write a version from {oldest} to {newest + 1}, or earliest, which reads the whole table",
        )
    return Version(identity, starting.version)


def oldest_unbroken(versions: Sequence[int]) -> int:
    """The oldest version from which on every commit still exists."""
    oldest = versions[-1]
    for version in reversed(versions[:-1]):
        if version != oldest - 1:
            break
        oldest = version
    return oldest


def first_since(timestamp_ms: int, versions: Sequence[int], log: DeltaLog) -> int:
    """The first version at or after a time; the next future version if there is none."""
    low, high = versions.index(oldest_unbroken(versions)), len(versions)
    while low < high:
        middle = (low + high) // 2
        commit = log.commit(versions[middle])
        if commit is None or commit.timestamp_ms < timestamp_ms:
            low = middle + 1
        else:
            high = middle
    return versions[low] if low < len(versions) else versions[-1] + 1


def refuse_lost(end: Version, identity: str | None, versions: Sequence[int], table: str, upstream: str) -> None:
    """Raises DataLoss if the versions after the position can no longer be read."""
    if not versions:
        raise Transient(f"the table {upstream} is not there", where=table, hint="it is made when its own run begins")
    hint = (
        f"`penstock checkpoints reset {table} --to earliest|latest|source:N` decides where to continue (N: a version "
        f"of {upstream})"
    )
    if identity is not None and identity != end.table_id:
        raise DataLoss(
            f"the table {upstream} was recreated: its id was {end.table_id} and is {identity}",
            where=table,
            hint=hint,
        )
    if end.version > versions[-1] + 1:
        raise DataLoss(
            f"the table {upstream} went back: it was read up to version {end.read_up_to}, and ends with {versions[-1]}",
            where=table,
            hint=hint,
        )
    oldest = oldest_unbroken(versions)
    if not end.snapshot and end.version < oldest:
        raise DataLoss(
            f"versions {end.version} to {oldest - 1} of {upstream} were not read, and its log no longer has them",
            where=table,
            hint=f"{hint}; a longer delta.logRetentionDuration of {upstream} keeps them longer",
        )


# Commits that change rows of an upstream table: what they did, and what the three options make of them.
#
# Delta's streaming source reads added rows. A commit that removes whole files, or rewrites files, stops it unless one
# of its options says what to do: `ignore_deletes`, `ignore_changes`, `skip_change_commits`. No JVM is needed here.


Option = Literal["ignore_deletes", "ignore_changes", "skip_change_commits"]
OPTIONS: Mapping[str, Option] = {
    "ignoreDeletes": "ignore_deletes",
    "ignoreChanges": "ignore_changes",
    "skipChangeCommits": "skip_change_commits",
}
_MAX_LISTED = 5
"""How many versions a note names one by one."""


@dataclass(frozen=True)
class UpstreamChange:
    version: int
    operation: str
    deleted: int | None
    """Rows as counted by the commit's writer; None if it did not count."""
    updated: int | None
    inserted: int | None
    files_removed: int
    files_added: int
    rows_added: int | None
    """Rows in the files that it added, including copied rows; None if their statistics do not say."""

    @property
    def only_removes(self) -> bool:
        """Whether it removed whole files and added none: what `ignore_deletes` covers."""
        return self.files_added == 0

    @property
    def summary(self) -> str:
        counts = (("deleted", self.deleted), ("updated", self.updated), ("inserted", self.inserted))
        parts = [f"{word} {counted(count, 'row')}" for word, count in counts if count]
        return _join_words(parts) or f"removed {counted(self.files_removed, 'file')} and added {self.files_added:,}"

    def __str__(self) -> str:
        return f"{self.version} ({self.operation}: {self.summary})"


def read_change(store: Store, uri: str, version: int) -> UpstreamChange | None:
    """None if the commit changed no existing row, or is no longer in the log."""
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
            file_rows = _visible_rows(action["add"])
            rows = None if rows is None or file_rows is None else rows + file_rows
    if not removed:
        return None
    metrics = {name.replace("_", "").lower(): value for name, value in (info.get("operationMetrics") or {}).items()}
    operation = str(info.get("operation", "unknown operation"))
    overwrites = operation.upper() not in ("DELETE", "UPDATE", "MERGE")
    return UpstreamChange(
        version=version,
        operation=operation,
        deleted=_first_count(metrics, "numdeletedrows", "numtargetrowsdeleted"),
        updated=_first_count(metrics, "numupdatedrows", "numtargetrowsupdated"),
        inserted=_first_count(metrics, "numtargetrowsinserted", *(("numoutputrows",) if overwrites else ())),
        files_removed=removed,
        files_added=added,
        rows_added=rows,
    )


def _visible_rows(add: Mapping[str, Any]) -> int | None:
    """Rows of an added file without those that a deletion vector hides."""
    try:
        records = int(json.loads(add.get("stats") or "{}")["numRecords"])
    except (ValueError, KeyError, TypeError):
        return None
    return records - int((add.get("deletionVector") or {}).get("cardinality", 0))


def _first_count(metrics: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        try:
            if (count := int(metrics[name])) >= 0:
                return count
        except (KeyError, ValueError, TypeError):
            continue
    return None


def chosen_option(options: Mapping[str, str]) -> Option | None:
    """Which of the three options a source has; Delta checks them in this order."""
    for delta_option in ("skipChangeCommits", "ignoreChanges", "ignoreDeletes"):
        if options.get(delta_option) == "true":
            return OPTIONS[delta_option]
    return None


def effect(option: Option, change: UpstreamChange, *, recomputed: bool) -> str:
    """What happens with the rows of a change in a table that reads with the option."""
    if recomputed:
        return "the groups of this table are computed again from the rows that are left"
    deleted_note = "the deleted rows stay in this table" if change.deleted or change.only_removes else ""
    if option == "ignore_changes" and not change.only_removes:
        row_text = f"all {counted(change.rows_added, 'row')}" if change.rows_added is not None else "all rows"
        rewritten_note = f"{row_text} of the rewritten files come again, those that did not change as well"
        return _join_words([rewritten_note, deleted_note] if deleted_note else [rewritten_note])
    updated_note = "updated rows keep their old values here" if change.updated else ""
    inserted_note = _unread_note(change) if option == "skip_change_commits" else ""
    return (
        _join_words([note for note in (deleted_note, updated_note, inserted_note) if note]) or "nothing of it is read"
    )


def _unread_note(change: UpstreamChange) -> str:
    if change.inserted:
        return f"its {counted(change.inserted, 'new row')} are not read"
    unknown = change.deleted is None and change.updated is None and not change.only_removes
    return "new rows in it are not read" if unknown else ""


def refusal(
    table: str, upstream: str, change: UpstreamChange, options: Mapping[str, str], *, recomputed: bool, stateful: bool
) -> Terminal:
    """Why a change stops a reader, and what each option that it does not have would do with this change. `stateful`: it
    is a stream with state, which cannot be moved past a version."""
    offered: list[Option] = ["skip_change_commits", "ignore_changes"]
    if change.only_removes:
        offered.insert(0, "ignore_deletes")
    chosen = chosen_option(options)
    lines = ["to read on, set one of these under `from`:"]
    for option in (candidate for candidate in offered if candidate != chosen):
        scope = {
            "ignore_deletes": "commits that only remove whole files are passed over",
            "skip_change_commits": "this commit, and every later one that changes rows, is skipped whole",
            "ignore_changes": "rewritten files are read again",
        }[option]
        lines.append(f"     {option}: true — {scope}; here {effect(option, change, recomputed=recomputed)}")
    if not stateful:
        lines.append(
            f"     or continue after this version: `penstock checkpoints reset {table} "
            f"--to source:{change.version + 1}`, which first shows every version that is not read then"
        )
    set_already = (
        "; `ignore_deletes` is set, but covers only commits that remove whole files"
        if chosen == "ignore_deletes" and not change.only_removes
        else ""
    )
    return Terminal(
        f"version {change.version} of {upstream} ({change.operation}) {change.summary}, and {table} reads only rows "
        f"that are added{set_already}",
        where=table,
        hint="\n".join(lines),
    )


def changes_between(store: Store, uri: str, first: int, last: int) -> Iterator[UpstreamChange]:
    """The changes that the log still has, oldest first."""
    for version in range(max(0, first), last + 1):
        if (change := read_change(store, uri, version)) is not None:
            yield change


def changes_read_past(store: Store, source: VersionsSource, start: str, after: str) -> str | None:
    """A note about the changes between two positions that one of the three options let pass; None if there were none.
    Changes that the log no longer has are not counted."""
    option = chosen_option(source.options)
    if option is None or source.table is not None:
        return None
    first, last = parse_version(start).first_commit, parse_version(after).read_up_to
    changes = list(changes_between(store, source.uri, first, last))
    return passed_over(source.uri, option, changes) if changes else None


def passed_over(upstream: str, option: Option, changes: list[UpstreamChange]) -> str:
    """A note about the changes that one of the options let a table pass over."""
    versions = ", ".join(map(str, changes[:_MAX_LISTED])) + (", …" if len(changes) > _MAX_LISTED else "")
    count = counted(len(changes), "version")
    verb = "was" if len(changes) == 1 else "were"
    if option == "ignore_changes":
        return f"{count} of {upstream} rewrote files, whose rows {verb} read again: {versions}"
    if option == "ignore_deletes":
        return f"{count} of {upstream} that deleted rows {verb} passed over: {versions}"
    new_rows = sum(change.inserted or 0 for change in changes)
    unread = f"; {counted(new_rows, 'new row')} in {'it' if len(changes) == 1 else 'them'} not read" if new_rows else ""
    return f"{count} of {upstream} that changed rows {verb} skipped: {versions}{unread}"


def _join_words(parts: list[str]) -> str:
    return ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1] if parts else ""
