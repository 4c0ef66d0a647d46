"""Positions in a Delta table upstream: its versions."""

from __future__ import annotations

from penstock.engine.delta.start import resolve, table_id, unbroken
from penstock.engine.delta.version import Version, parse
from penstock.engine.protocol.ledger import Tail, position_at
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.protocol.position import VERSIONS, Range
from penstock.engine.store import Store
from penstock.engine.stores import store_of
from penstock.errors import Terminal, UsageError
from penstock.ops.reset.model import Reset, tail_of
from penstock.plan.model import DeltaSource, TablePlan, VersionStart

TARGETS = "earliest, latest, starting, ledger, version:N of this table, or source:N of the table that it reads"


def plan_delta_reset(table: TablePlan, store: Store, to: str) -> Reset:
    source = table.source
    assert isinstance(source, DeltaSource)
    name = source.table or source.uri
    upstream = DeltaLog(store_of(source, store), source.uri, name)
    versions = upstream.versions()
    identity = table_id(upstream, versions)
    if identity is None:
        raise Terminal(f"the table {name} is not there", where=table.name, hint="put it back, or run it first")
    tail = tail_of(DeltaLog(store, table.uri, table.name))
    after = _chosen(table, source, upstream, versions, identity, tail, store, to)
    now = parse(tail.entry.after[0]) if tail else None
    skipped, again = _consequences(now, after)
    return Reset(
        table=table.name,
        to=to,
        before=tail.entry.after[0] if tail else None,
        after=str(after),
        skipped=skipped,
        again=again,
        ids={name: identity},
    )


def _chosen(
    table: TablePlan,
    source: DeltaSource,
    upstream: DeltaLog,
    versions: list[int],
    identity: str,
    tail: Tail | None,
    store: Store,
    to: str,
) -> Version:
    def start(starting: VersionStart) -> Version:
        return resolve(starting, identity, versions, upstream, table.name)

    if to == "earliest":
        return start(VersionStart("earliest"))
    if to == "latest":
        return start(VersionStart("latest"))
    if to == "starting":
        return start(source.starting)
    if to.startswith("source:") and to[7:].isdigit():
        return start(VersionStart("version", version=int(to[7:])))
    if to == "ledger" and tail is not None:
        return _nearest(parse(tail.entry.after[0]), identity, versions)
    if to.startswith("version:") and to[8:].isdigit():
        entry = position_at(DeltaLog(store, table.uri, table.name), int(to[8:]))
        if entry is None:
            raise UsageError(f"version {to[8:]} has no ledger entry", hint=f"`penstock history {table.name}`")
        return _nearest(parse(entry.after[0]), identity, versions)
    hint = f"write {TARGETS}" + ("" if tail else "; there is no ledger to go on from")
    raise UsageError(f"--to {to} is no position", hint=hint)


def _nearest(wanted: Version, identity: str, versions: list[int]) -> Version:
    """A table made again is read from its start; what its log no longer has is skipped."""
    if wanted.table_id != identity or wanted.version > versions[-1] + 1:
        return Version(identity, versions[-1], snapshot=True)
    oldest = unbroken(versions)
    return wanted if wanted.snapshot or wanted.version >= oldest else Version(identity, oldest)


def _consequences(now: Version | None, after: Version) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    """Of a version that was read in part, the whole counts as read."""
    if now is None:
        return (), ()
    was = now.read_up_to + 1 if now.table_id == after.table_id else 0
    begins = 0 if after.snapshot and after.index < 0 else after.version
    if begins > was:
        return (Range(VERSIONS, 0, was, begins),), ()
    return (), (Range(VERSIONS, 0, begins, was),) if begins < was else ()
