"""Rewind: restores a table to an earlier version with its quarantine and its position, and adjusts its readers."""

from __future__ import annotations

import json
import posixpath
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.errors import DataLoss, PenstockError, Terminal, Transient, UsageError
from penstock.ledger.checkpoint import checkpoint_folder, heal
from penstock.ledger.commit import commit_metadata, must_confirm
from penstock.ledger.delta_log import DeltaLog, Origin
from penstock.ledger.generations import open_generation
from penstock.ledger.head import position_commit, read_head
from penstock.ledger.pending import (
    Halt,
    Rewind,
    Until,
    halt_document,
    pending_halt,
    pending_rewind,
    pending_until,
    rewind_document,
    until_document,
)
from penstock.ledger.position import Version, dump, parse, parse_version, same
from penstock.ledger.source import ReplayRequest
from penstock.operations.replay import existing_quarantine
from penstock.operations.staleness import refuse_open_work
from penstock.plan.build import rebuild_effect
from penstock.plan.sources import DeltaSource
from penstock.spark.jvm import java_session, jvm_of
from penstock.storage.locks import acquire_commit
from penstock.storage.stores import HadoopStore
from penstock.tables.merge.tombstones import next_generation, settle_tombstones, tombstone_table
from penstock.tables.quarantine import version_of
from penstock.tables.session import is_complete, try_complete_last

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.delta_log import Commit
    from penstock.ledger.entry import Counts, Entry
    from penstock.ledger.head import LedgerHead
    from penstock.ledger.position import Offsets
    from penstock.storage.stores import Store
    from penstock.tables.quarantine import CompanionLog
    from penstock.tables.session import TableSession

# A table at an earlier version: its position, its counts, and when the next commit came.


@dataclass(frozen=True)
class EarlierVersion:
    version: int
    entry: Entry
    """The last ledger entry up to that version."""
    counts: Counts
    until_ms: int
    """When the first commit after that was made: companion tables go back to their state before then."""
    undone: tuple[Commit, ...]
    """The commits after it."""


def earlier_version(log: DeltaLog, head: LedgerHead, version: int) -> EarlierVersion:
    """UsageError with the reason if the table cannot go back to that version. `head` must have the row counts of the
    last batch."""
    commit_then = entry_at(log, version)
    undone = tuple(log.since(version))
    _refuse(log, head, version, commit_then, undone)
    assert commit_then is not None and commit_then.entry is not None
    for commit in map(log.commit, range(commit_then.version + 1, head.version + 1)):
        if commit is not None and commit.origin is Origin.LEDGER and commit.entry is not None:
            return EarlierVersion(version, commit_then.entry, commit.entry.counts, commit.timestamp_ms, undone)
    return EarlierVersion(version, commit_then.entry, head.counts, undone[0].timestamp_ms, undone)


def entry_at(log: DeltaLog, version: int) -> Commit | None:
    """The commit of the last entry up to a version. A generation that was opened for unfinished work has changed no
    row: the entry before it counts."""
    while version >= 0:
        commit = log.commit(version)
        if commit is None:
            return None
        entry = commit.entry if commit.origin is Origin.LEDGER else None
        if entry is not None and not (entry.kind == "open" and entry.pending):
            return position_commit(log, commit)
        version -= 1
    return None


def _refuse(log: DeltaLog, head: LedgerHead, version: int, commit: Commit | None, undone: tuple[Commit, ...]) -> None:
    table, hint = log.table, f"`penstock history {log.table}` shows its versions"
    if version > head.version:
        raise UsageError(f"{table} has no version {version}: its newest is {head.version}", hint=hint)
    if commit is None:
        raise UsageError(
            f"the log of {table} does not reach back to where it was at version {version}",
            hint=f"`penstock replay {table}` rebuilds it from its source",
        )
    if all(other.origin is Origin.MAINTENANCE for other in undone):
        raise UsageError(f"{table} is as it was at version {version}: there is nothing to undo", hint=hint)
    forgotten = [other.version for other in undone if other.entry is not None and other.entry.kind == "forget"]
    if forgotten:
        raise UsageError(
            f"a subject was forgotten in version {forgotten[-1]} of {table}: it cannot go back to before that",
            hint=f"version {forgotten[-1]} is the oldest that it can go back to; or `penstock replay {table}`",
        )


# The position at which a table continues after a rewind: that of the earlier version, fitted to its current source.


@dataclass(frozen=True)
class ResumePosition:
    after: tuple[str, ...]
    began: tuple[str, ...]
    topics: Mapping[str, str]
    subscription: Mapping[str, Any]
    parked: Mapping[str, Any]


def resume_position(earlier: Entry, current: Entry) -> ResumePosition:
    if _reads_topics(earlier) and _reads_topics(current):
        return _resume_in_topics(earlier, current)
    if dict(earlier.subscription) != dict(current.subscription):
        raise UsageError(
            f"{current.table} read another source then: its position there does not fit its current source",
            hint=f"`penstock replay {current.table}` rebuilds it from its current source",
        )
    return ResumePosition(earlier.after, earlier.began, earlier.topics, current.subscription, current.parked)


def _reads_topics(entry: Entry) -> bool:
    return "topics" in entry.subscription or "pattern" in entry.subscription


def _resume_in_topics(earlier: Entry, current: Entry) -> ResumePosition:
    """Topics that were added since begin where they began when added, not by `starting` again: latest would be later
    now. Topics that were removed since stay parked at the position they had at that version."""
    offsets_then, began_then, began_now = parse(earlier.after[0]), _began_offsets(earlier), _began_offsets(current)
    parked_then = {
        topic: {int(partition): int(offset) for partition, offset in record["offsets"].items()}
        for topic, record in earlier.parked.items()
    }
    known_offsets: Offsets = {**began_now, **parked_then, **offsets_then}
    topics = [topic for topic in parse(current.after[0]) if topic in known_offsets]
    ids = {**current.topics, **earlier.topics}
    parked = {
        topic: {"id": earlier.topics.get(topic) or record.get("id"), "offsets": known_offsets[topic]}
        if topic in known_offsets
        else record
        for topic, record in current.parked.items()
    }
    return ResumePosition(
        after=(dump({topic: known_offsets[topic] for topic in topics}),),
        began=(dump({**began_now, **began_then}),) if began_now or began_then else (),
        topics={topic: ids[topic] for topic in topics if topic in ids},
        subscription=current.subscription,
        parked=parked,
    )


def _began_offsets(entry: Entry) -> Offsets:
    return parse(entry.began[0]) if entry.began else {}


def refuse_lost_source(work: TableSession, current: Entry, resume: ResumePosition) -> None:
    """Terminal if rows would be lost because they cannot be read again."""
    replay_hint = f"`penstock replay {work.table.name}` rebuilds it from what there is"
    try:
        work.source.refuse_lost(replace(current, after=resume.after, topics=resume.topics))
    except DataLoss as error:
        raise Terminal(
            f"its source no longer has all that it would read again: {error.message}",
            where=work.table.name,
            hint=replay_hint,
        ) from None
    if work.table.files is not None:
        request = ReplayRequest(current.after, resume.after, current.topics)
        missing: tuple[str, ...] = work.source.replay_input(work.spark, request).missing_files
        description = "files that it would read again"
    elif (source := work.table.delta) is not None:
        _refuse_replaced_rows(work, source, parse_version(resume.after[0]), replay_hint)
        is_elsewhere = source.table is None and "://" in source.uri
        store = HadoopStore(work.spark) if is_elsewhere else work.store
        missing = tuple(_missing(work.spark, store, source, parse_version(resume.after[0])))
        description = f"files of {source.label} that it would read again"
    else:
        return
    if missing:
        raise Terminal(f"{description} are no longer there: {missing[0]} …", where=work.table.name, hint=replay_hint)


def _refuse_replaced_rows(work: TableSession, source: DeltaSource, position: Version, replay_hint: str) -> None:
    """Terminal if all rows of the table upstream were replaced since: a stream from there would read the old ones."""
    if source.table is None or rebuild_effect(work.table) in ("follows", "recomputed"):
        return
    try:
        upstream = read_head(DeltaLog(work.store, source.uri, source.table))
    except PenstockError:
        return  # the unreadable table is reported for itself
    if upstream is not None and upstream.filled is not None and upstream.filled[1] > position.read_up_to:
        raise Terminal(
            f"{source.table} was rebuilt or rewound in version {upstream.filled[1]}, and {work.table.name} had "
            f"read it up to version {position.read_up_to} then: it would read rows that are no longer there",
            where=work.table.name,
            hint=replay_hint,
        )


def _missing(spark: SparkSession, store: Store, source: DeltaSource, position: Version) -> Iterator[str]:
    """Files, by their names in the log, that the versions from a position on need and the folder lacks. The log is read
    before the folder is listed: a batch may be adding files meanwhile."""
    needed_paths = list(_needed_paths(spark, store, source, position))
    existing_paths = store.listing(source.uri)
    yield from (path for path in needed_paths if path not in existing_paths)


_SCHEME_AND_HOST = re.compile(r"\A(?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/]*)?")


def _needed_paths(spark: SparkSession, store: Store, source: DeltaSource, position: Version) -> Iterator[str]:
    version = position.version
    if position.snapshot:
        snapshot_files = spark.read.format("delta").option("versionAsOf", version).load(source.uri).inputFiles()
        yield from (_path_in_folder(source.uri, file) for file in snapshot_files)
        version += 1
    while (text := store.read(f"{source.uri}/_delta_log/{version:020d}.json")) is not None:
        actions = [json.loads(line) for line in text.split("\n") if line]
        changes = any("remove" in action and action["remove"]["dataChange"] for action in actions)
        added = [action["cdc"] for action in actions if "cdc" in action] if source.changes else []
        if not changes or source.changes:  # a stream of rows skips commits that change rows
            added = added or [action["add"] for action in actions if "add" in action and action["add"]["dataChange"]]
            paths = (unquote(file["path"]) for file in added)
            yield from (path for path in paths if "://" not in path and not path.startswith(("/", "file:")))
        version += 1


def _path_in_folder(folder: str, file: str) -> str:
    """The name of a file relative to its table's folder. Both are as Hadoop writes paths: names as they are on disk,
    not percent-encoded; and Spark names the scheme of a local file."""
    folder_path, file_path = (_SCHEME_AND_HOST.sub("", path) for path in (folder, file))
    return posixpath.relpath(file_path, folder_path or "/")


# Restoring a table to an earlier version: its rows, its quarantine, its position, all under its commit lock.
#
# A generation is opened first, at the earlier position: it fences the table's writer and records the pending rewind.
# The rest moves no data: the quarantine is restored, then the table, then the checkpoint is made. Killed anywhere, the
# next start of the table repeats all of it.


@dataclass(frozen=True)
class RewindTarget:
    """The version that a table goes back to, and where it continues."""

    earlier: EarlierVersion
    resume: ResumePosition
    pending: Rewind


def plan_target(work: TableSession, head: LedgerHead, version: int) -> RewindTarget:
    """UsageError or Terminal if the table cannot go back to that version."""
    entry = head.entry
    refuse_open_work(work.table.name, entry, Terminal, "replay")
    earlier, open_rewind = earlier_version(work.log, head, version), pending_rewind(entry)
    since, position = (open_rewind.since, open_rewind.position) if open_rewind else (entry.generation, entry.after)
    return RewindTarget(earlier, resume_position(earlier.entry, entry), Rewind(version, since, position))


def rewind(work: TableSession, version: int, opened: Callable[[], None] = lambda: None) -> LedgerHead:
    """`opened` is called when no batch of the table can be written any more, and before any row has changed; if it
    raises, the rewind is given up."""
    acquire_commit(work.lock, work.table.name)
    try:
        head = work.head()
        target = plan_target(work, head, version)
        refuse_files(work, target)
        head = try_complete_last(work, head)
        note, at_least = f"rewind to version {version}", next_generation(work.store, work.table)
        head = _open_generation(work, head, target.resume, note, rewind_document(target.pending), at_least)
        try:
            opened()
        except BaseException:
            abort(work, head)
            raise
        return finish(work, head)
    finally:
        work.lock.release()


def finish(work: TableSession, opened: LedgerHead) -> LedgerHead:
    """Under the table's commit lock; `opened` is the end of its ledger, with a pending rewind."""
    table, entry = work.table, opened.entry
    pending = pending_rewind(entry)
    assert pending is not None
    target = plan_target(work, opened, pending.version)
    refuse_files(work, target)
    settle_tombstones(work.spark, table, work.store, opened, idempotent=work.idempotent)
    rewind_entry = entry.next_entry(
        "rewind",
        before=entry.after,
        pins=replace(target.earlier.entry.pins, time_ms=time.time_ns() // 1_000_000, definition=entry.pins.definition),
        counts=target.earlier.counts,
        note=f"rewind to version {pending.version}",
        seen=opened.version,
        horizon=target.earlier.entry.horizon,
        base=target.earlier.entry.base,
        filled=None,
    )
    for companion, version in companions(work, target.earlier):
        companion.commit(rewind_entry, partial(_restore, companion.uri, version))
    session = work.spark.newSession()
    with commit_metadata(session, rewind_entry, idempotent=work.idempotent):
        restore_handle(session, table.uri, pending.version).commit()
    head = must_confirm(opened, work.log, rewind_entry)
    heal(work.store, checkpoint_folder(table.checkpoints, head.entry), head.entry)
    return head


def abort(work: TableSession, head: LedgerHead) -> LedgerHead:
    """Gives a pending rewind up: the table keeps its rows and its position. Under its commit lock."""
    pending, commit = pending_rewind(head.entry), entry_at(work.log, head.commit.version - 1)
    assert pending is not None and commit is not None and commit.entry is not None
    entry = commit.entry
    resume = ResumePosition(pending.position, entry.began, entry.topics, entry.subscription, entry.parked)
    opened = _open_generation(work, head, resume, "rewind given up")
    heal(work.store, checkpoint_folder(work.table.checkpoints, opened.entry), opened.entry)
    return opened


def restore_handle(session: SparkSession, uri: str, version: int) -> Any:
    """The Java object that restores a table to a version: jar_data/java/penstock/delta/Rewind.java"""
    jvm = jvm_of(session)
    return jvm.penstock.delta.Rewind.to(java_session(session), uri, version)


def _restore(uri: str, version: int, session: SparkSession) -> None:
    restore_handle(session, uri, version).commit()


def _open_generation(
    work: TableSession,
    head: LedgerHead,
    resume: ResumePosition,
    note: str,
    pending: dict[str, object] | None = None,
    at_least: int = 0,
) -> LedgerHead:
    return open_generation(
        work.spark,
        work.log,
        head,
        work.table.uri,
        after=resume.after,
        topics=resume.topics,
        subscription=resume.subscription,
        definition=work.table.definition,
        note=note,
        parked=resume.parked,
        began=resume.began,
        pending=pending,
        at_least=at_least,
    )


def companions(work: TableSession, earlier: EarlierVersion) -> list[tuple[CompanionLog, int]]:
    """The tables beside this one (quarantine, tombstones), and the version that each had then."""
    table = work.table
    candidates = (
        existing_quarantine(work.spark, table, work.store, idempotent=work.idempotent),
        tombstone_table(work.spark, work.store, table, idempotent=work.idempotent),
    )
    return [
        (companion, version_of(companion.log, earlier.entry.key, earlier.until_ms))
        for companion in candidates
        if companion is not None
    ]


def refuse_files(work: TableSession, target: RewindTarget) -> None:
    """Terminal if columns changed or files are missing; checked before anything has changed."""
    table, version = work.table, target.earlier.version
    restore = restore_handle(work.spark.newSession(), table.uri, version)
    replay_hint = f"`penstock replay {table.name}` rebuilds it from its source"
    if not restore.sameColumns():
        raise Terminal(f"it had other columns at version {version} than it has now", where=table.name, hint=replay_hint)
    missing_files = {f"version {version}": str(restore.missing())}
    for companion, companion_version in companions(work, target.earlier):
        companion_restore = restore_handle(work.spark.newSession(), companion.uri, companion_version)
        missing_files[f"version {companion_version} of {companion.log.table}"] = str(companion_restore.missing())
    for description, missing in missing_files.items():
        if missing:
            raise Terminal(
                f"files of {description} are no longer there, a vacuum has taken them: {missing.splitlines()[0]} …",
                where=table.name,
                hint=f"{replay_hint}; `maintenance: {{vacuum: {{retain: …}}}}` says for how long versions can be "
                "gone back to",
            )


# A reader of a rewound table that had not read beyond the restored version: it reads up to that version, and continues
# after the commit of the rewind. The versions between have rows that were undone, and a stream would read them all the
# same.


def stop_before_undone(work: TableSession, head: LedgerHead, newest: int) -> LedgerHead:
    """Opens a generation that fences the reader's writer. Under its commit lock."""
    return _open_reader_generation(
        work, head, head.entry.after[0], "waits for a rewind upstream", halt_document(Halt(newest))
    )


def finish_reader(work: TableSession, head: LedgerHead) -> LedgerHead:
    """The end of the reader's ledger once it may continue, under its commit lock. Transient while the rewind of the
    table upstream is not done."""
    if (halt := pending_halt(head.entry)) is not None:
        head = _resume_after_halt(work, head, halt)
    until = pending_until(head.entry)
    if until is not None and same(head.entry.after[0], until.at) and is_complete(work, head):
        head = _open_reader_generation(work, head, until.to, f"continues after version {until.base}", base=until.base)
    return head


def is_past_undone(position: str, version: int) -> bool:
    """Whether the reader has read rows of a later version."""
    return parse_version(position).read_up_to > version


def _resume_after_halt(work: TableSession, head: LedgerHead, halt: Halt) -> LedgerHead:
    source, position = work.table.delta, parse_version(head.entry.after[0])
    assert source is not None
    log = DeltaLog(work.store, source.uri, source.label)
    upstream = read_head(log)
    if upstream is None or pending_rewind(upstream.entry) is not None:
        raise Transient(
            f"it waits for {log.table}, which is going back to an earlier version",
            where=work.table.name,
            hint=f"`penstock run` finishes that, `penstock rewind {log.table} --abort` gives it up",
        )
    rewound_at = upstream.filled[1] if upstream.filled is not None else -1
    commit = log.commit(rewound_at) if rewound_at > halt.seen else None
    if commit is None or commit.restored_to is None:
        return _open_reader_generation(work, head, str(position), f"{log.table} did not go back")
    resume_at = Version(position.table_id, rewound_at + 1)
    if is_past_undone(str(position), commit.restored_to):
        note = f"continues after version {rewound_at}"
        return _open_reader_generation(work, head, str(resume_at), note, base=rewound_at)
    read_until = Version(position.table_id, commit.restored_to + 1)
    pending = until_document(Until(str(read_until), str(resume_at), rewound_at))
    return _open_reader_generation(work, head, str(position), f"reads up to version {commit.restored_to}", pending)


def _open_reader_generation(
    work: TableSession,
    head: LedgerHead,
    after: str,
    note: str,
    pending: dict[str, object] | None = None,
    base: int | None = None,
) -> LedgerHead:
    entry = head.entry
    opened = open_generation(
        work.spark,
        work.log,
        head,
        work.table.uri,
        after=(after,),
        topics=entry.topics,
        subscription=entry.subscription,
        definition=entry.pins.definition,
        note=note,
        base=base,
        pending=pending,
    )
    heal(work.store, checkpoint_folder(work.table.checkpoints, opened.entry), opened.entry)
    return opened
