"""Tables that rest on Spark's state have one way on: everything again, into an empty table."""

from __future__ import annotations

from penstock.engine.delta.start import resolve, table_id
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.store import Store
from penstock.engine.stores import store_of
from penstock.errors import Terminal, UsageError
from penstock.ops.reset.model import Reset, tail_of
from penstock.plan.model import DeltaSource, TablePlan


def plan_stream_reset(table: TablePlan, store: Store, to: str) -> Reset:
    assert table.stream is not None
    if to != "starting":
        raise UsageError(
            f"--to {to}: what Spark keeps of {table.name} is of one position, and of no other",
            hint=f"`penstock checkpoints reset {table.name} --to starting` empties the table and begins anew",
        )
    begins = [_begin(table, source, store) for source in table.stream.inputs.values()]
    tail = tail_of(DeltaLog(store, table.uri, table.name))
    return Reset(
        table=table.name,
        to=to,
        before=tail.entry.after[0] if tail else None,
        after=begins[0],
        anew=tuple(dict.fromkeys(source.table or source.uri for source in table.stream.inputs.values())),
    )


def _begin(table: TablePlan, source: DeltaSource, store: Store) -> str:
    name = source.table or source.uri
    upstream = DeltaLog(store_of(source, store), source.uri, name)
    versions = upstream.versions()
    identity = table_id(upstream, versions)
    if identity is None:
        raise Terminal(f"the table {name} is not there", where=table.name, hint="put it back, or run it first")
    return str(resolve(source.starting, identity, versions, upstream, table.name))
