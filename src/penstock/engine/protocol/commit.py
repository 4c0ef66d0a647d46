"""The one place that writes a commit: rows or none, always with a ledger entry, always confirmed from the log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from penstock.engine.protocol.entry import Entry, dump
from penstock.engine.protocol.ledger import Tail, advance
from penstock.engine.protocol.log import DeltaLog
from penstock.errors import ChainBroken

_GENERATION_BITS = 32


def append(rows: DataFrame, uri: str, entry: Entry, *, idempotent: bool) -> None:
    """`idempotent` adds Delta's own check, for stores without our locks: there it stops a second live writer."""
    _write(rows, uri, entry, _transaction(entry) if idempotent else {})


def overwrite(rows: DataFrame, uri: str, entry: Entry, *, idempotent: bool) -> None:
    """The whole table anew, in one commit."""
    _write(rows, uri, entry, _transaction(entry) if idempotent else {}, mode="overwrite")


@contextmanager
def carrying(session: SparkSession, entry: Entry, *, idempotent: bool) -> Iterator[None]:
    """For a MERGE, which takes no options: the entry goes with the next commit of this session, which is that of one
    query alone. Left set, it would go with others too."""
    confs = {"spark.databricks.delta.commitInfo.userMetadata": dump(entry)}
    if idempotent:
        confs |= {f"spark.databricks.delta.write.{name}": str(value) for name, value in _transaction(entry).items()}
    for name, value in confs.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in confs:
            session.conf.unset(name)


def append_nothing(spark: SparkSession, uri: str, entry: Entry) -> None:
    """An entry without rows, with Delta's transaction mark: without that an empty append makes no commit."""
    by_the_clock = entry.kind in ("carry", "fill")  # their number is taken already
    mark = _by_the_clock(entry) if by_the_clock else _transaction(entry)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.penstock.delta.Note.marked(spark._jsparkSession, uri, dump(entry), mark["txnAppId"], mark["txnVersion"])


def overwrite_by_nothing(spark: SparkSession, uri: str, entry: Entry) -> None:
    """An entry that removes all rows; with the transaction options also if there are none."""
    _write(spark.read.format("delta").load(uri).limit(0), uri, entry, _transaction(entry), mode="overwrite")


def confirm(tail: Tail, log: DeltaLog, entry: Entry) -> Tail | None:
    """The end of the ledger if `entry` is in the log after `tail`, else None."""
    for commit in log.since(tail.version):
        if commit.entry is not None and (commit.entry.key, commit.entry.kind) == (entry.key, entry.kind):
            return advance(tail, log)
    return None


def must_confirm(tail: Tail, log: DeltaLog, entry: Entry) -> Tail:
    confirmed = confirm(tail, log, entry)
    if confirmed is None:
        raise ChainBroken(
            f"{entry.kind} {entry.generation}.{entry.batch} was written, but the log does not hold it after version "
            f"{tail.version}",
            where=entry.table,
            hint="another process replaced or rewrote the table. `penstock history` shows its commits",
        )
    return confirmed


def _write(rows: DataFrame, uri: str, entry: Entry, options: dict[str, Any], mode: str = "append") -> None:
    rows.write.format("delta").mode(mode).option("userMetadata", dump(entry)).options(**options).save(uri)


def _transaction(entry: Entry) -> dict[str, Any]:
    """One appId per table, for ever, and a number that only grows. What comes beside the batches has no number."""
    if entry.kind in ("redrive", "forget"):
        return _by_the_clock(entry)
    return {
        "txnAppId": f"penstock:{entry.table}",
        "txnVersion": entry.generation << _GENERATION_BITS | entry.batch,
    }


def _by_the_clock(entry: Entry) -> dict[str, Any]:
    return {"txnAppId": f"penstock:{entry.table}:{entry.kind}", "txnVersion": time.time_ns() // 1_000_000}
