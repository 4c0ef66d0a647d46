"""Tables that rest on the state that Spark keeps in their checkpoint, and nowhere else: lost, they begin anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.heal import heal, seed
from penstock.engine.store import Store
from penstock.errors import Terminal
from penstock.plan.model import TablePlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def begin_anew(table: str) -> str:
    return (
        f"begin anew: `penstock checkpoints reset {table} --to starting` empties the table and reads its sources from "
        "their start"
    )


def state_lost(table: str, why: str) -> Terminal:
    return Terminal(
        f"the checkpoint holds Spark's state of this table and cannot be made again: {why}",
        where=table,
        hint=f"nothing was written. Put the checkpoint back, or {begin_anew(table)}",
    )


def rebuild(spark: SparkSession, store: Store, table: TablePlan, folder: str, entry: Entry) -> None:
    """The checkpoint from which Spark goes on exactly after `entry`. Raises where there would have to be state."""
    if table.stream is None:
        heal(store, folder, entry)
    elif entry.batch == 0:
        seed(store, folder, entry, _metadata(spark, entry.pins.time_ms))
    else:
        raise state_lost(table.name, f"batch {entry.generation}.{entry.batch} has been written")


def _metadata(spark: SparkSession, time_ms: int) -> str:
    """What Spark itself would write of its settings. Those that are missing it takes for those of its first releases,
    whose state had faults. The number of shuffle partitions is among them, and stays what it is now."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    kind = jvm.org.apache.spark.sql.execution.streaming.OffsetSeqMetadata
    return str(kind.apply(0, time_ms, spark._jsparkSession.conf()).json())
