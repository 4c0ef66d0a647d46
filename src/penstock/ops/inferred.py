"""The columns that a table's files or records brought, as they are kept in the lake: read without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.engine.stores import open_store
from penstock.errors import PenstockError
from penstock.plan.model import Plan, TablePlan


@dataclass(frozen=True)
class InferredSchema:
    document: Mapping[str, Any]

    @property
    def said(self) -> list[str]:
        """For a person: the columns, where they come from, and what is odd about them."""
        lines = [str(self.document["columns"])]
        if made := self.document.get("inferred"):
            records = "" if made["records"] is None else f", {made['records']:,} records"
            lines.append(f"from {made['files']:,} files, the first {made['first']}{records}, {made['bytes']:,} bytes")
            lines += [f"{name}: JSON text of {kinds}" for name, kinds in made["mixed"].items()]
            lines += made["remarks"]
        if left_out := self.document.get("left_out"):
            lines.append(f"fields that are no columns: {', '.join(left_out)}")
        return lines


def inferred_schemas(plan: Plan, tables: Sequence[TablePlan]) -> dict[str, InferredSchema]:
    """By table; without those that have none, or whose lake cannot be read now."""
    try:
        store = open_store(plan.lake)
        texts = {table.name: store.read(table.grown) for table in tables}
    except (PenstockError, OSError):
        return {}
    return {name: InferredSchema(json.loads(text)) for name, text in texts.items() if text}
