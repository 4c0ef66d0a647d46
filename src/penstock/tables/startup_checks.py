"""What a start compares before it writes anything: the table with its ledger, the ledger with its checkpoint. Without a
JVM, so that `checkpoints` can say beforehand what a start will do.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from penstock.errors import TableChanged
from penstock.ledger.checkpoint import MARKER, read_checkpoint, state_lost, why_rebuild
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.head import read_head, refuse_foreign_changes, refuse_gap
from penstock.plan.quarantine import MOVED_ASIDE, quarantine_of, tombstones_of

if TYPE_CHECKING:
    from penstock.ledger.checkpoint import Checkpoint
    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead
    from penstock.plan.model import TablePlan
    from penstock.storage.stores import Store


def read_ledger(log: DeltaLog, store: Store, table: TablePlan) -> LedgerHead | None:
    """None if there is no table. Raises if there is another in its place, and says how far this one had come."""
    try:
        return read_head(log)
    except TableChanged as error:
        generations = sorted(int(name) for name in store.names(table.checkpoints) if name.isdigit())
        found = read_checkpoint(store, f"{table.checkpoints}/{generations[-1]}") if generations else None
        planned = found.offsets[max(found.offsets)] if found and found.offsets else None
        if planned is None:
            raise
        said = f"{error.message}. The table that was there had been read up to {', '.join(planned.after)}"
        raise TableChanged(said, where=error.where, hint=error.hint) from None


def compare(store: Store, log: DeltaLog, table: TablePlan, tail: LedgerHead, found: Checkpoint | None) -> str | None:
    """None if the table goes on from its checkpoint, which was `found`; else why that has to be rebuilt. Raises where a
    person has to decide."""
    refuse_foreign_changes(tail, log)
    refuse_gap(tail, log)
    refuse_ahead(store, table, tail.entry)
    stateful = table.stream is not None
    reason = why_rebuild(found, tail.entry, stateful=stateful)
    if stateful and reason is not None and tail.entry.batch > 0:
        raise state_lost(table.name, reason)
    return reason


def refuse_gone(store: Store, table: TablePlan) -> None:
    """For a table that is not there: one that was there has checkpoints."""
    if any(name.isdigit() for name in store.names(table.checkpoints)):
        raise TableChanged(
            f"the table is gone ({table.uri} holds no Delta log), but its checkpoints are still there",
            where=table.name,
            hint="put the table back; or make it anew from `starting`: "
            f"`penstock checkpoints reset {table.name} --to starting`",
        )


def move_leftovers(store: Store, table: TablePlan, tail: LedgerHead) -> list[str]:
    """Of a table that was just created: a quarantine or tombstones that are older are of another table of its name,
    whose folder was removed. They are moved aside, under another name; what was done."""
    if tail.entry.kind != "genesis" or tail.commit.version != 0:
        return []
    said, at = [], tail.commit.timestamp_ms
    for place in (quarantine_of(table.name, table.uri), tombstones_of(table.name, table.uri)):
        log = DeltaLog(store, place.uri, place.table)
        versions = log.versions()
        oldest = log.commit(versions[0]) if versions else None
        if oldest is None or oldest.timestamp_ms >= at:
            continue
        aside = f"{place.uri}{MOVED_ASIDE}{datetime.fromtimestamp(at / 1000, UTC):%Y%m%dT%H%M%SZ}"
        store.move(place.uri, aside)
        said.append(
            f"{place.table} is of an earlier {table.name}, which is gone: moved to {aside}. Nothing reads it there; "
            "delete it when you do not need it"
        )
    return said


def refuse_ahead(store: Store, table: TablePlan, entry: Entry) -> None:
    """A checkpoint of this ledger in a later generation than the table's: the table was put back to an older state."""
    for name in store.names(table.checkpoints):
        if (
            name.isdigit()
            and int(name) > entry.generation
            and f'"{entry.ledger}"' in (store.read(f"{table.checkpoints}/{name}/{MARKER}") or "")
        ):
            raise TableChanged(
                f"there is a checkpoint of generation {name}, but the table ends with generation {entry.generation}: "
                "the table was put back to an older state",
                where=table.name,
                hint=f"`penstock checkpoints reset {table.name} --to ledger` goes on from the table as it is: "
                f"{', '.join(entry.after)}",
            )
