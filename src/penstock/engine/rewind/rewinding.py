"""A table that goes back to an earlier version: its rows, its quarantine, its position, all under its commit lock.

A generation is opened first, at the position of then: it fences whoever writes the table, and says what is owed. The
rest moves no data: the quarantine goes back, the table goes back, the checkpoint is made. Killed anywhere, the next
start of the table does all of it once more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from penstock.engine.completing import completed_if_it_can_be
from penstock.engine.merge.tombstone_table import next_generation, settle_tombstones, tombstone_table
from penstock.engine.protocol.checkpoint import folder_of
from penstock.engine.protocol.commit import carrying, must_confirm
from penstock.engine.protocol.heal import heal
from penstock.engine.protocol.ledger import Tail
from penstock.engine.protocol.locks import acquire_commit
from penstock.engine.protocol.open import open_generation
from penstock.engine.quarantine import Companion, Quarantine, version_of
from penstock.engine.replay.fill import Work
from penstock.engine.replay.pending import pending_replay
from penstock.engine.rewind.goes_on import GoesOn, goes_on
from penstock.engine.rewind.pending import Rewind, pending_rewind, rewind_document
from penstock.engine.rewind.then import Then, entry_at, then_at
from penstock.errors import Terminal
from penstock.plan.quarantine import quarantine_of


@dataclass(frozen=True)
class Planned:
    """A table that is going back."""

    then: Then
    goes_on: GoesOn
    owed: Rewind


def planned(work: Work, tail: Tail, version: int) -> Planned:
    """UsageError or Terminal where that cannot be done."""
    entry = tail.entry
    if pending_replay(entry) is not None:
        raise Terminal(
            "a replay of it is not done yet",
            where=work.table.name,
            hint=f"`penstock run` finishes it, `penstock replay {work.table.name} --abort` gives it up",
        )
    then = then_at(work.log, tail, version)
    began = pending_rewind(entry)
    owed = Rewind(version, began.since if began else entry.generation, began.position if began else entry.after)
    return Planned(then, goes_on(then.entry, entry), owed)


def rewind(work: Work, version: int, opened: Callable[[], None] = lambda: None) -> Tail:
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


def finish(work: Work, opened: Tail) -> Tail:
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


def give_up(work: Work, tail: Tail) -> Tail:
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
    jvm = session.sparkContext._jvm
    assert jvm is not None
    return jvm.penstock.delta.Rewind.to(session._jsparkSession, uri, version)


def _restore(uri: str, version: int, session: SparkSession) -> None:
    files_of(session, uri, version).commit()


def _open(work: Work, tail: Tail, asked: Planned) -> Tail:
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


def companions(work: Work, then: Then) -> list[tuple[Companion, int]]:
    """What lies beside the table, and the version that each had then."""
    table, found = work.table, list[Companion]()
    if table.may_reject:
        place = quarantine_of(table.name, table.uri)
        quarantine = Quarantine(work.spark, work.store, place, "", idempotent=work.idempotent)
        found += [quarantine] if quarantine.exists else []
    tombstones = tombstone_table(work.spark, work.store, table, idempotent=work.idempotent)
    found += [tombstones] if tombstones is not None else []
    return [(one, version_of(one.log, then.entry.key, then.until_ms)) for one in found]


def refuse_files(work: Work, asked: Planned) -> None:
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
