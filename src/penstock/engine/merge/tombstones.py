"""A deleted row leaves a tombstone, so that a change that comes late does not bring it back. Nobody else sees it."""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.spec.merge import OWN, SINCE

SEQUENCE, DELETED, DELETED_AT = OWN


def living(rows: DataFrame) -> DataFrame:
    """The rows of a merged table as everybody but its own writer sees them."""
    return alive(rows).drop(*OWN, SINCE)


def alive(rows: DataFrame) -> DataFrame:
    """The same rows with all their columns."""
    return rows.where(f"NOT {DELETED}")
