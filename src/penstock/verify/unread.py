"""What a table has not read yet, asked of its source, and why it is behind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.ledger.delta_log import RecentLog
from penstock.operations.status import ALIVE, has_ended, read_state
from penstock.sources.files.backlog import unread as unread_in_list
from penstock.spec.lake import is_remote
from penstock.spec.quantity import counted
from penstock.storage.delta_rows import open_table
from penstock.storage.stores import open_store, source_store
from penstock.verify.data_files import rows_of

if TYPE_CHECKING:
    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Version
    from penstock.operations.broker import PartitionLag, TopicOffsets
    from penstock.operations.status import RunnerStatus
    from penstock.plan.model import TablePlan
    from penstock.plan.sources import FilesSource, TopicsSource, VersionsSource
    from penstock.storage.stores import Store

# What its source says: the broker's ends, the log of the table upstream, the folder.


@dataclass(frozen=True)
class UnreadSource:
    count: int | None = 0
    """In `unit`s; None if the source did not say."""
    unit: str = "record"
    rows: int | None = None
    """Rows in those versions, where the log tells it."""
    of: str = ""
    """Where they lie: a topic, a table, a folder."""
    unknown: str | None = None
    """Why the count is not known."""

    def __str__(self) -> str:
        if self.count is None:
            return f"how much is unread is not known: {self.unknown}"
        rows = f" ({counted(self.rows, 'row')})" if self.rows is not None and self.count else ""
        return f"{counted(self.count, self.unit)}{rows}{f' of {self.of}' if self.of and self.count else ''}"


def summed(parts: Sequence[UnreadSource]) -> UnreadSource:
    """The total for a table that reads several sources."""
    if len(parts) == 1:
        return parts[0]
    unknown = next((part.unknown for part in parts if part.count is None), None)
    if unknown is not None:
        return UnreadSource(None, parts[0].unit, unknown=unknown)
    unread_parts = [part for part in parts if part.count]
    rows = None if any(part.rows is None for part in unread_parts) else sum(part.rows or 0 for part in unread_parts)
    return UnreadSource(
        sum(part.count or 0 for part in parts),
        parts[0].unit if parts else "version",
        rows if unread_parts else None,
        ", ".join(dict.fromkeys(part.of for part in unread_parts)),
    )


def unread_of_topics(
    source: TopicsSource, entry: Entry, places: Sequence[PartitionLag], broker_offsets: TopicOffsets
) -> UnreadSource:
    """`places` are those of the topics that the table has read so far."""
    if broker_offsets.problem:
        return UnreadSource(None, unknown=broker_offsets.problem)
    missing_topics = sorted({place.topic for place in places if place.end is None})
    if missing_topics:
        return UnreadSource(None, unknown=f"the broker does not know {', '.join(missing_topics)}")
    undecided_topics = sorted(
        {*source.topics} & {*broker_offsets.topics} - {place.topic for place in places} - {*entry.parked}
        if source.starting.kind != "earliest"
        else ()
    )
    if undecided_topics:
        return UnreadSource(None, unknown=f"the next start decides where {', '.join(undecided_topics)} begins")
    new_topics = dict(_new_topics(source, entry, {place.topic for place in places}, broker_offsets))
    late_topics = {place.topic for place in places if place.lag} | new_topics.keys()
    count = sum(place.lag or 0 for place in places) + sum(new_topics.values())
    return UnreadSource(count, of=", ".join(sorted(late_topics)))


def _new_topics(
    source: TopicsSource, entry: Entry, read_topics: set[str], broker_offsets: TopicOffsets
) -> Iterator[tuple[str, int]]:
    """New topics that no batch has read, with their number of records. The next start decides where they begin; topics
    that a pattern matches later are read from their first record on."""
    for topic in sorted(set(broker_offsets.topics) - read_topics - set(entry.parked)):
        if not reads(source, topic) or (source.starting.kind != "earliest" and source.pattern is None):
            continue
        records = sum(
            max(0, end - broker_offsets.earliest.get(topic, {}).get(partition, 0))
            for partition, end in broker_offsets.latest.get(topic, {}).items()
        )
        if records:
            yield topic, records


def reads(source: TopicsSource, topic: str) -> bool:
    return topic in source.topics or (source.pattern is not None and re.fullmatch(source.pattern, topic) is not None)


def unread_of_table(
    source: VersionsSource, name: str, position: Version, store: Store, *, follows_changes: bool
) -> UnreadSource:
    """With `follows_changes`, a commit that changes rows is something to read, too."""
    upstream_store = source_store(source, store)
    log = RecentLog(upstream_store, source.uri, name)
    if log.newest() < 0:
        return UnreadSource(None, "version", unknown=f"{name} does not exist")
    versions, rows = 0, 0
    rows_known = True
    if position.snapshot:
        unread_files, unread_rows = _unread_snapshot_files(source.uri, position)
        if unread_files is None:
            return UnreadSource(
                None, "version", unknown=f"version {position.version} of {name}, with which it begins, cannot be read"
            )
        versions += unread_files > 0
        rows, rows_known = rows + (unread_rows or 0), unread_rows is not None or not unread_files
        first = position.version + 1
    else:
        first = position.version
    for version in range(max(0, first), log.newest() + 1):
        text = upstream_store.read(f"{source.uri}/_delta_log/{version:020d}.json")
        if text is None:
            continue  # reported elsewhere, by the check that the next version still exists
        commit = _CommitFiles.of(text)
        skip = position.index + 1 if version == position.version and not position.snapshot else 0
        if not commit.unread(source, skip, follows_changes=follows_changes):
            continue
        versions += 1
        commit_rows = commit.rows(skip)
        rows, rows_known = rows + (commit_rows or 0), rows_known and commit_rows is not None
    return UnreadSource(versions, "version", rows if rows_known and not source.changes else None, name)


@dataclass(frozen=True)
class _CommitFiles:
    """The data files that a commit added, as a row count for each, and whether it removed rows."""

    counts: tuple[int | None, ...]
    removes: bool
    feeds: bool

    @classmethod
    def of(cls, commit: str) -> _CommitFiles:
        counts: list[int | None] = []
        removes = feeds = False
        for line in commit.split("\n"):
            action: dict[str, Any] = json.loads(line) if line else {}
            if (add := action.get("add")) is not None and add["dataChange"]:
                counts.append(rows_of(add))
            removes |= bool((action.get("remove") or {}).get("dataChange"))
            feeds |= "cdc" in action
        return cls(tuple(counts), removes, feeds)

    def unread(self, source: VersionsSource, skip: int, *, follows_changes: bool) -> bool:
        if source.changes:
            return skip == 0 and bool(self.counts or self.removes or self.feeds)
        options = source.options
        if self.removes and not follows_changes:
            if options.get("skipChangeCommits") == "true":
                return False
            if options.get("ignoreDeletes") == "true" and not self.counts:
                return False
        return len(self.counts) > skip or (self.removes and skip == 0 and options.get("ignoreChanges") != "true")

    def rows(self, skip: int) -> int | None:
        unread_counts = self.counts[skip:]
        return None if None in unread_counts else sum(count or 0 for count in unread_counts)


def _unread_snapshot_files(uri: str, position: Version) -> tuple[int | None, int | None]:
    """Unread files of the version with which a table begins, and their rows if none of them was read."""
    try:
        table = open_table(uri, position.version)
        files = len(table.file_uris())
    except Exception:  # deltalake raises all kinds of exceptions
        return None, None
    unread_files = max(0, files - (position.index + 1))
    if unread_files != files:
        return unread_files, None
    return unread_files, rows_in(uri, position.version)


def rows_in(uri: str, version: int) -> int | None:
    """How many rows a version has, from its log alone; None if the log does not say."""
    try:
        adds: Any = open_table(uri, version).get_add_actions(flatten=True)
        return sum(int(count) for count in adds.column("num_records").to_pylist())
    except Exception:  # no statistics, or a version that can no longer be read
        return None


def unread_of_files(source: FilesSource, entry: Entry, store: Store) -> UnreadSource:
    """Files that are listed and not read, and those in the folder that are not listed yet."""
    listed = unread_in_list(source_store(source, store), source.uri, entry.after[0])
    if listed is None:
        return UnreadSource(None, "file", unknown=f"the log of {source.uri} does not tell which files are read")
    try:
        known_names = _listed_files(source)
        new_files = sum(name not in known_names for name in _folder_files(source))
    except Exception as error:
        return UnreadSource(None, "file", unknown=f"{source.folder} cannot be listed: {error}")
    return UnreadSource(listed + new_files, "file", of=source.folder)


def _listed_files(source: FilesSource) -> set[str]:
    from deltalake import QueryBuilder

    engine = QueryBuilder().register("files", open_table(source.uri))
    batches = engine.execute("SELECT path FROM files")
    return {str(path) for batch in batches for path in batch.column(0).to_pylist()}


def _folder_files(source: FilesSource) -> Iterator[str]:
    """The names of the files that are there now, as the file list spells them."""
    from penstock.sources.files.listing import _is_data, _walk, name_of

    if is_remote(source.folder):
        for relative in open_store(source.folder).listing(source.folder):
            if _is_data(relative, source.pattern):
                yield name_of(f"{source.folder.rstrip('/')}/{relative}", source)
        return
    if not Path(source.folder).is_dir():
        return
    for path, _, _ in _walk(source.folder, set()):
        if _is_data(path[len(source.folder) :].lstrip("/"), source.pattern) and _is_text(path):
            yield name_of(path, source)


def _is_text(path: str) -> bool:
    """Whether a name is valid text. Others cannot be in a table, which a run reports."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


# Why a table is behind: the last state of its runner, and whether that is still alive.


@dataclass(frozen=True)
class RunnerState:
    state: str
    """running, retrying, failed, stopped, finished, crashed, or never run."""
    reason: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        words = {
            "running": "it is running",
            "retrying": "it is retrying",
            "failed": "it failed",
            "stopped": "it was stopped",
            "finished": "its last run had finished",
            "crashed": "its process died without shutting down",
            "never run": "it has not been run",
        }
        text = words.get(self.state, self.state)
        return f"{text}: {self.reason}" if self.reason and self.state in ("failed", "retrying") else text


def runner_state(table: TablePlan, store: Store) -> RunnerState:
    system = table.checkpoints.rpartition("/checkpoints/")[0]
    last_state = read_state(store, system, table.name) if system else None
    if last_state is None:
        return RunnerState("never run")
    if last_state.state in ALIVE and _is_dead(table, system, last_state):
        return RunnerState("crashed", hint="`penstock run` continues where the ledger ends")
    state = "running" if last_state.state == "starting" else last_state.state
    return RunnerState(state, last_state.reason, last_state.hint)


def _is_dead(table: TablePlan, system: str, last_state: RunnerStatus) -> bool:
    from penstock.storage.locks import holder, lock_path

    if "://" in table.uri:
        return has_ended(last_state)
    return holder(lock_path(system, table.name, "run")) is None
