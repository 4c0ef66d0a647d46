"""All that there is to say about one checkpoint."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from penstock.engine.store import Store
from penstock.engine.subscription import said, subscribes
from penstock.ops.checkpoints.batches import Batch, last_batches, open_batches
from penstock.ops.checkpoints.document import (
    batch_document,
    fit_document,
    operator_document,
    outlook_document,
    standing_document,
)
from penstock.ops.checkpoints.look import Look, look
from penstock.ops.checkpoints.outlook import Outlook, outlook
from penstock.ops.checkpoints.state import Operator, operators
from penstock.ops.checkpoints.weight import Leftover, Weight, leftovers, weigh
from penstock.ops.fit import Fit, fit
from penstock.ops.status import runner
from penstock.plan.model import Plan, TablePlan


@dataclass(frozen=True)
class Shown:
    seen: Look
    weight: Weight
    left: tuple[Leftover, ...]
    query: str | None
    """Spark's id of the query, from `metadata`."""
    batches: tuple[Batch, ...]
    """The newest first."""
    open: tuple[int, ...]
    """Planned and not committed."""
    operators: tuple[Operator, ...]
    reads: str
    fits: Fit
    outlook: Outlook
    process: int | None
    """Of the runner that works on the table now."""


def show(plan: Plan, table: TablePlan, store: Store, most: int) -> Shown:
    """With its last batches, at most so many. Asks the table's source; a broker that is away is waited for briefly."""
    seen = look(table, store)
    folder = seen.folder
    fits = fit(table, seen.entry)
    return Shown(
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


def document(found: Shown) -> dict[str, Any]:
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
