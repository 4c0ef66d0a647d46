"""A table with `stream`: what Spark's own streaming operators give, written as it comes."""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.engine.forget.suppression import Suppression
from penstock.engine.protocol.entry import Entry, Pins
from penstock.engine.protocol.fates import Fates
from penstock.engine.protocol.function import Pinned
from penstock.engine.protocol.into import Into
from penstock.plan.model import StreamPlan


class Streamed:
    def __init__(self, plan: StreamPlan, suppression: Suppression) -> None:
        self._whole, self._suppression = plan.output == "complete", suppression

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> Pinned:
        return Pinned()

    def write(self, batch: DataFrame, entry: Entry, into: Into, *, files: int) -> None:
        """One task per partition of the state, so `files` is not followed."""
        rows = self._suppression.own(batch)
        if self._whole:
            into.overwrite(rows, entry)
        else:
            into.append(rows, entry)

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> Fates:
        """The rows of a batch that runs again are in the table, but its state may not have been kept: Spark keeps it
        only of a batch that has been read to its end."""
        if not written:
            batch.write.format("noop").mode("overwrite").save()
        return {}

    def done(self) -> None:
        pass
