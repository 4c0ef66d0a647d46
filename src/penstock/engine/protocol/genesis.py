"""The first commit of a table: its schema, its properties, and where it begins."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.engine.protocol.commit import append_nothing, last_generation
from penstock.engine.protocol.entry import Entry, Pins, dump, new_id
from penstock.engine.protocol.ledger import Tail, read_tail
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.protocol.making import create_table
from penstock.errors import ChainBroken, Conflict, PenstockError


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
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    base: int | None = None,
) -> Tail:
    """Creates the table in one commit with its entry: batch 0 of its first generation, at an explicit position. A Delta
    table that is there already is taken over: only the entry is committed to it."""
    versions = log.versions()
    if versions:  # the number of a commit has to grow, whatever became of the entries of those before
        generation = max(generation, last_generation(spark, uri, table, versions[-1]) + 1)
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
        began=position,
        base=base,
        id=new_id(),
    )
    if versions:
        append_nothing(spark, uri, entry)
    else:
        _create(spark, log, uri, schema, properties, entry, partition_by, cluster_by)
    tail = read_tail(log)
    if tail is None or tail.entry.ledger != entry.ledger:
        raise ChainBroken("the table was created, but its log does not hold our entry", where=table)
    return tail


def _create(
    spark: SparkSession,
    log: DeltaLog,
    uri: str,
    schema: StructType,
    properties: Mapping[str, str],
    entry: Entry,
    partition_by: Sequence[str],
    cluster_by: Sequence[str],
) -> None:
    try:
        create_table(
            spark,
            log,
            uri,
            schema,
            properties,
            metadata=dump(entry),
            partition_by=partition_by,
            cluster_by=cluster_by,
        )
    except PenstockError:
        raise
    except Exception as error:
        if not log.versions():
            raise
        raise Conflict("another process created the table at the same time", where=entry.table) from error
