"""The rows of a quarantine that are being redriven: marked by an id, from one commit to another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.engine.identifiers import quote
from penstock.engine.protocol.commit import carrying, must_confirm
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.ledger import Tail, read_tail
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.stages.decode import literal
from penstock.engine.store import Store
from penstock.errors import UsageError
from penstock.plan.model import TablePlan
from penstock.plan.quarantine import quarantine_of

MARK = "redrive"


class Marked:
    def __init__(self, spark: SparkSession, store: Store, table: TablePlan) -> None:
        """UsageError if the table has no quarantine."""
        place = quarantine_of(table.name, table.uri)
        self._session, self.uri = spark.newSession(), place.uri
        self._log = DeltaLog(store, place.uri, place.table)
        if not self._log.versions():
            raise UsageError(f"{table.name} has no quarantine", hint="nothing of it was ever rejected")
        if MARK not in self.rows().columns:
            self._session.sql(f"ALTER TABLE delta.{quote(place.uri)} ADD COLUMNS ({MARK} STRING)")

    def rows(self) -> DataFrame:
        return self._session.read.format("delta").load(self.uri)

    def open(self) -> str | None:
        """The id of a redrive that was cut off."""
        found = self.rows().where(f"{MARK} IS NOT NULL").agg(F.max(MARK)).first()
        return None if found is None or found[0] is None else str(found[0])

    def of(self, name: str) -> DataFrame:
        return self.rows().where(f"{MARK} = {literal(name)}")

    def mark(self, name: str, condition: str | None) -> int:
        """How many rows were. Those that another process has marked meanwhile, on a store without locks, are not."""
        chosen = f"{MARK} IS NULL AND ({condition or 'true'})"
        with self._carrying():
            DeltaTable.forPath(self._session, self.uri).update(chosen, {MARK: F.lit(name)})
        return self.of(name).count()

    def settle(self, name: str, stay: DataFrame, *, files: int = 1) -> None:
        """Those that were marked go, but for `stay`, which has the columns of the quarantine: in one commit."""
        unmarked = stay.withColumn(MARK, F.lit(None).cast("string")).select(*map(quote, self.rows().columns))
        rows = unmarked.coalesce(1) if files == 1 else unmarked.repartition(files)
        writer = rows.write.format("delta").mode("overwrite")
        check = "spark.databricks.delta.replaceWhere.constraintCheck.enabled"
        self._session.conf.set(check, "false")  # what stays is marked no longer
        try:
            with self._carrying() as (tail, entry):
                writer.option("replaceWhere", f"{MARK} = {literal(name)}").save(self.uri)
            must_confirm(tail, self._log, entry)
        finally:
            self._session.conf.unset(check)

    @contextmanager
    def _carrying(self) -> Iterator[tuple[Tail, Entry]]:
        """Its own last entry, once more: a batch that it lacks must not seem to be there."""
        tail = read_tail(self._log)
        assert tail is not None
        entry = tail.entry.stamped(kind="redrive", counts=tail.counts, seen=tail.version, pending={})
        with carrying(self._session, entry, idempotent=False):
            yield tail, entry
