"""In which batch of a table a record came, by the ledgers alone: its offset tells the batch of the table that landed
it, that the version, and so on down to the table that is looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.engine.delta.version import parse
from penstock.engine.protocol import position
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.log import DeltaLog, Origin
from penstock.engine.store import Store
from penstock.errors import Terminal
from penstock.plan.model import DeltaSource, KafkaSource, TablePlan


@dataclass(frozen=True)
class Arrival:
    topic: str
    partition: int
    start: int
    end: int
    number: int
    """The version of the table in which these offsets came."""


def arrivals(table: TablePlan, tables: Mapping[str, TablePlan], store: Store) -> list[Arrival]:
    batches = _batches(table, store)
    if isinstance(table.source, KafkaSource):
        return [
            Arrival(one.topic, one.partition, one.start, one.end, version)
            for version, entry in batches
            for before, after in zip(entry.before, entry.after, strict=True)
            for one in position.ranges(before, after)
        ]
    source = table.source
    upstream = tables.get(source.table or "") if isinstance(source, DeltaSource) else None
    if upstream is None or table.input.origin != "kafka":
        raise Terminal("its source is not a table of the project that lands topics", where=table.name)
    by_version = _by_version(batches, table.name)
    made = []
    for one in arrivals(upstream, tables, store):
        number = by_version(one.number)
        if number is not None:
            made.append(Arrival(one.topic, one.partition, one.start, one.end, number))
    return made


def _batches(table: TablePlan, store: Store) -> list[tuple[int, Entry]]:
    log = DeltaLog(store, table.uri, table.name)
    found: list[tuple[int, Entry]] = []
    first = True
    for version in log.versions():
        commit = log.commit(version)
        entry = commit.entry if commit is not None and commit.origin is Origin.LEDGER else None
        if commit is None or (entry is None and commit.origin is not Origin.MAINTENANCE):
            raise Terminal(f"version {version} of {table.name} was made by others", where=table.name)
        if entry is None or entry.kind == "carry":
            continue
        if first and entry.kind != "genesis":
            raise Terminal(f"the log of {table.name} no longer goes back to its first batch", where=table.name)
        first = False
        if entry.kind == "batch":
            if not found or found[-1][1].key != entry.key:
                found.append((version, entry))
        elif entry.kind != "genesis":
            raise Terminal(f"a {entry.kind} in version {version} of {table.name} moved rows", where=table.name)
    return found


def _by_version(batches: list[tuple[int, Entry]], table: str) -> Callable[[int], int | None]:
    """Of the table upstream: the batch that read a version of it."""
    ends = []
    for version, entry in batches:
        after = parse(entry.after[0])
        if not after.whole:
            raise Terminal("a batch ended within a version of its source", where=table)
        ends.append((after.read_up_to, version))

    def found(upstream: int) -> int | None:
        return next((version for up_to, version in ends if upstream <= up_to), None)

    return found
