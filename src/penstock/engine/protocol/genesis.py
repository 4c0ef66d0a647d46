"""The first commit of a table: its schema, its properties, and where it begins."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.engine.identifiers import quote
from penstock.engine.protocol.commit import append_nothing
from penstock.engine.protocol.entry import Entry, Pins, dump
from penstock.engine.protocol.ledger import Tail, read_tail
from penstock.engine.protocol.log import DeltaLog
from penstock.errors import ChainBroken


def genesis(
    spark: SparkSession,
    log: DeltaLog,
    *,
    table: str,
    uri: str,
    schema: StructType,
    properties: Mapping[str, str],
    position: tuple[str, ...],
    definition: str,
    topics: Mapping[str, str],
    subscription: Mapping[str, Any],
    generation: int = 1,
) -> Tail:
    """Creates the table in one commit with its entry: batch 0 of its first generation, at an explicit position. A Delta
    table that is there already is taken over: only the entry is committed to it."""
    entry = Entry(
        kind="genesis",
        table=table,
        ledger=uuid.uuid4().hex,
        generation=generation,
        batch=0,
        before=position,
        after=position,
        pins=Pins(time.time_ns() // 1_000_000, definition),
        topics=topics,
        subscription=subscription,
    )
    if log.versions():
        append_nothing(spark, uri, entry)
    else:
        # Not createDataFrame([]): that starts Python workers, a second at the first commit, for no row at all.
        columns = (f"CAST(NULL AS {field.dataType.simpleString()}) AS {quote(field.name)}" for field in schema.fields)
        empty = spark.range(0).selectExpr(*columns).write.format("delta").mode("errorifexists")
        empty.option("userMetadata", dump(entry)).options(**properties).save(uri)
    tail = read_tail(log)
    if tail is None or tail.entry.ledger != entry.ledger:
        raise ChainBroken("the table was made, but its log does not hold our entry", where=table)
    return tail
