"""Tables by their names, as a user types them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from penstock.errors import UsageError
from penstock.plan.model import Plan, TablePlan


def choose(plan: Plan, names: Sequence[str]) -> list[TablePlan]:
    """The named tables in the plan's order; all if none is named."""
    known = [table.name for table in plan.tables]
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else f"the project has: {', '.join(known)}"
            raise UsageError(f"there is no table {name}", hint=hint)
    return [table for table in plan.tables if not names or table.name in names]
