"""Delta's VACUUM, told exactly how far it may go, and a note in the table's log of what it did.

By default it ignores the hours that it is told unless they are 0, and commits twice whatever it finds (both run).
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from penstock.engine.identifiers import quote
from penstock.engine.protocol.upkeep import Upkeep
from penstock.engine.upkeep.remembered import LOG, REMOVED, SINCE, known_since_ms, retention_ms
from penstock.engine.upkeep.session import session_with

_DELTA = "spark.databricks.delta"
_HOUR_MS = 3_600_000


def would_go(spark: SparkSession, uri: str, hours: int) -> list[str]:
    """The files, by their names within the table, that a vacuum would delete now; empty folders as well."""
    rows = _session(spark, uri).sql(f"VACUUM delta.{quote(uri)} RETAIN {hours:d} HOURS DRY RUN").collect()
    return [within(str(row[0]), uri) for row in rows]


def delete(spark: SparkSession, uri: str, hours: int) -> None:
    """Makes no commit: whoever dies in between has deleted what nobody needs, and the next one goes on."""
    _session(spark, uri).sql(f"VACUUM delta.{quote(uri)} RETAIN {hours:d} HOURS").collect()


def _session(spark: SparkSession, uri: str) -> SparkSession:
    return session_with(
        spark,
        {
            f"{_DELTA}.vacuum.retentionWindowIgnore.enabled": "false",
            f"{_DELTA}.retentionDurationCheck.enabled": "false",
            f"{_DELTA}.vacuum.logging.enabled": "false",
            f"{_DELTA}.vacuum.lite.enabled": "false",
            f"{_DELTA}.vacuum.parallelDelete.enabled": str("://" in uri).lower(),
        },
    )


def within(path: str, uri: str) -> str:
    """`file:/lake/t/day=1/part-0` is `day=1/part-0` of /lake/t."""
    place = uri.removeprefix("file://")
    plain = path.removeprefix("file://").removeprefix("file:") if path.startswith("file:") else path
    return plain[len(place) :].lstrip("/") if plain.startswith(place) else plain


def record(spark: SparkSession, uri: str, upkeep: Upkeep, files: int) -> None:
    """A commit without rows and files, which says who deleted what."""
    session = session_with(spark, {}, upkeep)
    jvm = session.sparkContext._jvm
    assert jvm is not None
    told = jvm.java.util.HashMap()
    told.put("numDeletedFiles", files)
    jvm.penstock.delta.Note.vacuumed(session._jsparkSession, uri, told)


def remember(
    spark: SparkSession, uri: str, wanted_ms: int, configuration: Mapping[str, str], now_ms: int, upkeep: Upkeep
) -> None:
    """From now on the table remembers for so long what is removed. What is forgotten by now stays forgotten."""
    hours = -(-wanted_ms // _HOUR_MS)
    properties = {REMOVED: f"interval {hours} hours", SINCE: str(known_since_ms(configuration, now_ms))}
    if retention_ms(configuration, LOG) < hours * _HOUR_MS:  # Delta asks for a log that goes back as far
        properties[LOG] = f"interval {hours} hours"
    told = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    session_with(spark, {}, upkeep).sql(f"ALTER TABLE delta.{quote(uri)} SET TBLPROPERTIES ({told})")
