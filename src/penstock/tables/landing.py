"""Bronze: records as they arrived, with their coordinates. Nothing is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pyspark.sql.types import StructType

from penstock.ledger.write_target import coalesce_files
from penstock.spark.sql_text import quote
from penstock.tables.suppression import TableProcessor

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.ledger.entry import Entry, Pins
    from penstock.ledger.write_target import WriteTarget
    from penstock.plan.model import TablePlan
    from penstock.tables.suppression import Suppression

# A string column holds only valid UTF-8: one bad byte would break other readers of the whole file. Bytes that are not
# UTF-8 go unchanged to `key_binary` and `value_binary`.


_TYPES = {
    "key": "STRING",
    "key_binary": "BINARY",
    "value": "STRING",
    "value_binary": "BINARY",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "kafka_timestamp": "TIMESTAMP",
    "ingestion_timestamp": "TIMESTAMP",
}
_AS_TEXT = {
    "key": "try_validate_utf8(CAST(key AS STRING))",
    "key_binary": "IF(is_valid_utf8(CAST(key AS STRING)), NULL, key)",
    "value": "try_validate_utf8(CAST(value AS STRING))",
    "value_binary": "IF(is_valid_utf8(CAST(value AS STRING)), NULL, value)",
}
_AS_IS = {"key": "key", "value": "value", "kafka_timestamp": "timestamp"}


def landed_schema(table: TablePlan) -> StructType:
    binary = {"key": "BINARY", "value": "BINARY"} if table.payload == "binary" else {}
    types = _TYPES | binary
    ddl = ", ".join(f"{quote(name)} {types[column]}" for column, name in table.columns.items())
    return cast(StructType, StructType.fromDDL(ddl))


def landed_rows(batch: DataFrame, table: TablePlan, pins: Pins) -> DataFrame:
    """The batch's records as rows of the table, all with the batch's pinned time.

    Spark puts a plain literal into its generated code: with the time as one, every batch would recompile that code and
    run it cold. An array literal is passed to the code as data.
    """
    expressions = {**_AS_IS, **(_AS_TEXT if table.payload == "string" else {})}
    expressions["ingestion_timestamp"] = f"get(array(timestamp_millis({pins.time_ms}L)), partition & 0)"
    return batch.selectExpr(
        *(f"{expressions.get(column, column)} AS {quote(name)}" for column, name in table.columns.items())
    )


class LandingProcessor(TableProcessor):
    def __init__(self, table: TablePlan, suppression: Suppression) -> None:
        self._table, self._suppression = table, suppression

    def write(self, batch: DataFrame, entry: Entry, write_target: WriteTarget, *, files: int) -> None:
        rows = landed_rows(batch, self._table, entry.pins) if self._table.columns else batch
        write_target.append(coalesce_files(self._suppression.drop_suppressed(rows), files), entry)
