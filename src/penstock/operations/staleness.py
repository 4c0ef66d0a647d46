"""Tables whose definition changed since their last batch, and tables made of rows that are no longer upstream."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock.errors import PenstockError, Terminal
from penstock.ledger.checkpoint import start_over_hint
from penstock.ledger.delta_log import RecentLog
from penstock.ledger.head import read_head
from penstock.ledger.pending import owes_jump, pending_replay, pending_rewind
from penstock.ledger.position import parse_version
from penstock.ledger.source import reads_the_same, said, subscribes
from penstock.plan.build import how_it_reads
from penstock.plan.merge import PROPERTY, merged_by
from penstock.storage.locks import holder, lock_path
from penstock.storage.stores import open_store

if TYPE_CHECKING:
    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

# Whether the definition of a table in the project file today is that of its last batch, and what follows if it is
# not. From the ledger alone: `plan` and `checkpoints show` say it before a start does.


Kind = Literal["new", "unchanged", "changed", "another source", "unknown"]
_SCHEMA = "other columns than the table has are refused at the start (`write: {schema: strict}`)"


@dataclass(frozen=True)
class DefinitionDrift:
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


def definition_drift(table: TablePlan, entry: Entry | None) -> DefinitionDrift:
    """`entry` is the last of the table's ledger, None if there is no table."""
    if entry is None:
        return DefinitionDrift("new", "the first run makes the table")
    was = entry.pins.definition
    if not reads_the_same(table, entry.subscription):
        return _another_source(table, entry)
    if was == table.definition:
        return DefinitionDrift("unchanged", "", entry.key, was)
    if (another := _merged_otherwise(table)) is not None:
        return DefinitionDrift("changed", another, entry.key, was, refused=True)
    return DefinitionDrift("changed", _follows(table), entry.key, was)


def definition_drifts(plan: Plan, tables: Sequence[TablePlan]) -> dict[str, DefinitionDrift]:
    """By name. A lake that cannot be reached is asked once, not once per table."""
    try:
        store = open_store(plan)
        found = {table.name: _read(table, store) for table in tables[:1]}
        with ThreadPoolExecutor(1 if plan.local else 16) as threads:
            rest = tables[1:]
            return found | dict(zip((t.name for t in rest), threads.map(lambda t: _read(t, store), rest), strict=True))
    except PenstockError as error:
        return dict.fromkeys((table.name for table in tables), DefinitionDrift("unknown", error.message))


def _read(table: TablePlan, store: Store) -> DefinitionDrift:
    try:
        tail = read_head(RecentLog(store, table.uri, table.name))
    except Terminal as error:  # of this table alone
        return DefinitionDrift("unknown", error.message)
    except (ValueError, KeyError, OSError) as error:
        return DefinitionDrift("unknown", f"the log of {table.uri} cannot be read: {error}")
    return definition_drift(table, tail.entry if tail is not None else None)


def _follows(table: TablePlan) -> str:
    if table.stream is not None:
        return (
            "the state in its checkpoint is that of the old function. A filter may change; after other keys, "
            f"aggregates or inputs, {start_over_hint(table.name)}"
        )
    if table.sink is not None:
        return "what comes next is sent by the new one; what was sent stays as it is"
    told = f"the next batches run by the new one; `penstock replay {table.name}` rebuilds what is there"
    return f"{told}; {_SCHEMA}" if table.write.schema == "strict" else told


def _another_source(table: TablePlan, entry: Entry) -> DefinitionDrift:
    reads, read = said(subscribes(table)), said(entry.subscription)
    if table.stream is not None:
        told = f"the state in its checkpoint is of {read}, the function reads {reads}; {start_over_hint(table.name)}"
        return DefinitionDrift("another source", told, entry.key, entry.pins.definition, refused=True)
    begins = f"opens generation {entry.generation + 1}"
    if table.topics is not None and ({"topics", "pattern"} & entry.subscription.keys()):
        begins += "; topics that stay go on where they are, new ones begin by `starting`"
    else:
        begins += " and begins it by `starting`"
    told = f"it read {read}, now {reads}: the next start {begins}"
    return DefinitionDrift("another source", told, entry.key, entry.pins.definition)


def _merged_otherwise(table: TablePlan) -> str | None:
    """Rows that were merged by other keys cannot be told apart by these: the first batch would be refused."""
    from deltalake import DeltaTable

    from penstock.storage.stores import storage_options

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


# Tables that were made of rows that are no longer there: the table upstream was made anew since.


@dataclass(frozen=True)
class Stale:
    upstream: str
    version: int
    """Of the table upstream, in which it was made anew."""
    hint: str


def stale(table: TablePlan, tail: LedgerHead, upstream: LedgerHead) -> Stale | None:
    """None if its rows are made of what the table upstream has now, or will be without anybody's help."""
    reads, filled = table.source.project_table, upstream.filled
    if reads is None or filled is None:
        return None
    version, how = filled[1], how_it_reads(table)
    if how == "follows" or owes_jump(tail.entry):
        return None
    if how == "recomputed":
        made_of = parse_version(tail.entry.after[0]).read_up_to
        hint = f"its next batch computes every group again; `penstock replay {table.name} --version {version}` does now"
    else:
        made_of = -1 if tail.entry.base is None else tail.entry.base
        hint = {
            "rebuilt": f"`penstock replay {reads} --cascade` rebuilds it too; or it alone: `penstock replay "
            f"{table.name} --version {version}`",
            "state": f"`penstock checkpoints reset {table.name} --to starting` makes it anew",
            "sent": "what it sent cannot be taken back; rows that come from now on are the new ones",
        }[how]
    return Stale(reads, version, hint) if made_of < version else None


def stale_against(table: TablePlan, tail: LedgerHead, store: Store) -> Stale | None:
    """The same, after a look at the table upstream. One that cannot be read is said elsewhere."""
    source = table.delta
    if source is None or source.table is None:
        return None
    try:
        upstream = read_head(RecentLog(store, source.uri, source.table))
    except (PenstockError, ValueError, KeyError, OSError):
        return None
    return stale(table, tail, upstream) if upstream is not None else None


def replaying(plan: Plan, table: TablePlan, tail: LedgerHead) -> str | None:
    """Of a table with a replay or a rewind that was opened and is not done: who is at it."""
    if pending_rewind(tail.entry) is not None:
        give_up = f"`penstock rewind {table.name} --abort` gives it up"
        return f"a rewind of it was cut off: `penstock run` finishes it, {give_up}"
    if owes_jump(tail.entry):
        upstream = table.source.project_table
        return f"{upstream} was rewound, or is being rewound: its next start continues after that"
    if pending_replay(tail.entry) is None:
        return None
    process = holder(lock_path(plan.system, table.name, "replay")) if plan.local else None
    if process is not None:
        return f"process {process} replays it"
    give_up = f"`penstock replay {table.name} --abort` gives it up"
    return f"a replay of it was cut off: `penstock run` finishes it, {give_up}"
