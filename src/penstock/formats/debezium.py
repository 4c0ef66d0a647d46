"""Debezium's changes. The parse is that of JSON objects, by a function of the JVM that knows its envelope:
jar_data/java/penstock/json/Changes.java.

A row has the columns of the schema, from `after`, or for a deleted row what is known of it; and also

- `_op`: c (insert), r (read by a snapshot), u (update), d (delete), t (truncate, all other columns are NULL);
- `_changed_at`: when the change was committed, by the clock of the database;
- `_position`: text that puts the changes of a key into the order in which the database made them, whatever order they
  arrive in. An event that is sent again has the same. It compares within one database only. Its parts, per kind of
  database, are described in Position.java: for PostgreSQL the commit before the change's own, whether it is a change or
  a snapshot's read, which comes before all that follows that commit, and its place in the log.

A record without a value is a tombstone, which Debezium sends behind a delete for Kafka's compaction: no row, no fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn

from penstock.formats.base import PARSED, Decoded, absent, case
from penstock.formats.json import RESCUED, penstock_class
from penstock.spark.jvm import java_column
from penstock.spark.sql_text import quote
from penstock.spec.stages import CHANGE_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.plan.stages import DecodePlan

KEY = "__key"
"""The column with the key of each record as text, or NULL: for a deleted row it may be all that is known."""


@dataclass(frozen=True)
class DebeziumDecoder:
    plan: DecodePlan
    binary: str | None
    """The column that holds payloads that are not UTF-8."""

    def decode(self, records: DataFrame) -> Decoded:
        assert self.plan.schema is not None
        names = [*(field.name for field in self.plan.schema.fields), *CHANGE_COLUMNS]
        columns = [(name, f"{PARSED}.{quote(name)}") for name in names]
        if self.plan.rescue:
            columns.append((RESCUED, f"{PARSED}.__rescued"))
        why = case(
            absent(self.plan.column, self.binary),
            f"named_struct('reason', {PARSED}.__reason, 'detail', {PARSED}.__detail)",
        )
        empty = [self.plan.column, *([self.binary] if self.binary else [])]
        is_dropped = f"({' AND '.join(f'{quote(name)} IS NULL' for name in empty)})"
        bad = f"({PARSED}.__reason IS NOT NULL AND NOT {is_dropped})"
        return Decoded(records.withColumn(PARSED, self._parsed(records)), tuple(columns), bad, why, is_dropped)

    def _parsed(self, records: DataFrame) -> JvmColumn:
        assert self.plan.schema is not None
        spark = records.sparkSession
        text, key = F.expr(quote(self.plan.column)), F.expr(KEY)
        conventions = [self.plan.options.get(name, "") for name in ("times", "decimals", "before")]
        zone = spark.conf.get("spark.sql.session.timeZone")
        changes = penstock_class(spark, "Changes")
        return JvmColumn(
            changes.column(
                java_column(text), java_column(key), self.plan.schema.columns(), zone, self.plan.rescue, *conventions
            )
        )
