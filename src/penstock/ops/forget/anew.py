"""Tables that rest on Spark's state: nobody can say whom that holds, so it is made anew."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import SparkSession

from penstock.engine.delta.version import parse
from penstock.engine.forget.since import forgotten_since
from penstock.engine.protocol.ledger import read_tail
from penstock.engine.sources import Sources
from penstock.engine.store import Store
from penstock.errors import UsageError
from penstock.ops.recent import RecentLog
from penstock.ops.reset.carry_out import carry_out
from penstock.ops.reset.stream import plan_stream_reset
from penstock.plan.model import DeltaSource, Plan, TablePlan


def begun_before(table: TablePlan, source: DeltaSource, store: Store) -> bool:
    """Whether its state may hold somebody who was forgotten since."""
    forgotten = forgotten_since(RecentLog(store, source.uri, source.table or source.uri))
    tail = read_tail(RecentLog(store, table.uri, table.name))
    if forgotten is None or tail is None:
        return False
    began = [parse(one).version for one in tail.entry.began if "reservoirVersion" in one]
    return not began or min(began) <= forgotten


def begin_anew(
    spark: SparkSession,
    plan: Plan,
    table: TablePlan,
    source: DeltaSource,
    store: Store,
    told: Callable[[str, str], None],
) -> None:
    """It is emptied, reads its sources from their start, and its old state is deleted. Refused while a runner works on
    it, and where it did not begin at the start: rows would be missing."""
    if not begun_before(table, source, store):
        return
    assert table.stream is not None
    later = [one.table for one in table.stream.inputs.values() if one.starting.kind != "earliest"]
    if later:
        raise UsageError(
            f"it rests on Spark's state and begins to read {', '.join(map(str, later))} later than at the start: made "
            "anew, it would lack rows",
            hint=f"`penstock checkpoints reset {table.name} --to starting` when that may be",
        )
    told(table.name, "rests on Spark's state, which is made anew")
    opened = Sources(lambda _: store, spark).open(table)
    tail = carry_out(spark, plan, table, plan_stream_reset(table, store, "starting"), opened)
    for name in store.names(table.checkpoints):
        generation = name.partition(".")[0]
        if generation.isdigit() and int(generation) < tail.entry.generation:
            store.delete(f"{table.checkpoints}/{name}")
