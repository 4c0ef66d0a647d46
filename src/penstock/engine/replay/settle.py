"""After a fill: rejected rows, and tombstones, of the generations before it are of rows that are no longer there."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession

from penstock.engine.merge.tombstone_table import settle_tombstones, tombstone_table
from penstock.engine.protocol.ledger import Tail
from penstock.engine.quarantine import Quarantine
from penstock.engine.replay.pending import kept_of, owes_settling
from penstock.engine.store import Store
from penstock.plan.model import TablePlan
from penstock.plan.quarantine import quarantine_of


def settle_quarantine(spark: SparkSession, table: TablePlan, store: Store, tail: Tail, *, idempotent: bool) -> None:
    """Under the table's commit lock. Nothing happens if it is done already, or if the last entry is no fill."""
    if not owes_settling(tail.entry):
        return
    tombstones = tombstone_table(spark, store, table, idempotent=idempotent)
    if tombstones is not None and tombstones.filled < tail.entry.generation:
        tombstones.drop(f"generation < {tail.entry.generation}", replace(tail.entry, kind="fill", pending={}))
    if not table.may_reject:
        return
    quarantine = Quarantine(spark, store, quarantine_of(table.name, table.uri), "", idempotent=idempotent)
    generation, kept = tail.entry.generation, kept_of(tail.entry)
    if not quarantine.exists or quarantine.filled >= generation:
        return
    older = f"generation < {generation}"
    condition = older if kept is None else f"{older} AND NOT coalesce({kept}, false)"
    quarantine.drop(condition, replace(tail.entry, kind="fill", pending={}))


def drop_rejects_since(
    spark: SparkSession, table: TablePlan, store: Store, generation: int, tail: Tail, *, idempotent: bool
) -> None:
    """Those of replays that came to nothing, in the generations between this one and that of the last entry, and their
    tombstones."""
    entry = replace(tail.entry, kind="open", pending={})
    between = f"generation > {generation} AND generation < {entry.generation}"
    settle_tombstones(spark, table, store, tail, idempotent=idempotent)
    if not table.may_reject:
        return
    quarantine = Quarantine(spark, store, quarantine_of(table.name, table.uri), "", idempotent=idempotent)
    if quarantine.exists:
        quarantine.drop(between, entry)
