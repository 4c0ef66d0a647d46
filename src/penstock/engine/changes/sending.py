"""A sink's batches of changes: their net effect sent, what cannot be sent set aside, and then recorded.

The order decides what a crash leaves: the target first, then the quarantine, then the ledger. Until the last of them
the batch runs again from its beginning; the target and the quarantine each know what they have of it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.engine.changes.net import net
from penstock.engine.changes.set_aside import SetAside
from penstock.engine.changes.shape import Shape
from penstock.engine.protocol.entry import Entry, Pins
from penstock.engine.protocol.fates import BATCHES, READ, REJECTED, Fates
from penstock.engine.protocol.function import Pinned
from penstock.engine.protocol.into import Into
from penstock.engine.targets.target import Target
from penstock.plan.target import ChangeSink

LEDGER = (
    StructType()
    .add("generation", "long")
    .add("batch", "long")
    .add("target", "string")
    .add("sent", "long")
    .add("rejected", "long")
    .add("sent_at", "timestamp")
)
"""What such a sink keeps in the lake: a row per batch."""


class Following:
    def __init__(self, plan: ChangeSink, shape: Shape, target: Target, aside: SetAside) -> None:
        self._plan, self._shape, self._target, self._aside = plan, shape, target, aside
        self._fates: Fates = {}

    def pin(self, batch: DataFrame, last: Pins, after: tuple[str, ...]) -> Pinned:
        return Pinned()

    def write(self, batch: DataFrame, entry: Entry, into: Into, *, files: int) -> None:
        changes = net(batch, self._shape.key_names)
        sent = self._target.send(changes, entry)
        rejected = self._aside.keep(changes, entry, sent)
        row = (entry.generation, entry.batch, self._plan.said, sent.changes, rejected, datetime.now(UTC))
        rows = batch.sparkSession.createDataFrame([row], LEDGER)
        into.append(rows.coalesce(1), replace(entry, sent=sent.changes))
        self._fates = {BATCHES: 1, READ: sent.changes + rejected, REJECTED: rejected}

    def complete(self, batch: DataFrame, entry: Entry, *, rows: int, written: bool) -> Fates:
        fates, self._fates = self._fates, {}
        return fates if written else {}

    def done(self) -> None:
        pass
