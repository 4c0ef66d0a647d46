"""Creating a Delta table, and its first ledger entry: schema, properties, and where it begins."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable

from penstock.errors import ChainBroken, Conflict, PenstockError, TableChanged
from penstock.ledger.commit import append_entry, last_generation
from penstock.ledger.entry import Entry, Pins, dump, new_id
from penstock.ledger.head import read_head
from penstock.spark.sql_text import quote
from penstock.spark.sql_types import nullable_within
from penstock.storage.stores import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from penstock.ledger.delta_log import DeltaLog
    from penstock.ledger.head import LedgerHead
    from penstock.storage.stores import Store

# Delta creates the folder of a table and its log first and writes the commit into it afterwards. A process killed in
# between leaves a folder without a table in it: Delta then says that it exists when it is to be created, and that it
# does not when it is to be read.


LOG = "_delta_log"
_UNFINISHED = re.compile(r"\..+\.tmp|\.[^/]*\.crc|\d{20}\.crc")
"""What a log holds before its first commit: the commit under a temporary name, and checksums."""
_FOLDERS = ("_staged_commits", "_sidecars", "_commits")
"""Folders that Delta may create in a log; without a commit they are empty."""
_SHOWN = 3
_MAY_BE_RENAMED_MS = 30_000
"""A commit is written and renamed within milliseconds."""


def create_table(
    spark: SparkSession,
    log: DeltaLog,
    uri: str,
    schema: StructType,
    properties: Mapping[str, str],
    *,
    metadata: str | None = None,
    partition_by: Sequence[str] = (),
    cluster_by: Sequence[str] = (),
) -> None:
    """Runs no job and writes no data file. `metadata` goes with the commit: it is a conf of the session, so this commit
    gets a session of its own, because other tables are created at the same time. Raises TableChanged if the folder
    holds files of another kind."""
    remove_unfinished(log.store, uri, log.table)
    session = spark.newSession()
    if metadata is not None:
        session.conf.set("spark.databricks.delta.commitInfo.userMetadata", metadata)
    # Delta compares two spellings of the one path that it was given, file:///lake and file:/lake, and takes them for
    # two.
    session.conf.set("spark.databricks.delta.legacy.allowAmbiguousPathsInCreateTable", "true")
    table = (
        DeltaTable.create(session).tableName(f"delta.{quote(uri)}").location(uri).addColumns(nullable_within(schema))
    )
    for name, value in properties.items():
        table = table.property(name, value)
    if partition_by:
        table = table.partitionedBy(*partition_by)
    if cluster_by:
        table = table.clusterBy(*cluster_by)
    table.execute()


def remove_unfinished(store: Store, uri: str, table: str) -> None:
    """For a table without a commit: empties its folder of what was left by a process that died while creating it.

    Nothing else is ever removed: files are deleted by their names, and folders only if they are empty. On stores
    without our locks another process may be creating the table at this moment: a commit under its temporary name stays
    for as long as it can still be renamed."""
    names = store.names(uri)
    if not names:
        return
    log_names = store.names(f"{uri}/{LOG}")
    other_names = [name for name in names if name != LOG]
    other_names += [f"{LOG}/{name}" for name in log_names if not _is_left_over(store, f"{uri}/{LOG}", name)]
    if other_names:
        shown = ", ".join(sorted(other_names)[:_SHOWN]) + (
            f" and {len(other_names) - _SHOWN} more" if other_names[_SHOWN:] else ""
        )
        raise TableChanged(
            f"its folder {uri} holds files, but no Delta table: there is no commit in {LOG}, and there is {shown}",
            where=table,
            hint="nothing was changed. If these files were a table, put its log back; if they are something else, move "
            "them away, or give the table another name",
        )
    if not isinstance(store, LocalStore):
        _refuse_recent_files(store, uri, table)
    for name in log_names:
        path = f"{uri}/{LOG}/{name}"
        if name in _FOLDERS:
            store.delete_empty(path)
        else:
            store.delete(path)
    store.delete_empty(f"{uri}/{LOG}")


def _is_left_over(store: Store, folder: str, name: str) -> bool:
    if name in _FOLDERS:
        return not store.names(f"{folder}/{name}")
    return _UNFINISHED.fullmatch(name) is not None


def _refuse_recent_files(store: Store, uri: str, table: str) -> None:
    """HDFS writes a commit under a temporary name and renames it. Removing it in between makes that writer fail."""
    threshold_ms = time.time() * 1000 - _MAY_BE_RENAMED_MS
    recent = [name for name, file in store.listing(f"{uri}/{LOG}").items() if file.modified_ms > threshold_ms]
    if any(name.endswith(".tmp") for name in recent):
        raise Conflict(
            f"another process is creating it, or died while it did so: {uri}/{LOG}/{min(recent)} is less than "
            f"{_MAY_BE_RENAMED_MS // 1000} s old",
            where=table,
            hint="nothing was changed. It is tried again: what a process that died has left is removed then",
        )


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
) -> LedgerHead:
    """Creates the table in one commit with its entry: batch 0 of its first generation, at an explicit position. An
    existing Delta table is taken over: only the entry is committed to it."""
    versions = log.versions()
    if versions:  # the number of a commit has to grow, even if the entries of earlier commits are gone
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
        append_entry(spark, uri, entry)
    else:
        columns = {"partition_by": partition_by, "cluster_by": cluster_by}
        try:
            create_table(spark, log, uri, schema, properties, metadata=dump(entry), **columns)
        except PenstockError:
            raise
        except Exception as error:
            if not log.versions():
                raise
            raise Conflict("another process created the table at the same time", where=table) from error
    head = read_head(log)
    if head is None or head.entry.ledger != entry.ledger:
        raise ChainBroken("the table was created, but its log does not hold our entry", where=table)
    return head
