"""Moving a table's position: one commit that opens a generation, then a checkpoint that begins there."""

from __future__ import annotations

from contextlib import ExitStack, closing

from pyspark.sql import SparkSession

from penstock.engine.completing import complete_last
from penstock.engine.forget.statistics import with_statistics
from penstock.engine.merge.tombstone_table import next_generation
from penstock.engine.protocol.checkpoint import folder_of
from penstock.engine.protocol.genesis import genesis
from penstock.engine.protocol.ledger import Tail
from penstock.engine.protocol.locks import JvmLock, NoLock, acquire_commit, acquire_run, lock_path
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.protocol.open import open_generation
from penstock.engine.replay.fill import Work
from penstock.engine.replay.pending import pending_replay
from penstock.engine.rewind.pending import pending_rewind
from penstock.engine.source import Source, Start
from penstock.engine.state import rebuild
from penstock.engine.store import HadoopStore, LocalStore, Store
from penstock.engine.table_function import table_function
from penstock.errors import Conflict, PenstockError, Terminal
from penstock.ops.reset.model import Reset, tail_of
from penstock.plan.model import Plan, TablePlan
from penstock.plan.quarantine import quarantine_of


def carry_out(spark: SparkSession, plan: Plan, table: TablePlan, reset: Reset, source: Source) -> Tail:
    """Refused while a runner works on the table. Idempotent in effect: killed anywhere, it can be run again."""
    store: Store = LocalStore() if plan.local else HadoopStore(spark)
    with ExitStack() as held:
        if plan.local:
            path = lock_path(plan.system, table.name, "run")
            acquire_run(held.enter_context(closing(JvmLock(spark, path))), path, table.name)
            path = lock_path(plan.system, table.name, "commit")
            acquire_commit(held.enter_context(closing(JvmLock(spark, path))), table.name)
        tail = _commit(Work(spark, table, store, source, NoLock(), not plan.local), reset)
        _forget_later_checkpoints(store, table, tail)
        rebuild(spark, store, table, folder_of(table.checkpoints, tail.entry), tail.entry)
        return tail


def _commit(work: Work, reset: Reset) -> Tail:
    """The locks are held."""
    spark, table, store, source, log = work.spark, work.table, work.store, work.source, work.log
    tail = tail_of(log)
    if (tail.entry.after[0] if tail else None) != reset.before:
        raise Conflict(
            "the table moved on since the reset was planned",
            where=table.name,
            hint="run the command again: it shows what it would skip or read again now",
        )
    refuse_owed(table, tail)
    start = source.start() if reset.anew else Start((reset.after,), reset.ids)
    if tail is not None:
        tail, missing = _completed(work, tail)
        return open_generation(
            spark,
            log,
            tail,
            table.uri,
            after=start.position,
            topics=start.ids,
            subscription=source.subscription,
            definition=table.definition,
            note="; ".join(filter(None, (reset.note, missing))),
            emptied=bool(reset.anew),
            at_least=_later_than_all(work),
        )
    schema = table_function(spark, table, store, source).schema
    generations = [int(name) for name in store.names(table.checkpoints) if name.isdigit()]
    return genesis(
        spark,
        log,
        table=table.name,
        uri=table.uri,
        schema=schema,
        partition_by=table.write.partition_by,
        cluster_by=table.write.cluster_by,
        properties=with_statistics(table, schema),
        position=start.position,
        definition=table.definition,
        topics=start.ids,
        subscription=source.subscription,
        generation=max(generations, default=0) + 1,
    )


def _later_than_all(work: Work) -> int:
    """Of a table that was put back to an older state the checkpoints, the quarantine and the tombstones are ahead of
    it. Opened in a generation of theirs, it would still seem to be so if this is killed before they are removed, and
    rejected rows would seem to be in the quarantine."""
    table, store = work.table, work.store
    found = [int(name) for name in store.names(table.checkpoints) if name.isdigit()]
    place = quarantine_of(table.name, table.uri)
    if table.may_reject and (beside := tail_of(DeltaLog(store, place.uri, place.table))) is not None:
        found.append(beside.entry.generation)
    return max(max(found, default=0) + 1, next_generation(store, table))


def _completed(work: Work, tail: Tail) -> tuple[Tail, str | None]:
    """With what became of the rows of its last batch: no other entry would have that. And what of it is missing, if it
    was cut off and cannot be read any more: a reset is the way on from there."""
    try:
        return complete_last(work, tail), None
    except Exception as error:
        entry = tail.entry
        why = error.message if isinstance(error, PenstockError) else " ".join(str(error).split())[:200]
        missing = f"the rejected rows of batch {entry.generation}.{entry.batch} may be missing in quarantine"
        return work.counted(tail), f"{missing}: {why}"


def refuse_owed(table: TablePlan, tail: Tail | None) -> None:
    """What a generation was opened for is not done: its position is not that of the rows."""
    for verb, owed in (("replay", pending_replay), ("rewind", pending_rewind)):
        if tail is not None and owed(tail.entry) is not None:
            raise Terminal(
                f"a {verb} of it was begun and is not done",
                where=table.name,
                hint=f"`penstock run` finishes it, `penstock {verb} {table.name} --abort` gives it up",
            )


def _forget_later_checkpoints(store: Store, table: TablePlan, tail: Tail) -> None:
    """Of a table that was put back to an older state: they are ahead of what is now the truth."""
    for name in store.names(table.checkpoints):
        if name.isdigit() and int(name) >= tail.entry.generation:
            store.delete(f"{table.checkpoints}/{name}")
