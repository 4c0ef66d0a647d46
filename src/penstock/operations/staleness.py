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
from penstock.ledger.source import describe_subscription, reads_the_same, subscription_of
from penstock.plan.build import rebuild_effect
from penstock.plan.merge import PROPERTY, merge_description
from penstock.storage.locks import holder, lock_path
from penstock.storage.stores import open_store

if TYPE_CHECKING:
    from penstock.ledger.entry import Entry
    from penstock.ledger.head import LedgerHead
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

# Whether the current definition of a table is that of its last batch, and the consequences if it is not. Read from the
# ledger alone: `plan` and `checkpoints show` report it before a start does.


DriftKind = Literal["new", "unchanged", "changed", "another source", "unknown"]
_STRICT_SCHEMA_NOTE = "other columns than the table has are refused at the start (`write: {schema: strict}`)"


@dataclass(frozen=True)
class DefinitionDrift:
    kind: DriftKind
    consequence: str
    """The consequence, in words."""
    last_batch: tuple[int, int] | None = None
    """Generation and batch of the ledger's last entry, which the definition is compared with."""
    last_definition: str | None = None
    """The definition of that batch."""
    refused: bool = False
    """A start, or its first batch, would stop the table."""

    @property
    def describe(self) -> str:
        """`changed since batch 1.12: …`."""
        if self.last_batch is None or self.last_definition is None:
            return f"{self.kind}: {self.consequence}"
        generation, batch = self.last_batch
        beginning = "it was made" if generation == 1 else f"generation {generation} began"
        if self.kind == "unchanged":
            return f"unchanged since {beginning}" if batch == 0 else f"unchanged: that of batch {generation}.{batch}"
        return f"{self.kind} since {beginning if batch == 0 else f'batch {generation}.{batch}'}: {self.consequence}"


def definition_drift(table: TablePlan, entry: Entry | None) -> DefinitionDrift:
    """`entry` is the last of the table's ledger; None if there is no table."""
    if entry is None:
        return DefinitionDrift("new", "the first run creates the table")
    last_definition = entry.pins.definition
    if not reads_the_same(table, entry.subscription):
        return _source_drift(table, entry)
    if last_definition == table.definition:
        return DefinitionDrift("unchanged", "", entry.key, last_definition)
    if (refusal := _describe_merge_change(table)) is not None:
        return DefinitionDrift("changed", refusal, entry.key, last_definition, refused=True)
    return DefinitionDrift("changed", _describe_consequence(table), entry.key, last_definition)


def definition_drifts(plan: Plan, tables: Sequence[TablePlan]) -> dict[str, DefinitionDrift]:
    """By name. An unreachable lake is tried once, not once per table."""
    try:
        store = open_store(plan)
        drifts = {table.name: _read_drift(table, store) for table in tables[:1]}
        with ThreadPoolExecutor(1 if plan.local else 16) as threads:
            other_drifts = threads.map(lambda table: _read_drift(table, store), tables[1:])
            return drifts | {table.name: drift for table, drift in zip(tables[1:], other_drifts, strict=True)}
    except PenstockError as error:
        return dict.fromkeys((table.name for table in tables), DefinitionDrift("unknown", error.message))


def _read_drift(table: TablePlan, store: Store) -> DefinitionDrift:
    try:
        head = read_head(RecentLog(store, table.uri, table.name))
    except Terminal as error:  # of this table alone
        return DefinitionDrift("unknown", error.message)
    except (ValueError, KeyError, OSError) as error:
        return DefinitionDrift("unknown", f"the log of {table.uri} cannot be read: {error}")
    return definition_drift(table, head.entry if head is not None else None)


def _describe_consequence(table: TablePlan) -> str:
    if table.stream is not None:
        return (
            "the state in its checkpoint is that of the old function. A filter may change; after other keys, "
            f"aggregates or inputs, {start_over_hint(table.name)}"
        )
    if table.sink is not None:
        return "the next rows are sent by the new one; what was sent stays as it is"
    consequence = f"the next batches run by the new one; `penstock replay {table.name}` rebuilds what is there"
    return f"{consequence}; {_STRICT_SCHEMA_NOTE}" if table.write.schema == "strict" else consequence


def _source_drift(table: TablePlan, entry: Entry) -> DefinitionDrift:
    current_source = describe_subscription(subscription_of(table))
    former_source = describe_subscription(entry.subscription)
    if table.stream is not None:
        consequence = (
            f"the state in its checkpoint is of {former_source}, the function reads {current_source}; "
            f"{start_over_hint(table.name)}"
        )
        return DefinitionDrift("another source", consequence, entry.key, entry.pins.definition, refused=True)
    opening = f"opens generation {entry.generation + 1}"
    if table.topics is not None and ({"topics", "pattern"} & entry.subscription.keys()):
        opening += "; topics that stay continue where they are, new ones begin by `starting`"
    else:
        opening += " and begins it by `starting`"
    consequence = f"it read {former_source}, now {current_source}: the next start {opening}"
    return DefinitionDrift("another source", consequence, entry.key, entry.pins.definition)


def _describe_merge_change(table: TablePlan) -> str | None:
    """Set if existing rows were merged differently: rows merged by other keys cannot be matched on these, so the first
    batch would be refused."""
    from deltalake import DeltaTable

    from penstock.storage.stores import storage_options

    try:
        delta_table = DeltaTable(table.uri, storage_options=storage_options(table.uri) or None)
        current_merge = delta_table.metadata().configuration.get(PROPERTY)
    except Exception:  # what deltalake cannot open is compared at the start
        return None
    defined_merge = merge_description(table.write.merge) if table.write.merge is not None else None
    if current_merge == defined_merge:
        return None
    return (
        f"the table is {f'merged {current_merge}' if current_merge else 'not merged'}, this definition "
        f"{f'merges {defined_merge}' if defined_merge else 'does not merge'}, which is refused: "
        "write it as it was, or make a table of another name"
    )


# Tables made of rows that no longer exist, because the table upstream was rebuilt since.


@dataclass(frozen=True)
class Stale:
    upstream: str
    version: int
    """The version of the table upstream in which it was rebuilt."""
    hint: str


def stale(table: TablePlan, head: LedgerHead, upstream: LedgerHead) -> Stale | None:
    """None if its rows are made of the current rows upstream, or will be without help."""
    reads, filled = table.source.project_table, upstream.filled
    if reads is None or filled is None:
        return None
    version, how = filled[1], rebuild_effect(table)
    if how == "follows" or owes_jump(head.entry):
        return None
    if how == "recomputed":
        version_read = parse_version(head.entry.after[0]).read_up_to
        hint = f"its next batch computes every group again; `penstock replay {table.name} --version {version}` does now"
    else:
        version_read = -1 if head.entry.base is None else head.entry.base
        hint = {
            "rebuilt": f"`penstock replay {reads} --cascade` rebuilds it too; or it alone: `penstock replay "
            f"{table.name} --version {version}`",
            "state": f"`penstock checkpoints reset {table.name} --to starting` rebuilds it",
            "sent": "what it sent cannot be taken back; rows that come from now on are the new ones",
        }[how]
    return Stale(reads, version, hint) if version_read < version else None


def stale_against(table: TablePlan, head: LedgerHead, store: Store) -> Stale | None:
    """The same, reading the table upstream itself. One that cannot be read is reported elsewhere."""
    source = table.delta
    if source is None or source.table is None:
        return None
    try:
        upstream = read_head(RecentLog(store, source.uri, source.table))
    except (PenstockError, ValueError, KeyError, OSError):
        return None
    return stale(table, head, upstream) if upstream is not None else None


def refuse_open_work(table: str, entry: Entry, error: type[PenstockError], *verbs: Literal["replay", "rewind"]) -> None:
    """Raises `error` while one of these is open: the table's position is not that of its rows."""
    for verb in verbs:
        if (pending_replay(entry) if verb == "replay" else pending_rewind(entry)) is not None:
            raise error(f"a {verb} of it is not done yet", where=table, hint=_how_to_finish(table, verb))


def _how_to_finish(table: str, verb: str) -> str:
    return f"`penstock run` finishes it, `penstock {verb} {table} --abort` gives it up"


def describe_open_work(plan: Plan, table: TablePlan, head: LedgerHead) -> str | None:
    """For a table with an open replay or rewind: which process runs it, or how to finish it."""
    if pending_rewind(head.entry) is not None:
        return f"a rewind of it was cut off: {_how_to_finish(table.name, 'rewind')}"
    if owes_jump(head.entry):
        upstream = table.source.project_table
        return f"{upstream} was rewound, or is being rewound: its next start continues after that"
    if pending_replay(head.entry) is None:
        return None
    process = holder(lock_path(plan.system, table.name, "replay")) if plan.local else None
    if process is not None:
        return f"process {process} replays it"
    return f"a replay of it was cut off: {_how_to_finish(table.name, 'replay')}"
