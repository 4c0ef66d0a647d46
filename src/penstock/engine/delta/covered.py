"""What a stream over a Delta table has read up to a position, as rows for a batch.

That is the table as of a version: compactions and vacuums since do not matter. Only where the stream stopped within a
version, or began after the first one, files are counted as Delta's streaming source counts them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.engine.changes.net import CHANGE, TIME, VERSION
from penstock.engine.delta.start import unbroken
from penstock.engine.delta.version import Version
from penstock.engine.forget.since import forgotten_after
from penstock.engine.protocol.log import DeltaLog
from penstock.errors import Terminal


def rows_up_to(
    spark: SparkSession, uri: str, log: DeltaLog, began: Version, after: Version, table: str, *, rewritten: bool = False
) -> DataFrame:
    """With `rewritten` the stream reads the files of commits that change rows, too: `ignore_changes`."""
    if not began.snapshot and began.version > 0:
        _require(log, began.version, table)
        return _jvm_rows(spark, "between", uri, began.version, after.version, after.index, rewritten)
    if after.whole:
        return at_version(spark, uri, after.read_up_to)
    if after.snapshot:
        return _jvm_rows(spark, "ofSnapshot", uri, after.version, after.index)
    return _jvm_rows(spark, "upTo", uri, after.version, after.index, rewritten)


def at_version(spark: SparkSession, uri: str, version: int) -> DataFrame:
    if version < 0:
        return spark.read.format("delta").load(uri).limit(0)
    return spark.read.format("delta").option("versionAsOf", version).load(uri)


def inserted(rows: DataFrame, log: DeltaLog, version: int) -> DataFrame:
    """Rows of a table as of a version in the shape of its change feed: as a stream over that begins."""
    commit = log.commit(version)
    time_ms = commit.timestamp_ms if commit is not None else 0
    return rows.withColumns(
        {
            CHANGE: F.lit("insert"),
            VERSION: F.lit(version).cast("bigint"),
            TIME: F.expr(f"timestamp_millis({time_ms}L)"),
        }
    )


def changes_up_to(
    spark: SparkSession, uri: str, log: DeltaLog, began: Version, after: Version, table: str
) -> DataFrame:
    """Every change from where the stream began: the feed must still have them all."""
    first = began.version + 1 if began.snapshot else began.version
    start = inserted(at_version(spark, uri, began.version), log, began.version) if began.snapshot else None
    if first > after.read_up_to:
        return start if start is not None else _feed(spark, uri, after.read_up_to, after.read_up_to).limit(0)
    _require(log, first, table)
    later = _feed(spark, uri, first, after.read_up_to)
    return later if start is None else start.unionByName(later)


def _feed(spark: SparkSession, uri: str, first: int, last: int) -> DataFrame:
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    return reader.option("startingVersion", first).option("endingVersion", last).load(uri)


def _require(log: DeltaLog, version: int, table: str) -> None:
    forgotten = forgotten_after(log, version - 1)
    if forgotten is not None:
        raise Terminal(
            f"{table} began with version {version} of {log.table}, and in version {forgotten} of that somebody was "
            "forgotten: files that it has read are gone",
            where=table,
            hint=f"`--version N --cascade`, with N from {forgotten} on, makes it from all rows of the table upstream",
        )
    versions: Sequence[int] = log.versions()
    oldest = unbroken(versions) if versions else 0
    if version < oldest:
        raise Terminal(
            f"{table} began with version {version} of {log.table}, whose log goes back to version {oldest} only: which "
            "rows it has read cannot be told any more",
            where=table,
            hint="`--version N --cascade` makes it from all rows of the table upstream as of version N",
        )


def _jvm_rows(spark: SparkSession, what: str, *arguments: object) -> DataFrame:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    return DataFrame(getattr(jvm.penstock.delta.Covered, what)(spark._jsparkSession, *arguments), spark)
