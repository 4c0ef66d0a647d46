"""The lake's store for commands that start no JVM."""

from __future__ import annotations

from penstock.engine.store import LocalStore, Store
from penstock.plan.model import DeltaSource, Plan


def open_store(lake: Plan | str) -> Store:
    """For a plan, or for the lake's address itself. Raises SetupError if it needs a package that is missing."""
    address = lake.lake if isinstance(lake, Plan) else lake
    if "://" not in address:
        return LocalStore()
    from penstock.engine.object_store import ObjectStore

    return ObjectStore(address)


def store_of(source: DeltaSource, lake: Store) -> Store:
    """Where a Delta table lies that is read: in the lake, or elsewhere."""
    return lake if source.table is not None else open_store(source.uri)
