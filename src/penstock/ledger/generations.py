"""Entries without rows, which change a table's position or repeat it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.ledger.commit import append_entry, must_confirm, remove_all_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.ledger.delta_log import DeltaLog
    from penstock.ledger.head import LedgerHead

DAY_MS = 24 * 3600 * 1000
CARRY_AFTER_MS = 2 * DAY_MS
"""Delta keeps its log for 30 days, 7 at the least that a project may ask for: an idle table's last entry is repeated
long before that."""


def open_generation(
    spark: SparkSession,
    log: DeltaLog,
    head: LedgerHead,
    uri: str,
    *,
    after: tuple[str, ...],
    topics: Mapping[str, str],
    subscription: Mapping[str, Any],
    definition: str,
    note: str,
    parked: Mapping[str, Any] | None = None,
    emptied: bool = False,
    base: int | None = None,
    began: tuple[str, ...] | None = None,
    pending: Mapping[str, Any] | None = None,
    at_least: int = 0,
) -> LedgerHead:
    """Opens generation g+1 at the position `after`: fences whoever writes generation g, at the next chain check.
    `emptied` removes all rows in the same commit; `pending` is what has to be done before its first batch. The
    generation is `at_least` that: if a table was put back, what lies beside it may belong to later ones."""
    last = head.entry
    entry = last.next_entry(
        "open",
        generation=max(last.generation + 1, at_least),
        batch=0,
        before=last.after,
        after=after,
        pins=replace(last.pins, time_ms=time.time_ns() // 1_000_000, definition=definition),
        topics=topics,
        subscription=subscription,
        counts=head.counts,
        note=note,
        parked=last.parked if parked is None else parked,
        seen=head.version,
        horizon=None if emptied else last.horizon,
        base=base if emptied or base is not None else last.base,
        began=after if emptied else began if began is not None else last.began,
        filled=head.filled,
        pending=pending or {},
    )
    if emptied:
        remove_all_rows(spark, uri, entry)
    else:
        append_entry(spark, uri, entry)
    return must_confirm(head, log, entry)


def needs_carry(head: LedgerHead, now_ms: int | None = None) -> bool:
    now = now_ms if now_ms is not None else time.time_ns() // 1_000_000
    return now - head.commit.timestamp_ms >= CARRY_AFTER_MS


def carry_forward(
    spark: SparkSession, log: DeltaLog, head: LedgerHead, uri: str, *, now_ms: int | None = None
) -> LedgerHead:
    """Commits the last entry again if it is so old that log retention could remove it; else returns the head
    unchanged."""
    if not needs_carry(head, now_ms):
        return head
    entry = head.carry_entry
    append_entry(spark, uri, entry)
    return must_confirm(head, log, entry)
