"""Checkpoints of all tables, or all there is to say about one, and their JSON documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock.ledger.checkpoint import KEPT
from penstock.ledger.entry import pins_document
from penstock.ledger.source import said, subscribes
from penstock.operations.checkpoint_state import (
    CheckpointBatch,
    CheckpointLook,
    Leftover,
    Operator,
    Weight,
    inspect_checkpoint,
    last_batches,
    leftovers,
    open_batches,
    operators,
    weigh,
)
from penstock.operations.heal import Healing, StartForecast, outlook
from penstock.operations.staleness import definition_drift
from penstock.operations.status import runner
from penstock.storage.stores import Size

if TYPE_CHECKING:
    from penstock.operations.staleness import DefinitionDrift
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store

# Checkpoints as JSON documents.


def standing_document(seen: CheckpointLook, weight: Weight, left: Sequence[Leftover]) -> dict[str, Any]:
    entry = seen.entry
    return {
        "table": seen.table.name,
        "folder": seen.folder,
        "generation": entry.generation if entry is not None else None,
        "batch": entry.batch if entry is not None else None,
        "planned": seen.planned,
        "committed": seen.committed,
        "in_step": seen.in_step if entry is not None else None,
        "why": seen.why,
        "refused": seen.refusal.message if seen.refusal is not None else None,
        "hint": seen.refusal.hint if seen.refusal is not None else None,
        "stateful": seen.table.stream is not None,
        **_size(weight.size),
        "state_bytes": weight.state.bytes,
        "batches": weight.batches,
        "batches_kept": KEPT,
        "bytes_per_batch": weight.per_batch,
        "leftovers": [leftover_document(one) for one in left],
    }


def leftover_document(one: Leftover) -> dict[str, Any]:
    return {"table": one.table, "folder": one.folder, "what": one.what, **_size(one.size)}


def batch_document(one: CheckpointBatch) -> dict[str, Any]:
    return {
        "batch": one.number,
        "planned_ms": one.time_ms,
        "read": list(one.read),
        "after": [json.loads(text) for text in one.after],
        "committed": one.committed,
        "pins": pins_document(one.pins) if one.pins is not None else None,
        "fates": dict(one.row_counts),
    }


def operator_document(one: Operator) -> dict[str, Any]:
    return {
        "operator": one.number,
        "name": one.name,
        "keeps": one.said,
        "partitions": one.partitions,
        "versions": list(one.versions) if one.versions is not None else None,
        "partitions_behind": one.behind,
        **_size(one.size),
    }


def outlook_document(one: StartForecast) -> dict[str, Any]:
    return asdict(one)


def fit_document(one: DefinitionDrift) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "generation": one.since[0] if one.since is not None else None,
        "batch": one.since[1] if one.since is not None else None,
        "was": one.was,
        "follows": one.follows or None,
        "refused": one.refused,
    }


def healing_document(one: Healing) -> dict[str, Any]:
    return {
        "table": one.table,
        "folder": one.folder,
        "generation": one.entry.generation,
        "batch": one.entry.batch,
        "why": one.why,
        "position": [json.loads(text) for text in one.entry.after],
    }


def _size(size: Size) -> dict[str, int]:
    return {"files": size.files, "bytes": size.bytes}


# The checkpoints of all tables, each as it stands.


@dataclass(frozen=True)
class CheckpointSummary:
    seen: CheckpointLook
    weight: Weight
    left: tuple[Leftover, ...]


def standings(plan: Plan, tables: Sequence[TablePlan], store: Store) -> list[CheckpointSummary]:
    """One per table, in their order; what is wrong with one is said in its place."""
    if plan.local:
        return [_standing(table, store) for table in tables]
    with ThreadPoolExecutor(16) as threads:
        return list(threads.map(lambda table: _standing(table, store), tables))


def _standing(table: TablePlan, store: Store) -> CheckpointSummary:
    seen = inspect_checkpoint(table, store)
    return CheckpointSummary(seen, weigh(seen, store), tuple(leftovers(seen, store)))


def list_document(one: CheckpointSummary) -> dict[str, Any]:
    return standing_document(one.seen, one.weight, one.left)


# All that there is to say about one checkpoint.


@dataclass(frozen=True)
class CheckpointDetails:
    seen: CheckpointLook
    weight: Weight
    left: tuple[Leftover, ...]
    query: str | None
    """Spark's id of the query, from `metadata`."""
    batches: tuple[CheckpointBatch, ...]
    """The newest first."""
    open: tuple[int, ...]
    """Planned and not committed."""
    operators: tuple[Operator, ...]
    reads: str
    fits: DefinitionDrift
    outlook: StartForecast
    process: int | None
    """Of the runner that works on the table now."""


def show(plan: Plan, table: TablePlan, store: Store, most: int) -> CheckpointDetails:
    """With its last batches, at most so many. Asks the table's source; a broker that is away is waited for briefly."""
    seen = inspect_checkpoint(table, store)
    folder = seen.folder
    fits = definition_drift(table, seen.entry)
    return CheckpointDetails(
        seen=seen,
        weight=weigh(seen, store),
        left=tuple(leftovers(seen, store)),
        query=_query(store, folder) if folder is not None else None,
        batches=tuple(last_batches(store, folder, most)) if folder is not None else (),
        open=tuple(open_batches(store, folder)) if folder is not None else (),
        operators=tuple(operators(store, folder)) if folder is not None else (),
        reads=said(seen.entry.subscription if seen.entry is not None else subscribes(table)),
        fits=fits,
        outlook=outlook(plan, seen, fits, store),
        process=runner(plan, table),
    )


def _query(store: Store, folder: str) -> str | None:
    try:
        return str(json.loads(store.read(f"{folder}/metadata") or "{}")["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def show_document(found: CheckpointDetails) -> dict[str, Any]:
    marker = found.seen.found.marker if found.seen.found is not None else None
    entry = found.seen.entry
    return {
        **standing_document(found.seen, found.weight, found.left),
        "query": found.query,
        "marker": dict(marker) if marker is not None else None,
        "process": found.process,
        "reads": found.reads,
        "position": [json.loads(text) for text in entry.after] if entry is not None else None,
        "definition": {"now": found.seen.table.definition, **fit_document(found.fits)},
        "start": outlook_document(found.outlook),
        "planned_not_committed": list(found.open),
        "last": [batch_document(one) for one in found.batches],
        "state": [operator_document(one) for one in found.operators],
    }
