"""`<table>__quarantine`: every rejected row once, as it came, with the reason.

Its commits follow those of the table: a batch's good rows first, then its rejected ones. What dies in between is
completed when the batch is run again: the quarantine's own ledger says which batches it has.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.engine.protocol.commit import append, append_nothing, carrying, confirm, must_confirm
from penstock.engine.protocol.entry import Counts, Entry
from penstock.engine.protocol.genesis import genesis
from penstock.engine.protocol.ledger import Tail, advance, read_tail
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.stages.coordinates import SOURCE
from penstock.engine.stages.rejects import FAILED, RAW
from penstock.engine.store import Store
from penstock.plan.quarantine import Place

_REASONS = {
    "error_reason": "STRING",
    "error_detail": "STRING",
    "error_timestamp": "TIMESTAMP",
    "generation": "BIGINT",
    "batch": "BIGINT",
    "definition": "STRING",
}
_PROPERTIES = {
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpointInterval": "100",
    "delta.dataSkippingStatsColumns": "error_reason,error_timestamp,generation,batch",
}


class Quarantine:
    """Made with its table; used under the table's commit lock."""

    def __init__(self, spark: SparkSession, store: Store, place: Place, source: str, *, idempotent: bool) -> None:
        """`source` is the type of the table's coordinates."""
        self._place, self._idempotent = place, idempotent
        self._log = DeltaLog(store, place.uri, place.table)
        self._source = source
        self._tail: Tail | None = read_tail(self._log)
        self._spark = spark

    def create(self, entry: Entry) -> None:
        """Nothing happens if it is there."""
        if self._tail is None:
            self._tail = genesis(
                self._spark,
                self._log,
                table=self._place.table,
                uri=self._place.uri,
                schema=_schema(self._source),
                properties=_PROPERTIES,
                position=entry.before,
                definition=entry.pins.definition,
                topics=entry.topics,
                subscription=entry.subscription,
                generation=entry.generation,
            )

    @property
    def exists(self) -> bool:
        return self._tail is not None

    def has(self, entry: Entry) -> bool:
        """Whether it holds the rejected rows of the entry's batch, or of a later one."""
        assert self._tail is not None
        self._tail = advance(self._tail, self._log)
        return self._tail.entry.key >= entry.key

    def of(self, entry: Entry) -> Entry | None:
        """Its own entry for the entry's batch, or for a later one; None if it has none of them."""
        return self._tail.entry if self.has(entry) and self._tail is not None else None

    def rows_of(self, entry: Entry) -> DataFrame:
        rows = self._spark.read.format("delta").load(self._place.uri)
        return rows.where(f"generation = {entry.generation} AND batch = {entry.batch}")

    def drop(self, condition: str, entry: Entry) -> None:
        """Removes rows in one commit, which carries the entry; that of a fill is made also if there are none."""
        assert self._tail is not None
        self._tail = advance(self._tail, self._log)
        last = self._tail.entry
        own = replace(
            entry,
            table=self._place.table,
            ledger=last.ledger,
            counts=self._tail.counts,
            seen=self._tail.version,
        )
        session = self._spark.newSession()
        with carrying(session, own, idempotent=False):
            DeltaTable.forPath(session, self._place.uri).delete(condition)
        if own.kind == "fill" and confirm(self._tail, self._log, own) is None:
            append_nothing(self._spark, self._place.uri, own)
            must_confirm(self._tail, self._log, own)
        self._tail = advance(self._tail, self._log)

    @property
    def filled(self) -> int:
        """The generation of the last fill of the table that it has followed."""
        assert self._tail is not None
        self._tail = advance(self._tail, self._log)
        entry = self._tail.entry
        return entry.generation if entry.kind == "fill" else (entry.filled or (0, 0))[0]

    def add(self, explained: DataFrame, entry: Entry, *, files: int = 1) -> int:
        """Appends the rejected rows of a batch, in so many files at the most; how many rows that were."""
        assert self._tail is not None
        counts = Counts(self._tail.commit.rows, self._tail.counts.total)
        own = replace(
            entry,
            kind="batch",
            table=self._place.table,
            ledger=self._tail.entry.ledger,
            counts=counts,
            seen=self._tail.version,
        )
        # As data, not as literals: those would be part of the code that Spark makes, and compiled anew in every batch.
        about = (
            f"named_struct('time', timestamp_millis({entry.pins.time_ms}L), 'generation', {entry.generation}L, "
            f"'batch', {entry.batch}L, 'definition', '{entry.pins.definition}')"
        )
        rows = explained.selectExpr("*", f"get(array({about}), size({FAILED}) & 0) AS about").selectExpr(
            *RAW,
            SOURCE,
            "why.reason AS error_reason",
            "why.detail AS error_detail",
            "about.time AS error_timestamp",
            "about.generation AS generation",
            "about.batch AS batch",
            "about.definition AS definition",
        )
        append(rows.coalesce(files), self._place.uri, own, idempotent=self._idempotent)
        before = self._tail.version
        self._tail = advance(self._tail, self._log)
        return self._tail.commit.rows if self._tail.version > before else 0


def _schema(source: str) -> StructType:
    columns = {**RAW, SOURCE: source, **_REASONS}
    return cast(StructType, StructType.fromDDL(", ".join(f"{name} {kind}" for name, kind in columns.items())))
