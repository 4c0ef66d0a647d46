"""Taking a table back to an earlier version: its rows, its quarantine and its position; and what its readers do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from penstock.errors import DataLoss, PenstockError, Terminal, Transient, UsageError
from penstock.ledger.checkpoint import folder_of, heal
from penstock.ledger.commit import carrying, must_confirm
from penstock.ledger.delta_log import DeltaLog, Origin
from penstock.ledger.generations import open_generation
from penstock.ledger.head import read_head, standing
from penstock.ledger.pending import (
    Halt,
    Rewind,
    Until,
    halt_document,
    pending_halt,
    pending_replay,
    pending_rewind,
    pending_until,
    rewind_document,
    until_document,
)
from penstock.ledger.position import Version, dump, parse, parse_version, same
from penstock.ledger.source import ReplayRequest
from penstock.plan.build import how_it_reads
from penstock.plan.quarantine import quarantine_of
from penstock.plan.sources import DeltaSource
from penstock.spark.jvm import java_session, jvm_of
from penstock.storage.locks import acquire_commit
from penstock.tables.merge.tombstones import next_generation, settle_tombstones, tombstone_table
from penstock.tables.quarantine import Companion, Quarantine, version_of
from penstock.tables.session import completed_if_it_can_be, is_complete

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.delta_log import Commit
    from penstock.ledger.entry import Counts, Entry
    from penstock.ledger.head import LedgerHead
    from penstock.ledger.position import Offsets
    from penstock.storage.stores import Store
    from penstock.tables.session import TableSession

# What a table was at an earlier version: its position, its counts, and until when it was that.


@dataclass(frozen=True)
class EarlierVersion:
    version: int
    entry: Entry
    """The last one up to that version."""
    counts: Counts
    until_ms: int
    """When the first commit after that was made: what lies beside the table goes back to before then."""
    undone: tuple[Commit, ...]
    """The commits after it."""


def earlier_version(log: DeltaLog, tail: LedgerHead, version: int) -> EarlierVersion:
    """UsageError where the table cannot go back to that version, with the reason. `tail` knows what became of the rows
    of its last batch."""
    found = entry_at(log, version)
    undone = tuple(log.since(version))
    _refuse(log, tail, version, found, undone)
    assert found is not None and found.entry is not None
    later = (found.version + 1 + n for n in range(tail.version - found.version))
    commits = (commit for one in later if (commit := log.commit(one)) is not None)
    after = next((one for one in commits if one.origin is Origin.LEDGER and one.entry is not None), None)
    if after is None or after.entry is None:
        return EarlierVersion(version, found.entry, tail.counts, undone[0].timestamp_ms, undone)
    return EarlierVersion(version, found.entry, after.entry.counts, after.timestamp_ms, undone)


def entry_at(log: DeltaLog, version: int) -> Commit | None:
    """What was opened and had not become anything yet has changed no row: the entry before it counts."""
    while version >= 0:
        commit = log.commit(version)
        if commit is None:
            return None
        entry = commit.entry if commit.origin is Origin.LEDGER else None
        if entry is not None and not (entry.kind == "open" and entry.pending):
            return standing(log, commit)
        version -= 1
    return None


def _refuse(log: DeltaLog, tail: LedgerHead, version: int, found: Commit | None, undone: tuple[Commit, ...]) -> None:
    table, see = log.table, f"`penstock history {log.table}` shows its versions"
    if version > tail.version:
        raise UsageError(f"{table} has no version {version}: its newest is {tail.version}", hint=see)
    if found is None:
        raise UsageError(
            f"the log of {table} does not reach back to where it was at version {version}",
            hint=f"`penstock replay {table}` makes it anew from its source",
        )
    if not any(one.origin is not Origin.MAINTENANCE for one in undone):
        raise UsageError(f"{table} is as it was at version {version}: there is nothing to undo", hint=see)
    forgotten = [one.version for one in undone if one.entry is not None and one.entry.kind == "forget"]
    if forgotten:
        raise UsageError(
            f"somebody was forgotten in version {forgotten[-1]} of {table}: it cannot go back to before that",
            hint=f"version {forgotten[-1]} is the oldest that it can go back to; or `penstock replay {table}`",
        )


# Where a table goes on after it went back: where it was then, whatever has become of its source since.


@dataclass(frozen=True)
class ResumePosition:
    after: tuple[str, ...]
    began: tuple[str, ...]
    topics: Mapping[str, str]
    subscription: Mapping[str, Any]
    parked: Mapping[str, Any]


def resume_position(then: Entry, now: Entry) -> ResumePosition:
    if _topics(then) and _topics(now):
        return _in_topics(then, now)
    if dict(then.subscription) != dict(now.subscription):
        raise UsageError(
            f"{now.table} read another source then: where it would go on means nothing to the one that it has now",
            hint=f"`penstock replay {now.table}` makes it anew from its source of now",
        )
    return ResumePosition(then.after, then.began, then.topics, now.subscription, now.parked)


def _topics(entry: Entry) -> bool:
    return "topics" in entry.subscription or "pattern" in entry.subscription


def _in_topics(then: Entry, now: Entry) -> ResumePosition:
    """Topics that were named since begin where they began then, not by `starting` once more: latest would be later.
    Those that were taken out since are left where they were at the time."""
    was, began, first = parse(then.after[0]), _began(then), _began(now)
    left = {topic: _offsets(one) for topic, one in then.parked.items()}
    places: Offsets = {**first, **left, **was}
    read = [topic for topic in parse(now.after[0]) if topic in places]
    ids = {**now.topics, **then.topics}
    parked = {
        topic: {"id": then.topics.get(topic) or one.get("id"), "offsets": places[topic]} if topic in places else one
        for topic, one in now.parked.items()
    }
    return ResumePosition(
        after=(dump({topic: places[topic] for topic in read}),),
        began=(dump({**first, **began}),) if first or began else (),
        topics={topic: ids[topic] for topic in read if topic in ids},
        subscription=now.subscription,
        parked=parked,
    )


def _began(entry: Entry) -> Offsets:
    return parse(entry.began[0]) if entry.began else {}


def _offsets(parked: Mapping[str, Any]) -> dict[int, int]:
    return {int(partition): int(offset) for partition, offset in parked["offsets"].items()}


# Whether a source still has all that a table would read again after it went back.


def refuse_gone(work: TableSession, now: Entry, on: ResumePosition) -> None:
    """Terminal where rows would be lost, because they could not be read again."""
    instead = f"`penstock replay {work.table.name}` makes it anew with what there is"
    try:
        work.source.refuse_lost(replace(now, after=on.after, topics=on.topics))
    except DataLoss as error:
        raise Terminal(
            f"its source no longer has all that it would read again: {error.message}",
            where=work.table.name,
            hint=instead,
        ) from None
    if work.table.files is not None:
        asked = ReplayRequest(now.after, on.after, now.topics)
        gone: tuple[str, ...] = work.source.covered(work.spark, asked).gone
        what = "files that it would read again"
    elif (source := work.table.delta) is not None:
        _refuse_exchanged(work, source, parse_version(on.after[0]), instead)
        gone = tuple(_missing(work.spark, work.store, source, parse_version(on.after[0])))
        what = f"files of {source.label} that it would read again"
    else:
        return
    if gone:
        raise Terminal(f"{what} are no longer there: {gone[0]} …", where=work.table.name, hint=instead)


def _refuse_exchanged(work: TableSession, source: DeltaSource, at: Version, instead: str) -> None:
    """All rows of the table upstream were exchanged since: a stream from there would read those of before."""
    if source.table is None or how_it_reads(work.table) in ("follows", "recomputed"):
        return
    try:
        upstream = read_head(DeltaLog(work.store, source.uri, source.table))
    except PenstockError:
        return  # that it cannot be read is said where it is
    if upstream is not None and upstream.filled is not None and upstream.filled[1] > at.read_up_to:
        raise Terminal(
            f"{source.table} was made anew, or went back, in version {upstream.filled[1]}, and {work.table.name} had "
            f"read it up to version {at.read_up_to} then: it would read rows that are no longer there",
            where=work.table.name,
            hint=instead,
        )


def _missing(spark: SparkSession, store: Store, source: DeltaSource, at: Version) -> Iterator[str]:
    """By their names in the log, of the versions from a position on. The log is read before the folder is listed: a
    batch may be adding files meanwhile."""
    wanted = list(_wanted(spark, store, source, at))
    there = store.listing(source.uri)
    yield from (path for path in wanted if path not in there)


def _wanted(spark: SparkSession, store: Store, source: DeltaSource, at: Version) -> Iterator[str]:
    version = at.version
    if at.snapshot:
        inside = spark.read.format("delta").option("versionAsOf", version).load(source.uri).inputFiles()
        yield from (unquote(str(one)).rpartition(f"{source.uri.rstrip('/').rpartition('/')[2]}/")[2] for one in inside)
        version += 1
    while (text := store.read(f"{source.uri}/_delta_log/{version:020d}.json")) is not None:
        actions = [json.loads(line) for line in text.split("\n") if line]
        changes = any("remove" in one and one["remove"]["dataChange"] for one in actions)
        fed = [one["cdc"] for one in actions if "cdc" in one] if source.changes else []
        if not changes or source.changes:  # a stream of rows steps over commits that change some
            fed = fed or [one["add"] for one in actions if "add" in one and one["add"]["dataChange"]]
            yield from (path for one in fed if "://" not in (path := unquote(one["path"])) and path[:1] != "/")
        version += 1


# A table that goes back to an earlier version: its rows, its quarantine, its position, all under its commit lock.
#
# A generation is opened first, at the position of then: it fences whoever writes the table, and says what is owed.
# The rest moves no data: the quarantine goes back, the table goes back, the checkpoint is made. Killed anywhere, the
# next start of the table does all of it once more.


@dataclass(frozen=True)
class RewindTarget:
    """A table that is going back."""

    then: EarlierVersion
    goes_on: ResumePosition
    owed: Rewind


def planned(work: TableSession, tail: LedgerHead, version: int) -> RewindTarget:
    """UsageError or Terminal where that cannot be done."""
    entry = tail.entry
    if pending_replay(entry) is not None:
        raise Terminal(
            "a replay of it is not done yet",
            where=work.table.name,
            hint=f"`penstock run` finishes it, `penstock replay {work.table.name} --abort` gives it up",
        )
    then = earlier_version(work.log, tail, version)
    began = pending_rewind(entry)
    owed = Rewind(version, began.since if began else entry.generation, began.position if began else entry.after)
    return RewindTarget(then, resume_position(then.entry, entry), owed)


def rewind(work: TableSession, version: int, opened: Callable[[], None] = lambda: None) -> LedgerHead:
    """`opened` is called when no batch of the table can be written any more, and before any row has changed; what it
    raises gives the rewind up."""
    acquire_commit(work.lock, work.table.name)
    try:
        tail = work.end()
        asked = planned(work, tail, version)
        refuse_files(work, asked)
        tail = completed_if_it_can_be(work, tail)
        tail = _open(work, tail, asked)
        try:
            opened()
        except BaseException:
            give_up(work, tail)
            raise
        return finish(work, tail)
    finally:
        work.lock.release()


def finish(work: TableSession, opened: LedgerHead) -> LedgerHead:
    """Under the table's commit lock; `opened` is the end of its ledger, and owes a rewind."""
    table, entry = work.table, opened.entry
    owed = pending_rewind(entry)
    assert owed is not None
    asked = planned(work, opened, owed.version)
    refuse_files(work, asked)
    settle_tombstones(work.spark, table, work.store, opened, idempotent=work.idempotent)
    made = entry.followed(
        "rewind",
        before=entry.after,
        pins=replace(asked.then.entry.pins, time_ms=time.time_ns() // 1_000_000, definition=entry.pins.definition),
        counts=asked.then.counts,
        note=f"rewind to version {owed.version}",
        seen=opened.version,
        horizon=asked.then.entry.horizon,
        base=asked.then.entry.base,
        filled=None,
    )
    for companion, version in companions(work, asked.then):
        companion.commit(made, partial(_restore, companion.uri, version))
    session = work.spark.newSession()
    with carrying(session, made, idempotent=work.idempotent):
        files_of(session, table.uri, owed.version).commit()
    tail = must_confirm(opened, work.log, made)
    heal(work.store, folder_of(table.checkpoints, tail.entry), tail.entry)
    return tail


def give_up(work: TableSession, tail: LedgerHead) -> LedgerHead:
    """The table goes on as it is, from where it was. Under its commit lock."""
    owed, commit = pending_rewind(tail.entry), entry_at(work.log, tail.commit.version - 1)
    assert owed is not None and commit is not None and commit.entry is not None
    was = commit.entry
    made = open_generation(
        work.spark,
        work.log,
        tail,
        work.table.uri,
        after=owed.position,
        topics=was.topics,
        subscription=was.subscription,
        definition=work.table.definition,
        note="rewind given up",
        parked=was.parked,
        began=was.began,
    )
    heal(work.store, folder_of(work.table.checkpoints, made.entry), made.entry)
    return made


def files_of(session: SparkSession, uri: str, version: int) -> Any:
    """jar_data/java/penstock/delta/Rewind.java"""
    jvm = jvm_of(session)
    return jvm.penstock.delta.Rewind.to(java_session(session), uri, version)


def _restore(uri: str, version: int, session: SparkSession) -> None:
    files_of(session, uri, version).commit()


def _open(work: TableSession, tail: LedgerHead, asked: RewindTarget) -> LedgerHead:
    on = asked.goes_on
    return open_generation(
        work.spark,
        work.log,
        tail,
        work.table.uri,
        after=on.after,
        topics=on.topics,
        subscription=on.subscription,
        definition=work.table.definition,
        note=f"rewind to version {asked.owed.version}",
        parked=on.parked,
        began=on.began,
        pending=rewind_document(asked.owed),
        at_least=next_generation(work.store, work.table),
    )


def companions(work: TableSession, then: EarlierVersion) -> list[tuple[Companion, int]]:
    """What lies beside the table, and the version that each had then."""
    table, found = work.table, list[Companion]()
    if table.may_reject:
        place = quarantine_of(table.name, table.uri)
        quarantine = Quarantine(work.spark, work.store, place, "", idempotent=work.idempotent)
        found += [quarantine] if quarantine.exists else []
    tombstones = tombstone_table(work.spark, work.store, table, idempotent=work.idempotent)
    found += [tombstones] if tombstones is not None else []
    return [(one, version_of(one.log, then.entry.key, then.until_ms)) for one in found]


def refuse_files(work: TableSession, asked: RewindTarget) -> None:
    """Before anything has changed."""
    table, version = work.table, asked.then.version
    back = files_of(work.spark.newSession(), table.uri, version)
    instead = f"`penstock replay {table.name}` makes it anew from its source"
    if not back.sameColumns():
        raise Terminal(f"it had other columns at version {version} than it has now", where=table.name, hint=instead)
    gone = {f"version {version}": str(back.missing())}
    for companion, at in companions(work, asked.then):
        beside = files_of(work.spark.newSession(), companion.uri, at)
        gone[f"version {at} of {companion.log.table}"] = str(beside.missing())
    for what, missing in gone.items():
        if missing:
            raise Terminal(
                f"files of {what} are no longer there, a vacuum has taken them: {missing.splitlines()[0]} …",
                where=table.name,
                hint=f"{instead}; `maintenance: {{vacuum: {{retain: …}}}}` says for how long versions can be gone back "
                "to",
            )


# A reader of a table that went back, and had not read beyond that version: it reads up to there, and goes on after
# the commit by which the table went back. What lies between has rows that are gone, and a stream would read them all
# the same.


def stop_before_undone(work: TableSession, tail: LedgerHead, seen: int) -> LedgerHead:
    """From here on its writer is fenced. Under its commit lock."""
    return _opened(work, tail, tail.entry.after[0], "waits for a rewind upstream", halt_document(Halt(seen)))


def settle(work: TableSession, tail: LedgerHead) -> LedgerHead:
    """The end of its ledger when it may go on, under its commit lock. Transient as long as the table upstream is not
    back."""
    if (halted := pending_halt(tail.entry)) is not None:
        tail = _after_halt(work, tail, halted)
    until = pending_until(tail.entry)
    if until is not None and same(tail.entry.after[0], until.at) and is_complete(work, tail):
        tail = _opened(work, tail, until.to, f"goes on after version {until.base}", base=until.base)
    return tail


def is_past_undone(position: str, version: int) -> bool:
    """It has read rows of a later version."""
    return parse_version(position).read_up_to > version


def _after_halt(work: TableSession, tail: LedgerHead, halted: Halt) -> LedgerHead:
    source, at = work.table.delta, parse_version(tail.entry.after[0])
    assert source is not None
    log = DeltaLog(work.store, source.uri, source.label)
    upstream = read_head(log)
    if upstream is None or pending_rewind(upstream.entry) is not None:
        raise Transient(
            f"it waits for {log.table}, which is going back to an earlier version",
            where=work.table.name,
            hint=f"`penstock run` finishes that, `penstock rewind {log.table} --abort` gives it up",
        )
    back = upstream.filled[1] if upstream.filled is not None else -1
    commit = log.commit(back) if back > halted.seen else None
    if commit is None or commit.restored_to is None or is_past_undone(str(at), commit.restored_to):
        if commit is None or commit.restored_to is None:
            return _opened(work, tail, str(at), f"{log.table} did not go back")
        return _opened(work, tail, str(Version(at.table_id, back + 1)), f"goes on after version {back}", base=back)
    to = Version(at.table_id, back + 1)
    end = Version(at.table_id, commit.restored_to + 1)
    pending = until_document(Until(str(end), str(to), back))
    return _opened(work, tail, str(at), f"reads up to version {commit.restored_to}", pending)


def _opened(
    work: TableSession,
    tail: LedgerHead,
    after: str,
    note: str,
    pending: dict[str, object] | None = None,
    base: int | None = None,
) -> LedgerHead:
    entry = tail.entry
    made = open_generation(
        work.spark,
        work.log,
        tail,
        work.table.uri,
        after=(after,),
        topics=entry.topics,
        subscription=entry.subscription,
        definition=entry.pins.definition,
        note=note,
        base=base,
        pending=pending,
    )
    heal(work.store, folder_of(work.table.checkpoints, made.entry), made.entry)
    return made
