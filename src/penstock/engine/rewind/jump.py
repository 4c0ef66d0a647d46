"""A reader of a table that went back, and had not read beyond that version: it reads up to there, and goes on after the
commit by which the table went back. What lies between has rows that are gone, and a stream would read them all the
same."""

from __future__ import annotations

from penstock.engine.completing import is_complete
from penstock.engine.delta.version import Version, parse
from penstock.engine.protocol.checkpoint import folder_of
from penstock.engine.protocol.heal import heal
from penstock.engine.protocol.ledger import Tail, read_tail
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.protocol.open import open_generation
from penstock.engine.protocol.position import same
from penstock.engine.replay.fill import Work
from penstock.engine.rewind.pending import (
    Halt,
    Until,
    halt_document,
    pending_halt,
    pending_rewind,
    pending_until,
    until_document,
)
from penstock.errors import Transient
from penstock.plan.model import DeltaSource


def halt(work: Work, tail: Tail, seen: int) -> Tail:
    """From here on its writer is fenced. Under its commit lock."""
    return _opened(work, tail, tail.entry.after[0], "waits for a rewind upstream", halt_document(Halt(seen)))


def settle(work: Work, tail: Tail) -> Tail:
    """The end of its ledger when it may go on, under its commit lock. Transient as long as the table upstream is not
    back."""
    if (halted := pending_halt(tail.entry)) is not None:
        tail = _after_halt(work, tail, halted)
    until = pending_until(tail.entry)
    if until is not None and same(tail.entry.after[0], until.at) and is_complete(work, tail):
        tail = _opened(work, tail, until.to, f"goes on after version {until.base}", base=until.base)
    return tail


def is_past(position: str, version: int) -> bool:
    """It has read rows of a later version."""
    return parse(position).read_up_to > version


def _after_halt(work: Work, tail: Tail, halted: Halt) -> Tail:
    source, at = work.table.source, parse(tail.entry.after[0])
    assert isinstance(source, DeltaSource)
    log = DeltaLog(work.store, source.uri, source.table or source.uri)
    upstream = read_tail(log)
    if upstream is None or pending_rewind(upstream.entry) is not None:
        raise Transient(
            f"it waits for {log.table}, which is going back to an earlier version",
            where=work.table.name,
            hint=f"`penstock run` finishes that, `penstock rewind {log.table} --abort` gives it up",
        )
    back = upstream.filled[1] if upstream.filled is not None else -1
    commit = log.commit(back) if back > halted.seen else None
    if commit is None or commit.restored_to is None or is_past(str(at), commit.restored_to):
        if commit is None or commit.restored_to is None:
            return _opened(work, tail, str(at), f"{log.table} did not go back")
        return _opened(work, tail, str(Version(at.table_id, back + 1)), f"goes on after version {back}", base=back)
    to = Version(at.table_id, back + 1)
    end = Version(at.table_id, commit.restored_to + 1)
    pending = until_document(Until(str(end), str(to), back))
    return _opened(work, tail, str(at), f"reads up to version {commit.restored_to}", pending)


def _opened(
    work: Work, tail: Tail, after: str, note: str, pending: dict[str, object] | None = None, base: int | None = None
) -> Tail:
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
