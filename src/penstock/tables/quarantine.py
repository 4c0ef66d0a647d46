"""`<table>__quarantine`: every rejected row once, as it came, with the reason.

Its commits follow those of the table: a batch's good rows first, then its rejected ones. What dies in between is
completed when the batch is run again: the quarantine's own ledger says which batches it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from delta.tables import DeltaTable
from pyspark.sql.types import StructType

from penstock.ledger.commit import append, append_nothing, carrying, confirm, must_confirm
from penstock.ledger.create import genesis
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import WHOLE, Counts
from penstock.ledger.head import advance, read_head
from penstock.ledger.position import same
from penstock.sources.columns import SOURCE
from penstock.tables.expectations import FAILED, RAW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.ledger.entry import Entry, Kind
    from penstock.ledger.head import LedgerHead
    from penstock.plan.quarantine import CompanionTable
    from penstock.storage.stores import Store
    from penstock.tables.suppression import Suppression

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


class Companion:
    """A Delta table beside a table of the project, which follows its batches: its commits carry the entries of those.
    Used under the table's commit lock."""

    def __init__(self, spark: SparkSession, store: Store, place: CompanionTable, *, idempotent: bool) -> None:
        self._spark, self._place, self._idempotent = spark, place, idempotent
        self.log = DeltaLog(store, place.uri, place.table)
        self._tail: LedgerHead | None = read_head(self.log)

    def _create(self, entry: Entry, schema: StructType, properties: Mapping[str, str]) -> None:
        """Nothing happens if it is there."""
        if self._tail is None:
            self._tail = genesis(
                self._spark,
                self.log,
                table=self._place.table,
                uri=self._place.uri,
                schema=schema,
                properties=properties,
                position=entry.before,
                definition=entry.pins.definition,
                topics=entry.topics,
                subscription=entry.subscription,
                generation=entry.generation,
            )

    @property
    def uri(self) -> str:
        return self._place.uri

    @property
    def exists(self) -> bool:
        return self._tail is not None

    def has(self, entry: Entry) -> bool:
        """Whether it holds rows of the entry's batch, or of a later one."""
        assert self._tail is not None
        self._tail = advance(self._tail, self.log)
        last = self._tail.entry
        if last.generation > entry.generation:  # the table was put back to an older state, and this was not
            return any(_of_batch(commit.entry, entry) for commit in self.log.backwards())
        return last.key >= entry.key

    def of(self, entry: Entry) -> Entry | None:
        """Its own entry for the entry's batch, or for a later one; None if it has none of them."""
        return self._tail.entry if self.has(entry) and self._tail is not None else None

    def drop(self, condition: str, entry: Entry) -> None:
        """Removes rows in one commit, which carries the entry; that of a fill is made also if there are none."""
        own = self.commit(entry, lambda session: DeltaTable.forPath(session, self._place.uri).delete(condition))
        assert self._tail is not None
        if own.kind == "fill" and confirm(self._tail, self.log, own) is None:
            append_nothing(self._spark, self._place.uri, own)
            must_confirm(self._tail, self.log, own)
        self._tail = advance(self._tail, self.log)

    def commit(self, entry: Entry, write: Callable[[SparkSession], object]) -> Entry:
        """The commit that `write` makes in the session that it is given carries the entry as its own, which is given
        back."""
        assert self._tail is not None
        self._tail = advance(self._tail, self.log)
        own = entry.stamped(
            table=self._place.table,
            ledger=self._tail.entry.ledger,
            counts=self._tail.counts,
            seen=self._tail.version,
        )
        session = self._spark.newSession()
        with carrying(session, own, idempotent=False):
            write(session)
        return own

    @property
    def filled(self) -> int:
        """The generation of the last fill of the table that it has followed."""
        assert self._tail is not None
        self._tail = advance(self._tail, self.log)
        entry = self._tail.entry
        return entry.generation if entry.kind in WHOLE else (entry.filled or (0, 0))[0]

    def _own(self, entry: Entry, kind: Kind = "batch") -> Entry:
        """The entry of a batch of the table, as the commit of this one carries it."""
        assert self._tail is not None
        self._tail = advance(self._tail, self.log)
        return entry.stamped(
            kind=kind,
            table=self._place.table,
            ledger=self._tail.entry.ledger,
            counts=Counts(self._tail.commit.rows, self._tail.counts.total),
            seen=self._tail.version,
        )


class Quarantine(Companion):
    """Made with its table."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        place: CompanionTable,
        source: str,
        suppression: Suppression | None = None,
        *,
        idempotent: bool,
    ) -> None:
        """`source` is the type of the table's coordinates."""
        super().__init__(spark, store, place, idempotent=idempotent)
        self._suppression = suppression
        self.forgotten = 0
        """Of the rows that were last to be added: those that were not, because they are of somebody to be forgotten."""
        self._source = source

    def create(self, entry: Entry) -> None:
        """Nothing happens if it is there."""
        self._create(entry, _schema(self._source), _PROPERTIES)

    def rows_of(self, entry: Entry) -> DataFrame:
        rows = self._spark.read.format("delta").load(self._place.uri)
        return rows.where(f"generation = {entry.generation} AND batch = {entry.batch}")

    def add(self, explained: DataFrame, entry: Entry, *, files: int = 1) -> int:
        """Appends the rejected rows of a batch, in so many files at the most; how many rows that were. Raises if they
        are not in the log afterwards."""
        explained = self._remembered(explained)
        own = self._own(entry)
        assert self._tail is not None
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
        more = self._tail.entry.key >= own.key
        append(rows.coalesce(files), self._place.uri, own, idempotent=self._idempotent, more=more)
        if self._idempotent:
            must_confirm(self._tail, self.log, own)
        before, self._tail = self._tail.version, advance(self._tail, self.log)
        # Without Delta's mark nothing is skipped, and an append of no rows makes no commit.
        return sum(commit.rows for commit in self.log.since(before) if commit.entry and commit.entry.id == own.id)

    def _remembered(self, rows: DataFrame) -> DataFrame:
        found = self._suppression.of_rejected(rows) if self._suppression is not None else None
        self.forgotten = 0 if found is None else rows.where(found).count()
        return rows if found is None else rows.where(~found)


def _of_batch(found: Entry | None, entry: Entry) -> bool:
    """Of the same rows: a generation that was opened twice has two batches of a number."""
    return (
        found is not None
        and (found.kind, found.key) == ("batch", entry.key)
        and all(map(same, (*found.before, *found.after), (*entry.before, *entry.after)))
    )


def version_of(log: DeltaLog, key: tuple[int, int], until_ms: int) -> int:
    """The version of a quarantine when batch `key` was the last one of its table: with rejected rows of none after it,
    and with what had become of them before `until_ms`."""
    first = 0
    for commit in log.backwards():
        entry = commit.entry
        if entry.key <= key if entry is not None and entry.kind == "batch" else commit.timestamp_ms < until_ms:
            return commit.version
        first = commit.version
    return first


def _schema(source: str) -> StructType:
    columns = {**RAW, SOURCE: source, **_REASONS}
    return cast(StructType, StructType.fromDDL(", ".join(f"{name} {kind}" for name, kind in columns.items())))
