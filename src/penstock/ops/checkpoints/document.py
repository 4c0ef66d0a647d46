"""Checkpoints as JSON documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from penstock.engine.protocol.beside import KEPT
from penstock.engine.protocol.entry import pins_document
from penstock.engine.store import Size
from penstock.ops.checkpoints.batches import Batch
from penstock.ops.checkpoints.heal import Healing
from penstock.ops.checkpoints.look import Look
from penstock.ops.checkpoints.outlook import Outlook
from penstock.ops.checkpoints.state import Operator
from penstock.ops.checkpoints.weight import Leftover, Weight
from penstock.ops.fit import Fit


def standing_document(seen: Look, weight: Weight, left: Sequence[Leftover]) -> dict[str, Any]:
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


def batch_document(one: Batch) -> dict[str, Any]:
    return {
        "batch": one.number,
        "planned_ms": one.time_ms,
        "read": list(one.read),
        "after": [json.loads(text) for text in one.after],
        "committed": one.committed,
        "pins": pins_document(one.pins) if one.pins is not None else None,
        "fates": dict(one.fates),
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


def outlook_document(one: Outlook) -> dict[str, Any]:
    return asdict(one)


def fit_document(one: Fit) -> dict[str, Any]:
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
