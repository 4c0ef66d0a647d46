"""Rejected rows, and how they become a batch of their table again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from penstock.engine.isolation.function import Isolating


@dataclass(frozen=True)
class Runnable:
    function: Isolating
    rejected: DataFrame
    """Rows of the quarantine."""
    batch: Callable[[DataFrame], DataFrame]
    """Of rows of the quarantine: what their table's function is given."""
    untouched: DataFrame | None = None
    """Those that were asked for and cannot be run again: they stay as they are."""
