"""Whether the definition of a table in the project file today is that of its last batch, and what follows if it is
not. From the ledger alone: `plan` and `checkpoints show` say it before a start does."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.ledger import read_tail
from penstock.engine.state import begin_anew
from penstock.engine.store import Store
from penstock.engine.stores import open_store
from penstock.engine.subscription import reads_the_same, said, subscribes
from penstock.errors import PenstockError, Terminal
from penstock.ops.recent import RecentLog
from penstock.plan.merge import PROPERTY, merged_by
from penstock.plan.model import KafkaSource, Plan, TablePlan

Kind = Literal["new", "unchanged", "changed", "another source", "unknown"]
_SCHEMA = "other columns than the table has are refused at the start (`write: {schema: strict}`)"


@dataclass(frozen=True)
class Fit:
    kind: Kind
    follows: str
    """What comes of it, in words."""
    since: tuple[int, int] | None = None
    """Generation and batch of the ledger's last entry: what the definition is compared with."""
    was: str | None = None
    """The definition that batch ran by."""
    refused: bool = False
    """A start, or its first batch, would stop the table."""

    @property
    def said(self) -> str:
        """`changed since batch 1.12: …`."""
        if self.since is None or self.was is None:
            return f"{self.kind}: {self.follows}"
        generation, batch = self.since
        begun = "it was made" if generation == 1 else f"generation {generation} began"
        if self.kind == "unchanged":
            return f"unchanged since {begun}" if batch == 0 else f"unchanged: that of batch {generation}.{batch}"
        return f"{self.kind} since {begun if batch == 0 else f'batch {generation}.{batch}'}: {self.follows}"


def fit(table: TablePlan, entry: Entry | None) -> Fit:
    """`entry` is the last of the table's ledger, None if there is no table."""
    if entry is None:
        return Fit("new", "the first run makes the table")
    was = entry.pins.definition
    if not reads_the_same(table, entry.subscription):
        return _another_source(table, entry)
    if was == table.definition:
        return Fit("unchanged", "", entry.key, was)
    if (another := _merged_otherwise(table)) is not None:
        return Fit("changed", another, entry.key, was, refused=True)
    return Fit("changed", _follows(table), entry.key, was)


def fit_all(plan: Plan, tables: Sequence[TablePlan]) -> dict[str, Fit]:
    """By name. A lake that cannot be reached is asked once, not once per table."""
    try:
        store = open_store(plan)
        found = {table.name: _read(table, store) for table in tables[:1]}
        with ThreadPoolExecutor(1 if plan.local else 16) as threads:
            rest = tables[1:]
            return found | dict(zip((t.name for t in rest), threads.map(lambda t: _read(t, store), rest), strict=True))
    except PenstockError as error:
        return dict.fromkeys((table.name for table in tables), Fit("unknown", error.message))


def _read(table: TablePlan, store: Store) -> Fit:
    try:
        tail = read_tail(RecentLog(store, table.uri, table.name))
    except Terminal as error:  # of this table alone
        return Fit("unknown", error.message)
    except (ValueError, KeyError, OSError) as error:
        return Fit("unknown", f"the log of {table.uri} cannot be read: {error}")
    return fit(table, tail.entry if tail is not None else None)


def _follows(table: TablePlan) -> str:
    if table.stream is not None:
        return (
            "the state in its checkpoint is that of the old function. A filter may change; after other keys, "
            f"aggregates or inputs, {begin_anew(table.name)}"
        )
    if table.sink is not None:
        return "what comes next is sent by the new one; what was sent stays as it is"
    told = f"the next batches run by the new one; `penstock replay {table.name}` rebuilds what is there"
    return f"{told}; {_SCHEMA}" if table.write.schema == "strict" else told


def _another_source(table: TablePlan, entry: Entry) -> Fit:
    reads, read = said(subscribes(table)), said(entry.subscription)
    if table.stream is not None:
        told = f"the state in its checkpoint is of {read}, the function reads {reads}; {begin_anew(table.name)}"
        return Fit("another source", told, entry.key, entry.pins.definition, refused=True)
    begins = f"opens generation {entry.generation + 1}"
    if isinstance(table.source, KafkaSource) and ({"topics", "pattern"} & entry.subscription.keys()):
        begins += "; topics that stay go on where they are, new ones begin by `starting`"
    else:
        begins += " and begins it by `starting`"
    told = f"it read {read}, now {reads}: the next start {begins}"
    return Fit("another source", told, entry.key, entry.pins.definition)


def _merged_otherwise(table: TablePlan) -> str | None:
    """Rows that were merged by other keys cannot be told apart by these: the first batch would be refused."""
    from deltalake import DeltaTable

    from penstock.engine.object_store import storage_options

    try:
        there = DeltaTable(table.uri, storage_options=storage_options(table.uri) or None)
        was = there.metadata().configuration.get(PROPERTY)
    except Exception:  # what deltalake cannot open is compared at the start
        return None
    now = merged_by(table.write.merge) if table.write.merge is not None else None
    if was == now:
        return None
    return (
        f"the table is {f'merged {was}' if was else 'not merged'}, this definition "
        f"{f'merges {now}' if now else 'does not merge'}, which is refused: write it as it was, or make a table of "
        "another name"
    )
