"""`<table>__quarantine`: every rejected row once, as it arrived, with the reason.

Its commits follow those of the table: a batch's good rows first, then its rejected ones. A batch that crashes in
between is completed when it runs again: the quarantine's own ledger says which batches it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from delta.tables import DeltaTable
from pyspark.sql.types import StructType

from penstock.ledger.commit import append, append_entry, commit_metadata, confirm, must_confirm
from penstock.ledger.create import genesis
from penstock.ledger.delta_log import DeltaLog
from penstock.ledger.entry import REPLACING_KINDS, Counts
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


class CompanionLog:
    """A Delta table beside a table of the project that follows its batches: its commits carry their ledger entries.
    Used under the table's commit lock."""

    def __init__(self, spark: SparkSession, store: Store, location: CompanionTable, *, idempotent: bool) -> None:
        self._spark, self._location, self._idempotent = spark, location, idempotent
        self.log = DeltaLog(store, location.uri, location.table)
        self._head: LedgerHead | None = read_head(self.log)

    def _create(self, entry: Entry, schema: StructType, properties: Mapping[str, str]) -> None:
        """Creates the table unless it exists."""
        if self._head is None:
            self._head = genesis(
                self._spark,
                self.log,
                table=self._location.table,
                uri=self._location.uri,
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
        return self._location.uri

    @property
    def exists(self) -> bool:
        return self._head is not None

    def has(self, entry: Entry) -> bool:
        """Whether it holds rows of the entry's batch, or of a later one."""
        last = self._advanced_head().entry
        if last.generation > entry.generation:  # the table was restored to an older state, and this one was not
            return any(_is_entry_of(commit.entry, entry) for commit in self.log.backwards())
        return last.key >= entry.key

    def entry_for(self, entry: Entry) -> Entry | None:
        """Its ledger entry for the entry's batch, or for a later one; None if it has neither."""
        return self._head.entry if self.has(entry) and self._head is not None else None

    def drop(self, condition: str, entry: Entry) -> None:
        """Removes rows in one commit that carries the entry; for a fill it commits even if there are no rows."""
        companion_entry = self.commit(entry, lambda session: DeltaTable.forPath(session, self.uri).delete(condition))
        assert self._head is not None
        if companion_entry.kind == "fill" and confirm(self._head, self.log, companion_entry) is None:
            append_entry(self._spark, self.uri, companion_entry)
            must_confirm(self._head, self.log, companion_entry)
        self._advanced_head()

    def commit(self, entry: Entry, write: Callable[[SparkSession], object]) -> Entry:
        """Calls `write` with a session whose commit carries the entry in this table's form, and returns that entry."""
        head = self._advanced_head()
        companion_entry = entry.with_new_id(
            table=self._location.table, ledger=head.entry.ledger, counts=head.counts, seen=head.version
        )
        session = self._spark.newSession()
        with commit_metadata(session, companion_entry, idempotent=False):
            write(session)
        return companion_entry

    @property
    def last_filled_generation(self) -> int:
        """The generation of the table's last fill that this one followed."""
        entry = self._advanced_head().entry
        return entry.generation if entry.kind in REPLACING_KINDS else (entry.filled or (0, 0))[0]

    def _companion_entry(self, entry: Entry, kind: Kind = "batch") -> Entry:
        """The entry of a batch of the main table in the form that this table's commit carries."""
        head = self._advanced_head()
        return entry.with_new_id(
            kind=kind,
            table=self._location.table,
            ledger=head.entry.ledger,
            counts=Counts(head.commit.rows, head.counts.total),
            seen=head.version,
        )

    def _advanced_head(self) -> LedgerHead:
        """The end of its ledger now; the table exists."""
        assert self._head is not None
        self._head = advance(self._head, self.log)
        return self._head


class Quarantine(CompanionLog):
    """The rejected rows of a table; created together with it."""

    def __init__(
        self,
        spark: SparkSession,
        store: Store,
        location: CompanionTable,
        source_type: str,
        suppression: Suppression | None = None,
        *,
        idempotent: bool,
    ) -> None:
        """`source_type` is the type of the table's coordinates."""
        super().__init__(spark, store, location, idempotent=idempotent)
        self._suppression = suppression
        self.forgotten_count = 0
        """How many rows the last `add` left out because they belong to a person to be forgotten."""
        self._source_type = source_type

    def create(self, entry: Entry) -> None:
        """Creates the quarantine unless it exists."""
        self._create(entry, _schema(self._source_type), _PROPERTIES)

    def rows_of(self, entry: Entry) -> DataFrame:
        rows = self._spark.read.format("delta").load(self._location.uri)
        return rows.where(f"generation = {entry.generation} AND batch = {entry.batch}")

    def add(self, explained: DataFrame, entry: Entry, *, files: int = 1) -> int:
        """Appends the rejected rows of a batch in at most `files` files, and returns their number. Raises if they are
        not in the log afterwards."""
        explained = self._without_forgotten(explained)
        companion_entry = self._companion_entry(entry)
        assert self._head is not None
        # As data, not as literals: Spark puts literals into its generated code and would recompile it for every batch.
        batch_values = (
            f"named_struct('time', timestamp_millis({entry.pins.time_ms}L), 'generation', {entry.generation}L, "
            f"'batch', {entry.batch}L, 'definition', '{entry.pins.definition}')"
        )
        rows = explained.selectExpr("*", f"get(array({batch_values}), size({FAILED}) & 0) AS about").selectExpr(
            *RAW,
            SOURCE,
            "why.reason AS error_reason",
            "why.detail AS error_detail",
            "about.time AS error_timestamp",
            "about.generation AS generation",
            "about.batch AS batch",
            "about.definition AS definition",
        )
        already_in_log = self._head.entry.key >= companion_entry.key
        rows = rows.coalesce(files)
        append(rows, self.uri, companion_entry, idempotent=self._idempotent, more=already_in_log)
        if self._idempotent:
            must_confirm(self._head, self.log, companion_entry)
        version_before, self._head = self._head.version, advance(self._head, self.log)
        # Without Delta's mark no append is skipped, and an append of no rows makes no commit.
        return sum(
            commit.rows
            for commit in self.log.since(version_before)
            if commit.entry and commit.entry.id == companion_entry.id
        )

    def _without_forgotten(self, rows: DataFrame) -> DataFrame:
        forgotten_rows = self._suppression.quarantine_condition(rows) if self._suppression is not None else None
        self.forgotten_count = 0 if forgotten_rows is None else rows.where(forgotten_rows).count()
        return rows if forgotten_rows is None else rows.where(~forgotten_rows)


def _is_entry_of(candidate: Entry | None, entry: Entry) -> bool:
    """Whether both are of the same rows: a generation that was opened twice has two batches with one number."""
    return (
        candidate is not None
        and (candidate.kind, candidate.key) == ("batch", entry.key)
        and all(map(same, (*candidate.before, *candidate.after), (*entry.before, *entry.after)))
    )


def version_of(log: DeltaLog, key: tuple[int, int], until_ms: int) -> int:
    """The version of a quarantine when batch `key` was the last of its table: without rejected rows of later batches,
    and with everything done to its rows before `until_ms`."""
    first = 0
    for commit in log.backwards():
        entry = commit.entry
        if entry.key <= key if entry is not None and entry.kind == "batch" else commit.timestamp_ms < until_ms:
            return commit.version
        first = commit.version
    return first


def _schema(source_type: str) -> StructType:
    columns = {**RAW, SOURCE: source_type, **_REASONS}
    return cast(StructType, StructType.fromDDL(", ".join(f"{name} {data_type}" for name, data_type in columns.items())))
