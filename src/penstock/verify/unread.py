"""What a table has not read yet, asked of its source, and why it is not further."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.ledger.delta_log import RecentLog
from penstock.operations.status import ALIVE, is_gone, read_state
from penstock.sources.files.backlog import unread as unread_in_list
from penstock.storage.delta_rows import open_table
from penstock.storage.stores import open_store, store_of

if TYPE_CHECKING:
    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Version
    from penstock.operations.broker import PartitionLag, TopicOffsets
    from penstock.operations.status import State
    from penstock.plan.model import TablePlan
    from penstock.plan.sources import FilesSource, TopicsSource, VersionsSource
    from penstock.storage.stores import Store

# What a table has not read yet, asked of its source: the broker's ends, the log of the table upstream, the folder.


@dataclass(frozen=True)
class UnreadSource:
    count: int | None = 0
    """Of `unit`; None if the source did not say."""
    unit: str = "record"
    rows: int | None = None
    """In those versions, where the log tells it."""
    of: str = ""
    """Where they lie: a topic, a table, a folder."""
    unknown: str | None = None
    """Why it is not known."""

    def __str__(self) -> str:
        if self.count is None:
            return f"how much is unread is not known: {self.unknown}"
        rows = f" ({_many(self.rows, 'row')})" if self.rows is not None and self.count else ""
        return f"{_many(self.count, self.unit)}{rows}{f' of {self.of}' if self.of and self.count else ''}"


def _many(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def summed(parts: Sequence[UnreadSource]) -> UnreadSource:
    """Of a table that reads several."""
    if len(parts) == 1:
        return parts[0]
    unknown = next((one.unknown for one in parts if one.count is None), None)
    if unknown is not None:
        return UnreadSource(None, parts[0].unit, unknown=unknown)
    late = [one for one in parts if one.count]
    rows = None if any(one.rows is None for one in late) else sum(one.rows or 0 for one in late)
    return UnreadSource(
        sum(one.count or 0 for one in parts),
        parts[0].unit if parts else "version",
        rows if late else None,
        ", ".join(dict.fromkeys(one.of for one in late)),
    )


def unread_of_topics(
    source: TopicsSource, entry: Entry, places: Sequence[PartitionLag], held: TopicOffsets
) -> UnreadSource:
    """`places` are those of the topics that the table has read so far."""
    if held.problem:
        return UnreadSource(None, unknown=held.problem)
    gone = sorted({one.topic for one in places if one.end is None})
    if gone:
        return UnreadSource(None, unknown=f"the broker does not know {', '.join(gone)}")
    unbegun = sorted(
        {*source.topics} & {*held.topics} - {one.topic for one in places} - {*entry.parked}
        if source.starting.kind != "earliest"
        else ()
    )
    if unbegun:
        return UnreadSource(None, unknown=f"the next start decides where {', '.join(unbegun)} begins")
    late = {one.topic for one in places if one.lag}
    count = sum(one.lag or 0 for one in places)
    read = {one.topic for one in places}
    for topic, records in _new_topics(source, entry, read, held):
        count += records
        late.add(topic)
    return UnreadSource(count, of=", ".join(sorted(late)))


def _new_topics(source: TopicsSource, entry: Entry, read: set[str], held: TopicOffsets) -> Iterator[tuple[str, int]]:
    """Topics that the project names and no batch has read. Where they begin is decided by the next start; a pattern
    takes topics that appear from their first record on."""
    for topic in sorted(set(held.topics) - read - set(entry.parked)):
        if not reads(source, topic) or (source.starting.kind != "earliest" and source.pattern is None):
            continue
        records = sum(
            max(0, end - held.earliest.get(topic, {}).get(part, 0)) for part, end in held.latest.get(topic, {}).items()
        )
        if records:
            yield topic, records


def reads(source: TopicsSource, topic: str) -> bool:
    return topic in source.topics or (source.pattern is not None and re.fullmatch(source.pattern, topic) is not None)


def unread_of_table(
    source: VersionsSource, name: str, at: Version, store: Store, *, follows_changes: bool
) -> UnreadSource:
    """`follows_changes`: a commit that changes rows is something to read, too."""
    files = store_of(source, store)
    log = RecentLog(files, source.uri, name)
    if log.newest() < 0:
        return UnreadSource(None, "version", unknown=f"{name} does not exist")
    versions, rows = 0, 0
    counted = True
    if at.snapshot:
        left, in_files = _left_of_snapshot(source.uri, at)
        if left is None:
            return UnreadSource(
                None, "version", unknown=f"version {at.version} of {name}, with which it begins, cannot be read"
            )
        versions += left > 0
        rows, counted = rows + (in_files or 0), in_files is not None or not left
        first = at.version + 1
    else:
        first = at.version
    for version in range(max(0, first), log.newest() + 1):
        text = files.read(f"{source.uri}/_delta_log/{version:020d}.json")
        if text is None:
            continue  # that it is missing is said elsewhere: what comes next must still be there
        found = _Adds.of(text)
        skip = at.index + 1 if version == at.version and not at.snapshot else 0
        if not found.unread(source, skip, follows_changes=follows_changes):
            continue
        versions += 1
        here = found.rows(skip)
        rows, counted = rows + (here or 0), counted and here is not None
    return UnreadSource(versions, "version", rows if counted and not source.changes else None, name)


@dataclass(frozen=True)
class _Adds:
    """The data files that a commit added, by how many rows each has, and whether it took rows away."""

    counts: tuple[int | None, ...]
    removes: bool
    feeds: bool

    @classmethod
    def of(cls, commit: str) -> _Adds:
        counts: list[int | None] = []
        removes = feeds = False
        for line in commit.split("\n"):
            action: dict[str, Any] = json.loads(line) if line else {}
            if (add := action.get("add")) is not None and add["dataChange"]:
                stats = json.loads(add.get("stats") or "{}")
                gone = (add.get("deletionVector") or {}).get("cardinality", 0)
                counts.append(int(stats["numRecords"]) - gone if "numRecords" in stats else None)
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
        left = self.counts[skip:]
        return None if None in left else sum(one or 0 for one in left)


def _left_of_snapshot(uri: str, at: Version) -> tuple[int | None, int | None]:
    """Files of the version with which a table begins that are not read, and their rows if none is."""
    try:
        table = open_table(uri, at.version)
        files = len(table.file_uris())
    except Exception:  # deltalake raises what it likes
        return None, None
    left = max(0, files - (at.index + 1))
    if left != files:
        return left, None
    return left, rows_in(uri, at.version)


def rows_in(uri: str, version: int) -> int | None:
    """How many rows a version has, from its log alone; None if that does not say."""
    try:
        adds = open_table(uri, version).get_add_actions(flatten=True)
        batches: Any = adds
        return sum(int(one) for one in batches.column("num_records").to_pylist())
    except Exception:  # no statistics, or a version that can no longer be read
        return None


def unread_of_files(source: FilesSource, entry: Entry, store: Store) -> UnreadSource:
    """Files that are listed and not read, and those in the folder that nobody has listed yet."""
    listed = unread_in_list(store_of(source, store), source.uri, entry.after[0])
    if listed is None:
        return UnreadSource(None, "file", unknown=f"the log of {source.uri} does not tell which files are read")
    try:
        known = _known(source)
        new = sum(name not in known for name in _in_folder(source))
    except Exception as error:
        return UnreadSource(None, "file", unknown=f"{source.folder} cannot be listed: {error}")
    return UnreadSource(listed + new, "file", of=source.folder)


def _known(source: FilesSource) -> set[str]:
    from deltalake import QueryBuilder

    engine = QueryBuilder().register("files", open_table(source.uri))
    batches = engine.execute("SELECT path FROM files")
    return {str(one) for batch in batches for one in batch.column(0).to_pylist()}


def _in_folder(source: FilesSource) -> Iterator[str]:
    """The names of the files that are there now, as the list calls them."""
    from penstock.sources.files.listing import _is_data, _walk, is_remote, name_of

    if is_remote(source.folder):
        for within in open_store(source.folder).listing(source.folder):
            if _is_data(within, source.pattern):
                yield name_of(f"{source.folder.rstrip('/')}/{within}", source)
        return
    if not Path(source.folder).is_dir():
        return
    for path, _, _ in _walk(source.folder, set()):
        if _is_data(path[len(source.folder) :].lstrip("/"), source.pattern) and _is_text(path):
            yield name_of(path, source)


def _is_text(path: str) -> bool:
    """A name that is not can be in no table: a run says so."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


# Why a table is not further: what its runner said last, and whether it still lives.


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
        said = words.get(self.state, self.state)
        return f"{said}: {self.reason}" if self.reason and self.state in ("failed", "retrying") else said


def runner_state(table: TablePlan, store: Store) -> RunnerState:
    system = table.checkpoints.rpartition("/checkpoints/")[0]
    said = read_state(store, system, table.name) if system else None
    if said is None:
        return RunnerState("never run")
    alive = said.state in ALIVE
    if alive and _dead(table, system, said):
        return RunnerState("crashed", hint="`penstock run` continues where the ledger ends")
    state = "running" if said.state == "starting" else said.state
    return RunnerState(state, said.reason, said.hint)


def _dead(table: TablePlan, system: str, said: State) -> bool:
    from penstock.storage.locks import holder, lock_path

    if "://" in table.uri:
        return is_gone(said)
    return holder(lock_path(system, table.name, "run")) is None
