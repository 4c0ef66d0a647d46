"""Opening a generation for a replay, and going on with one that was cut off."""

from __future__ import annotations

from dataclasses import replace

from penstock.engine.completing import completed_if_it_can_be
from penstock.engine.delta.version import Version, parse
from penstock.engine.merge.tombstone_table import next_generation, settle_tombstones
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.ledger import Tail, advance, read_tail, refuse_foreign_changes
from penstock.engine.protocol.locks import acquire_commit
from penstock.engine.protocol.open import open_generation
from penstock.engine.replay.began import began_of
from penstock.engine.replay.fill import Filled, Outgrown, Say, Work, fill
from penstock.engine.replay.pending import Replay, document, pending_replay
from penstock.engine.replay.settle import drop_rejects_since
from penstock.engine.rewind.pending import owes_jump, pending_rewind
from penstock.errors import Terminal


def open_replay(work: Work, at: int | None, note: str) -> Tail:
    """From here on the writer of the generation before is fenced. `at` is a version of the table upstream, which the
    table goes on after; None: it is read as far as the table has, and goes on where it is."""
    acquire_commit(work.lock, work.table.name)
    try:
        tail = read_tail(work.log)
        if tail is None:
            raise Terminal("it was never made", where=work.table.name, hint="`penstock run` makes it")
        refuse_foreign_changes(tail, work.log)
        _refuse_rewind(work, tail.entry, at)
        tail = completed_if_it_can_be(work, tail)  # should it be aborted
        entry, owed = tail.entry, pending_replay(tail.entry)
        since, position = (owed.since, owed.position) if owed else (entry.generation, entry.after)
        after = position
        if at is not None:
            after = (str(Version(parse(entry.after[0]).table_id, at + 1)),)
        opened = _open(work, tail, Replay(since, position, at), after, note)
        settle_tombstones(work.spark, work.table, work.store, opened, idempotent=work.idempotent)
        return opened
    finally:
        work.lock.release()


def _refuse_rewind(work: Work, entry: Entry, at: int | None) -> None:
    """The position that it has is not that of its rows, or not the one that it goes on at."""
    if pending_rewind(entry) is not None or (at is None and owes_jump(entry)):
        raise Terminal(
            "a rewind of it, or of the table that it reads, is not done yet",
            where=work.table.name,
            hint="`penstock run` finishes it",
        )


def replay(work: Work, at: int | None, note: str, say: Say = lambda _: None) -> Filled:
    while True:
        try:
            return fill(work, open_replay(work, at, note), say)
        except Outgrown:
            say("somebody was to be forgotten meanwhile: it is made again")


def owed(work: Work) -> Tail | None:
    """The end of the ledger if a replay was opened and not filled."""
    tail = read_tail(work.log)
    return tail if tail is not None and pending_replay(tail.entry) is not None else None


def resume(work: Work, tail: Tail, say: Say) -> Filled:
    """In a generation of its own: what the process that was cut off has left behind is of another one."""
    asked = pending_replay(tail.entry)
    assert asked is not None
    return replay(work, asked.at, tail.entry.note or "replay", say)


def abort(work: Work, tail: Tail) -> Tail:
    """The table goes on as it is, from where it was before the replay was opened. What that has left beside the table
    goes when it cannot be filled any more; killed in between, at the next start."""
    entry = tail.entry
    asked = pending_replay(entry)
    if asked is None:
        raise Terminal("no replay of it is open", where=work.table.name, hint="there is nothing to abort")
    acquire_commit(work.lock, work.table.name)
    try:
        opened = _open(work, advance(tail, work.log), None, asked.position, "replay aborted")
        drop_rejects_since(work.spark, work.table, work.store, asked.since, opened, idempotent=work.idempotent)
        return opened
    finally:
        work.lock.release()


def _open(work: Work, tail: Tail, replay: Replay | None, after: tuple[str, ...], note: str) -> Tail:
    entry = tail.entry
    return open_generation(
        work.spark,
        work.log,
        tail,
        work.table.uri,
        after=after,
        topics=entry.topics,
        subscription=entry.subscription,
        definition=work.table.definition,
        note=note,
        began=_began(work, entry, replay),
        pending=document(replay) if replay is not None else None,
        at_least=next_generation(work.store, work.table),
    )


def _began(work: Work, entry: Entry, replay: Replay | None) -> tuple[str, ...] | None:
    """All rows of a version upstream are read wherever the table had begun."""
    if replay is None:
        return None
    if replay.at is None:
        return began_of(work.log, entry)
    return (str(replace(parse(entry.after[0]), version=replay.at, index=-1, snapshot=True)),)
