"""A plan as one JSON document. Secrets are stars."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

from pydantic import SecretStr

from penstock.plan.model import Plan


def plan_document(plan: Plan, only: Collection[str] = ()) -> dict[str, Any]:
    """Everything that `run` uses; with `only`, of these tables."""
    document = asdict(plan)
    document["local"] = plan.local
    document["tables"] = [table for table in document["tables"] if not only or table["name"] in only]
    starred: dict[str, Any] = _starred(document)
    return starred


def _starred(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _starred(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_starred(item) for item in value]
    return value
