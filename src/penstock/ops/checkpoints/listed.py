"""The checkpoints of all tables, each as it stands."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from penstock.engine.store import Store
from penstock.ops.checkpoints.document import standing_document
from penstock.ops.checkpoints.look import Look, look
from penstock.ops.checkpoints.weight import Leftover, Weight, leftovers, weigh
from penstock.plan.model import Plan, TablePlan


@dataclass(frozen=True)
class Standing:
    seen: Look
    weight: Weight
    left: tuple[Leftover, ...]


def standings(plan: Plan, tables: Sequence[TablePlan], store: Store) -> list[Standing]:
    """One per table, in their order; what is wrong with one is said in its place."""
    if plan.local:
        return [_standing(table, store) for table in tables]
    with ThreadPoolExecutor(16) as threads:
        return list(threads.map(lambda table: _standing(table, store), tables))


def _standing(table: TablePlan, store: Store) -> Standing:
    seen = look(table, store)
    return Standing(seen, weigh(seen, store), tuple(leftovers(seen, store)))


def document(one: Standing) -> dict[str, Any]:
    return standing_document(one.seen, one.weight, one.left)
