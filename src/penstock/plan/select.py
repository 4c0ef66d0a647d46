"""Tables by their names, as a user types them."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.errors import UsageError
from penstock.plan.model import Plan, TablePlan
from penstock.spec.finding import did_you_mean


def choose(plan: Plan, names: Sequence[str]) -> list[TablePlan]:
    """The named tables in the plan's order; all if none is named."""
    known = [table.name for table in plan.tables]
    for name in names:
        if name not in known:
            raise UsageError(f"there is no table '{name}' in this project", hint=did_you_mean(name, known))
    return [table for table in plan.tables if not names or table.name in names]
