"""Who reads a table, and what becomes of them when all of its rows are made anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from penstock.plan.model import DeltaSource, Plan, TablePlan

How = Literal["rebuilt", "recomputed", "follows", "state", "sent"]
"""rebuilt: it has rows made of the old ones, until it is made anew itself. recomputed: groups, which its next batch
computes again. follows: it reads the changes, and gets these. state: only Spark knows what it made of the old rows.
sent: they have left the lake."""


@dataclass(frozen=True)
class Reader:
    table: TablePlan
    how: How


def readers_of(plan: Plan, name: str) -> list[Reader]:
    """Those that read it as it grows, in the plan's order."""
    return [Reader(table, how_it_reads(table)) for table in plan.tables if name in table.upstream]


def how_it_reads(table: TablePlan) -> How:
    if table.stream is not None:
        return "state"
    if isinstance(table.source, DeltaSource) and table.source.changes:
        return "follows"
    if table.sink is not None:
        return "sent"
    if table.aggregate is not None and table.aggregate.emit != "final":
        return "recomputed"
    return "rebuilt"


def made_of(plan: Plan, name: str) -> list[Reader]:
    """All that has to be made anew with it, however many tables lie between, upstream before downstream."""
    found: dict[str, Reader] = {}
    for table in plan.tables:
        if any(one == name or one in found for one in table.upstream):
            how = how_it_reads(table)
            if how in ("rebuilt", "recomputed"):
                found[table.name] = Reader(table, how)
    return list(found.values())
