"""What is made anew with a table, as far as it was ever made: a table that is new begins with what is there then."""

from __future__ import annotations

from penstock.engine.protocol.ledger import read_tail
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.store import Store
from penstock.plan.model import Plan
from penstock.plan.readers import Reader, made_of


def cascade_of(plan: Plan, name: str, store: Store) -> list[Reader]:
    """Upstream before downstream."""
    return [one for one in made_of(plan, name) if read_tail(DeltaLog(store, one.table.uri, one.table.name)) is not None]
