"""The first commit of a table: its schema, its properties, and where it begins."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from delta.tables import DeltaTable
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
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
    base: int | None = None,
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
        began=position,
        base=base,
    )
    if log.versions():
        append_nothing(spark, uri, entry)
    else:
        _create(spark, uri, schema, properties, dump(entry), partition_by, cluster_by)
    tail = read_tail(log)
    if tail is None or tail.entry.ledger != entry.ledger:
        raise ChainBroken("the table was made, but its log does not hold our entry", where=table)
    return tail


def _create(
    spark: SparkSession,
    uri: str,
    schema: StructType,
    properties: Mapping[str, str],
    metadata: str,
    partition_by: Sequence[str],
    cluster_by: Sequence[str],
) -> None:
    """Without a job and without a data file. Of a commit that writes no rows the metadata is a conf of the session, so
    it has one of its own: other tables are made at the same time."""
    session = spark.newSession()
    session.conf.set("spark.databricks.delta.commitInfo.userMetadata", metadata)
    # Delta compares two spellings of the one place that it was given, file:///lake and file:/lake, and finds two.
    session.conf.set("spark.databricks.delta.legacy.allowAmbiguousPathsInCreateTable", "true")
    table = DeltaTable.create(session).tableName(f"delta.{quote(uri)}").location(uri).addColumns(schema)
    for name, value in properties.items():
        table = table.property(name, value)
    if partition_by:
        table = table.partitionedBy(*partition_by)
    if cluster_by:
        table = table.clusterBy(*cluster_by)
    table.execute()
