"""Tombstones that are old enough go, in a commit of their own: it carries the last entry once more, so that the chain
of batches goes on over it. Nobody sees a difference; but a change from before the delete then brings its row back.
"""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.engine.merge.exchange import FILE, PLACE, Exchange
from penstock.engine.merge.tombstones import DELETED, DELETED_AT
from penstock.engine.protocol.commit import carrying, must_confirm
from penstock.engine.protocol.ledger import Tail
from penstock.engine.protocol.log import DeltaLog
from penstock.plan.model import TablePlan

_ENDED = "ended"


def purge(spark: SparkSession, table: TablePlan, log: DeltaLog, tail: Tail, *, now_ms: int | None = None) -> Tail:
    """Called under the table's commit lock. Nothing happens without `keep_deleted`, or if none is old enough."""
    merge = table.write.merge
    if merge is None or merge.keep_deleted_ms is None:
        return tail
    now = now_ms if now_ms is not None else time.time_ns() // 1_000_000
    last = now - merge.keep_deleted_ms
    session = spark.newSession()  # what goes with its commits is of nobody else's
    exchange = Exchange(session, table.uri)
    if not exchange.look(until(session, last)):
        return tail
    old = exchange.rows().where(f"{DELETED} AND {DELETED_AT} <= timestamp_millis({last}L)")
    found = old.groupBy(FILE).agg(F.collect_list(PLACE).alias("places"), F.count(F.lit(1)).alias(_ENDED))
    ended = exchange.find(found, (_ENDED,))[_ENDED]
    if not ended:
        return tail
    entry = tail.carried
    told = {
        "numTargetRowsInserted": 0,
        "numTargetRowsUpdated": 0,
        "numTargetRowsCopied": 0,
        "operationNumSourceRows": 0,
    }
    with carrying(session, entry, idempotent=False):
        exchange.commit(None, {**told, "numTargetRowsDeleted": ended}, seen=False)
    return must_confirm(tail, log, entry)


def until(session: SparkSession, millis: int) -> Any:
    """Deleted by then: ranges for a look."""
    ranges = f"array(struct(0L AS low, {millis}L * 1000L AS high))"  # microseconds since 1970
    return session.range(1).selectExpr(f"{ranges} AS {DELETED_AT}")._jdf.first()
