"""Tables that were made of rows that are no longer there: the table upstream was made anew since."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.delta.version import parse
from penstock.engine.protocol.ledger import Tail, read_tail
from penstock.engine.protocol.locks import holder, lock_path
from penstock.engine.replay.pending import pending_replay
from penstock.engine.rewind.pending import owes_jump, pending_rewind
from penstock.engine.store import Store
from penstock.errors import PenstockError
from penstock.ops.recent import RecentLog
from penstock.plan.model import DeltaSource, Plan, TablePlan
from penstock.plan.readers import how_it_reads


@dataclass(frozen=True)
class Stale:
    upstream: str
    version: int
    """Of the table upstream, in which it was made anew."""
    hint: str


def stale(table: TablePlan, tail: Tail, upstream: Tail) -> Stale | None:
    """None if its rows are made of what the table upstream has now, or will be without anybody's help."""
    source, filled = table.source, upstream.filled
    if not isinstance(source, DeltaSource) or source.table is None or filled is None:
        return None
    version, how = filled[1], how_it_reads(table)
    if how == "follows" or owes_jump(tail.entry):
        return None
    if how == "recomputed":
        made_of = parse(tail.entry.after[0]).read_up_to
        hint = f"its next batch computes every group again; `penstock replay {table.name} --version {version}` does now"
    else:
        made_of = -1 if tail.entry.base is None else tail.entry.base
        hint = {
            "rebuilt": f"`penstock replay {source.table} --cascade` makes it anew too; or it alone: `penstock replay "
            f"{table.name} --version {version}`",
            "state": f"`penstock checkpoints reset {table.name} --to starting` makes it anew",
            "sent": "what it sent cannot be taken back; rows that come from now on are the new ones",
        }[how]
    return Stale(source.table, version, hint) if made_of < version else None


def stale_against(table: TablePlan, tail: Tail, store: Store) -> Stale | None:
    """The same, after a look at the table upstream. One that cannot be read is said elsewhere."""
    source = table.source
    if not isinstance(source, DeltaSource) or source.table is None:
        return None
    try:
        upstream = read_tail(RecentLog(store, source.uri, source.table))
    except (PenstockError, ValueError, KeyError, OSError):
        return None
    return stale(table, tail, upstream) if upstream is not None else None


def replaying(plan: Plan, table: TablePlan, tail: Tail) -> str | None:
    """Of a table with a replay or a rewind that was opened and is not done: who is at it."""
    if pending_rewind(tail.entry) is not None:
        give_up = f"`penstock rewind {table.name} --abort` gives it up"
        return f"a rewind of it was cut off: `penstock run` finishes it, {give_up}"
    if owes_jump(tail.entry):
        source = table.source.table if isinstance(table.source, DeltaSource) else None
        return f"{source} goes back to an earlier version, or went: its next start goes on after that"
    if pending_replay(tail.entry) is None:
        return None
    process = holder(lock_path(plan.system, table.name, "replay")) if plan.local else None
    if process is not None:
        return f"process {process} replays it"
    give_up = f"`penstock replay {table.name} --abort` gives it up"
    return f"a replay of it was cut off: `penstock run` finishes it, {give_up}"
