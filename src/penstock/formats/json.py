"""JSON objects, and Debezium's changes. Spark's parser does not report half of what can be wrong with a record, so
Penstock has its own parser: functions of the JVM, jar_data/java/penstock/json, that give the typed values or, for a
faulty record, its fault."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn

from penstock.formats.base import PARSED, Decoded, absent, case
from penstock.spark.jvm import java_column, penstock_class
from penstock.spark.sql_text import quote
from penstock.spec.stages import CHANGE_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.plan.stages import DecodePlan

RESCUED = "_rescued"
_UNKNOWN, _RESCUED_FIELDS = f"{PARSED}.__unknown", f"{PARSED}.__rescued"
KEY = "__key"
"""The column with the key of each record as text, or NULL: for a deleted row it may be all that is known."""


@dataclass(frozen=True)
class JsonDecoder:
    plan: DecodePlan
    binary: str | None
    """The column that holds payloads that are not UTF-8."""
    expected: tuple[str, ...] = ()
    """Fields of the object that the schema does not name, and that are not unknown."""
    deep: bool = False
    """Unknown fields of nested objects are rescued too, by their paths."""

    def decode(self, records: DataFrame) -> Decoded:
        text, *rules = _parser_arguments(records, self.plan)
        decoder = penstock_class(records.sparkSession, "Decoder")
        return _decoded(records, self.plan, self.binary, decoder.column(text, *rules, self.deep, list(self.expected)))


@dataclass(frozen=True)
class DebeziumDecoder:
    """By jar_data/java/penstock/json/Changes.java, which knows Debezium's envelope.

    A row has the columns of the schema, from `after`, or for a deleted row what is known of it; and also

    - `_op`: c (insert), r (read by a snapshot), u (update), d (delete), t (truncate, all other columns are NULL);
    - `_changed_at`: when the change was committed, by the clock of the database;
    - `_position`: text that puts the changes of a key into the order in which the database made them, whatever order
      they arrive in. An event that is sent again has the same. It compares within one database only. Its parts, per
      kind of database, are described in Position.java: for PostgreSQL the commit before the change's own, whether it is
      a change or a snapshot's read, which comes before all that follows that commit, and its place in the log.

    A record without a value is a tombstone, which Debezium sends behind a delete for Kafka's compaction: no row, no
    fault."""

    plan: DecodePlan
    binary: str | None

    def decode(self, records: DataFrame) -> Decoded:
        text, *rules = _parser_arguments(records, self.plan)
        conventions = [self.plan.options.get(name, "") for name in ("times", "decimals", "before")]
        changes = penstock_class(records.sparkSession, "Changes")
        parsed = changes.column(text, java_column(F.expr(KEY)), *rules, *conventions)
        empty = [self.plan.column, *([self.binary] if self.binary else [])]
        is_dropped = f"({' AND '.join(f'{quote(name)} IS NULL' for name in empty)})"
        decoded = _decoded(records, self.plan, self.binary, parsed, CHANGE_COLUMNS)
        bad = f"({PARSED}.__reason IS NOT NULL AND NOT {is_dropped})"
        return replace(decoded, is_bad=bad, is_dropped=is_dropped)


def _parser_arguments(records: DataFrame, plan: DecodePlan) -> list[Any]:
    """The text of a record, and the rules that both parsers take: columns, time zone, whether to rescue fields."""
    assert plan.schema is not None
    zone = records.sparkSession.conf.get("spark.sql.session.timeZone")
    return [java_column(F.expr(quote(plan.column))), plan.schema.columns(), zone, plan.rescue]


def _decoded(
    records: DataFrame, plan: DecodePlan, binary: str | None, parsed: Any, more_columns: Iterable[str] = ()
) -> Decoded:
    assert plan.schema is not None
    names = [*(field.name for field in plan.schema.fields), *more_columns]
    columns = [(name, f"{PARSED}.{quote(name)}") for name in names]
    if plan.rescue:
        columns.append((RESCUED, _RESCUED_FIELDS))
    why = case(absent(plan.column, binary), f"named_struct('reason', {PARSED}.__reason, 'detail', {PARSED}.__detail)")
    frame = records.withColumn(PARSED, JvmColumn(parsed))
    bad = f"({PARSED}.__reason IS NOT NULL)"
    return Decoded(frame, tuple(columns), bad, why, unknown=_UNKNOWN, rescued=_RESCUED_FIELDS)
