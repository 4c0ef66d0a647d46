"""A table with `stream`: what Spark's own streaming operators give, written as it comes."""

from __future__ import annotations

from pyspark.sql import DataFrame

from penstock.engine.protocol.entry import Entry, Pins
from penstock.engine.protocol.fates import Fates
from penstock.engine.protocol.function import Pinned
from penstock.engine.protocol.into import Into
from penstock.plan.model import StreamPlan


class Streamed:
    def __init__(self, plan: StreamPlan) -> None:
        self._whole = plan.output == "complete"

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> Pinned:
        return Pinned()

    def write(self, batch: DataFrame, entry: Entry, into: Into, *, files: int) -> None:
        """One task per partition of the state, so `files` is not followed."""
        if self._whole:
            into.overwrite(batch, entry)
        else:
            into.append(batch, entry)

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> Fates:
        """The rows of a batch that runs again are in the table, but its state may not have been kept: Spark keeps it
        only of a batch that has been read to its end."""
        if not written:
            batch.write.format("noop").mode("overwrite").save()
        return {}

    def done(self) -> None:
        pass
