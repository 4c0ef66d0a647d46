"""Checkpoints of all tables in short, or of one in detail, and their JSON documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from penstock.ledger.checkpoint import BATCH_FILES_KEPT
from penstock.ledger.entry import pins_document
from penstock.ledger.source import describe_subscription, subscription_of
from penstock.operations.checkpoint_state import (
    CheckpointBatch,
    CheckpointInspection,
    CheckpointSize,
    Leftover,
    Operator,
    inspect_checkpoint,
    last_batches,
    leftovers,
    measure_checkpoint,
    open_batches,
    operators,
)
from penstock.operations.heal import Healing, StartForecast, forecast_start
from penstock.operations.staleness import definition_drift
from penstock.operations.status import runner

if TYPE_CHECKING:
    from penstock.operations.staleness import DefinitionDrift
    from penstock.plan.model import Plan, TablePlan
    from penstock.storage.stores import Store


@dataclass(frozen=True)
class CheckpointSummary:
    inspection: CheckpointInspection
    size: CheckpointSize
    leftovers: tuple[Leftover, ...]


@dataclass(frozen=True)
class CheckpointDetails(CheckpointSummary):
    query: str | None
    """Spark's id of the query, from `metadata`."""
    batches: tuple[CheckpointBatch, ...]
    """The newest first."""
    open: tuple[int, ...]
    """Batches that are planned and not committed."""
    operators: tuple[Operator, ...]
    reads: str
    drift: DefinitionDrift
    forecast: StartForecast
    process: int | None
    """The process of the runner that works on the table now."""


def checkpoint_summaries(plan: Plan, tables: Sequence[TablePlan], store: Store) -> list[CheckpointSummary]:
    """One per table, in their order; a problem with one is reported in its place."""
    if plan.local:
        return [_summarize(table, store) for table in tables]
    with ThreadPoolExecutor(16) as threads:
        return list(threads.map(lambda table: _summarize(table, store), tables))


def _summarize(table: TablePlan, store: Store) -> CheckpointSummary:
    inspection = inspect_checkpoint(table, store)
    return CheckpointSummary(inspection, measure_checkpoint(inspection, store), tuple(leftovers(inspection, store)))


def checkpoint_details(plan: Plan, table: TablePlan, store: Store, limit: int) -> CheckpointDetails:
    """A table's checkpoint with at most `limit` batches. Asks the table's source, and waits briefly for a broker."""
    summary = _summarize(table, store)
    inspection, folder, entry = summary.inspection, summary.inspection.folder, summary.inspection.entry
    drift = definition_drift(table, entry)
    return CheckpointDetails(
        inspection,
        summary.size,
        summary.leftovers,
        query=_query_id(store, folder) if folder is not None else None,
        batches=tuple(last_batches(store, folder, limit)) if folder is not None else (),
        open=tuple(open_batches(store, folder)) if folder is not None else (),
        operators=tuple(operators(store, folder)) if folder is not None else (),
        reads=describe_subscription(entry.subscription if entry is not None else subscription_of(table)),
        drift=drift,
        forecast=forecast_start(plan, inspection, drift, store),
        process=runner(plan, table),
    )


def _query_id(store: Store, folder: str) -> str | None:
    try:
        return str(json.loads(store.read(f"{folder}/metadata") or "{}")["id"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


# JSON documents.


def summary_document(summary: CheckpointSummary) -> dict[str, Any]:
    inspection, size, entry = summary.inspection, summary.size, summary.inspection.entry
    return {
        "table": inspection.table.name,
        "folder": inspection.folder,
        "generation": entry.generation if entry is not None else None,
        "batch": entry.batch if entry is not None else None,
        "planned": inspection.planned,
        "committed": inspection.committed,
        "in_step": inspection.in_step if entry is not None else None,
        "why": inspection.why,
        "refused": inspection.refusal.message if inspection.refusal is not None else None,
        "hint": inspection.refusal.hint if inspection.refusal is not None else None,
        "stateful": inspection.table.stream is not None,
        **asdict(size.total),
        "state_bytes": size.state.bytes,
        "batches": size.batches,
        "batches_kept": BATCH_FILES_KEPT,
        "bytes_per_batch": size.per_batch,
        "leftovers": [leftover_document(leftover) for leftover in summary.leftovers],
    }


def leftover_document(leftover: Leftover) -> dict[str, Any]:
    return {
        "table": leftover.table,
        "folder": leftover.folder,
        "what": leftover.description,
        **asdict(leftover.size),
    }


def batch_document(batch: CheckpointBatch) -> dict[str, Any]:
    return {
        "batch": batch.number,
        "planned_ms": batch.time_ms,
        "read": list(batch.read),
        "after": [json.loads(text) for text in batch.after],
        "committed": batch.committed,
        "pins": pins_document(batch.pins) if batch.pins is not None else None,
        "fates": dict(batch.row_counts),
    }


def operator_document(operator: Operator) -> dict[str, Any]:
    return {
        "operator": operator.number,
        "name": operator.name,
        "keeps": operator.label,
        "partitions": operator.partitions,
        "versions": list(operator.versions) if operator.versions is not None else None,
        "partitions_behind": operator.partitions_behind,
        **asdict(operator.size),
    }


def drift_document(drift: DefinitionDrift) -> dict[str, Any]:
    return {
        "kind": drift.kind,
        "generation": drift.last_batch[0] if drift.last_batch is not None else None,
        "batch": drift.last_batch[1] if drift.last_batch is not None else None,
        "was": drift.last_definition,
        "follows": drift.consequence or None,
        "refused": drift.refused,
    }


def healing_document(healing: Healing) -> dict[str, Any]:
    return {
        "table": healing.table,
        "folder": healing.folder,
        "generation": healing.entry.generation,
        "batch": healing.entry.batch,
        "why": healing.why,
        "position": [json.loads(text) for text in healing.entry.after],
    }


def show_document(details: CheckpointDetails) -> dict[str, Any]:
    marker = details.inspection.checkpoint.marker if details.inspection.checkpoint is not None else None
    entry = details.inspection.entry
    return {
        **summary_document(details),
        "query": details.query,
        "marker": dict(marker) if marker is not None else None,
        "process": details.process,
        "reads": details.reads,
        "position": [json.loads(text) for text in entry.after] if entry is not None else None,
        "definition": {"now": details.inspection.table.definition, **drift_document(details.drift)},
        "start": asdict(details.forecast),
        "planned_not_committed": list(details.open),
        "last": [batch_document(batch) for batch in details.batches],
        "state": [operator_document(operator) for operator in details.operators],
    }
