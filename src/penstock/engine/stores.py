"""The lake's store for commands that start no JVM."""

from __future__ import annotations

from penstock.engine.store import LocalStore, Store
from penstock.plan.model import Plan


def open_store(lake: Plan | str) -> Store:
    """For a plan, or for the lake's address itself. Raises SetupError if it needs a package that is missing."""
    address = lake.lake if isinstance(lake, Plan) else lake
    if "://" not in address:
        return LocalStore()
    from penstock.engine.object_store import ObjectStore

    return ObjectStore(address)
