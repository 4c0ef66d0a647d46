"""What a start checks before it writes: the table against its ledger, and the ledger against its checkpoint. It needs
no JVM, so that `checkpoints` can say in advance what a start will do.
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
    """The head of the table's ledger; None if there is no table. Raises if another table is in its place, and says how
    far this one had been read."""
    try:
        return read_head(log)
    except TableChanged as error:
        generations = sorted(int(name) for name in store.names(table.checkpoints) if name.isdigit())
        checkpoint = read_checkpoint(store, f"{table.checkpoints}/{generations[-1]}") if generations else None
        last_planned = checkpoint.offsets[max(checkpoint.offsets)] if checkpoint and checkpoint.offsets else None
        if last_planned is None:
            raise
        message = f"{error.message}. The table that was there had been read up to {', '.join(last_planned.after)}"
        raise TableChanged(message, where=error.where, hint=error.hint) from None


def check_checkpoint(
    store: Store, log: DeltaLog, table: TablePlan, head: LedgerHead, checkpoint: Checkpoint | None
) -> str | None:
    """None if the table can continue from its checkpoint; else why the checkpoint must be rebuilt. Raises if a person
    has to decide."""
    refuse_foreign_changes(head, log)
    refuse_gap(head, log)
    refuse_later_generation(store, table, head.entry)
    stateful = table.stream is not None
    reason = why_rebuild(checkpoint, head.entry, stateful=stateful)
    if stateful and reason is not None and head.entry.batch > 0:
        raise state_lost(table.name, reason)
    return reason


def refuse_missing_table(store: Store, table: TablePlan) -> None:
    """Raises if a missing table has checkpoints, which means that it existed before."""
    if any(name.isdigit() for name in store.names(table.checkpoints)):
        raise TableChanged(
            f"the table is gone ({table.uri} holds no Delta log), but its checkpoints are still there",
            where=table.name,
            hint="put the table back; or rebuild it from `starting`: "
            f"`penstock checkpoints reset {table.name} --to starting`",
        )


def move_leftovers(store: Store, table: TablePlan, head: LedgerHead) -> list[str]:
    """Moves aside a quarantine or tombstones older than a table that was just created, and returns notes on it: they
    belong to an earlier table of the same name, whose folder was removed."""
    if head.entry.kind != "genesis" or head.commit.version != 0:
        return []
    notes, created_ms = [], head.commit.timestamp_ms
    for location in (quarantine_of(table.name, table.uri), tombstones_of(table.name, table.uri)):
        log = DeltaLog(store, location.uri, location.table)
        versions = log.versions()
        oldest = log.commit(versions[0]) if versions else None
        if oldest is None or oldest.timestamp_ms >= created_ms:
            continue
        moved_to = f"{location.uri}{MOVED_ASIDE}{datetime.fromtimestamp(created_ms / 1000, UTC):%Y%m%dT%H%M%SZ}"
        store.move(location.uri, moved_to)
        notes.append(
            f"{location.table} is of an earlier {table.name}, which is gone: moved to {moved_to}. Nothing reads it "
            "there; delete it when you do not need it"
        )
    return notes


def refuse_later_generation(store: Store, table: TablePlan, entry: Entry) -> None:
    """Raises if this ledger has a checkpoint of a later generation: then the table was restored to an older state."""
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
                hint=f"`penstock checkpoints reset {table.name} --to ledger` continues from the table as it is: "
                f"{', '.join(entry.after)}",
            )
