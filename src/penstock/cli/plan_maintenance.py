"""The part of `plan` that says how files are looked after."""

from __future__ import annotations

from penstock.cli.sizes import size_text
from penstock.plan.maintenance import MaintenancePlan
from penstock.spec.quantity import duration_text


def maintenance_facts(plan: MaintenancePlan) -> list[tuple[str, str]]:
    """Nothing where nothing was asked for."""
    found: list[str] = []
    if plan.optimize_seconds is not None:
        found.append(
            f"optimize every {duration_text(plan.optimize_seconds)} to files of {size_text(plan.target_bytes)}"
        )
    if plan.vacuum_seconds is not None:
        kept = [
            f"{duration_text(plan.retain_ms / 1000)} kept" if plan.retain_ms is not None else "",
            f"replay window {duration_text(plan.replay_ms / 1000)}" if plan.replay_ms else "",
            *(f"{one.name} up to {duration_text(one.lag_ms / 1000)} behind {one.table}" for one in plan.external),
        ]
        said = ", ".join(filter(None, kept))
        found.append(f"vacuum every {duration_text(plan.vacuum_seconds)}" + (f" ({said})" if said else ""))
    return [("maintenance", "; ".join(found))] if found else []
