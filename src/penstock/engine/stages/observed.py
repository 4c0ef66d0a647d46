"""What the write of a batch counted on its way, so that no second pass is needed to know it."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import Column, DataFrame, Observation

PATIENCE = 10.0
"""Spark tells what was observed after the write has ended, by another thread."""


class Observed:
    """`Observation.get` waits for ever if its write was skipped; this one gives up."""

    def __init__(self) -> None:
        self._observation = Observation()

    def on(self, frame: DataFrame, *metrics: Column) -> DataFrame:
        return frame.observe(self._observation, *metrics)

    def result(self) -> dict[str, Any] | None:
        """Values as the JVM has them; None if nothing was told."""
        observation = self._observation._jo
        if observation is None:
            return None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = observation.getOrEmpty()
            if not found.isEmpty():
                keys = found.keys().toSeq()
                return {str(keys.apply(i)): found.apply(keys.apply(i)) for i in range(keys.size())}
            time.sleep(0.002)
        return None
