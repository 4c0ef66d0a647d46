"""Removes names from the log of a table: commits are rewritten without them, files that only speed up reading are
deleted.

Names are in the statistics of columns that hold names undeclared or were declared later, in partition folders, and in
what others wrote into a commit. The ledger is kept intact: an entry has no names.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.erasure.files import delete_file
from penstock.erasure.log_redaction import LogNames, contains_name, redact_commit
from penstock.erasure.rewrite import Rewrite, checkpoint
from penstock.maintenance.vacuum import within
from penstock.spark.jvm import hadoop_conf, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.erasure.search import KnownTable, LakeSearch
    from penstock.storage.stores import Store, StoredFile

_COMMIT = re.compile(r"\d{20}\.json")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint.*|_sidecars/.*\.parquet")
_CLASSIC = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.\d{10})?\.parquet")
_ATTEMPT = re.compile(r"\.+(\d{20})\.(?:json|crc|checkpoint.*?)\..+\.tmp(?:\.crc)?")
_TEMPORARY = ".forget-"


@dataclass(frozen=True)
class LogSearchResult:
    files: int = 0
    """Files that were read."""
    files_with_names: tuple[str, ...] = ()
    """Files that contain a name."""
    rewritten: int = 0
    removed: int = 0


def log_search(spark: SparkSession, search: LakeSearch, store: Store, table: KnownTable) -> LogNames:
    """What to search for in the log of a table in its current state."""
    listing = store.listing(table.uri)
    files = Rewrite(spark.newSession(), table.uri).files
    return LogNames(
        search.name_searches,
        frozenset(column.partition(".")[0] for columns in table.numbers.values() for column in columns),
        frozenset(within(name, table.uri) for name in files),
        frozenset(name for name in listing if not name.startswith("_delta_log/")),
        frozenset(search.others),
        search.excepted_in(table),
    )


def search_log(
    search: LakeSearch, store: Store, table: KnownTable, sought: LogNames, *, outdated: bool = False
) -> LogSearchResult:
    """Finds the log files with names. With `outdated`, an old checkpoint counts if the name, or a number with the same
    digits, is in its statistics at all: it has the statistics of files that are in no version any more."""
    log_files = _log_files(store, table)
    searched = search.search_files(
        {f"{table.uri}/_delta_log/{name}": file for name, file in log_files.items() if name.endswith(".parquet")}
    )
    with_names = []
    for name in log_files:
        file_seen = searched.get(f"{table.uri}/_delta_log/{name}")
        if file_seen is not None:
            version = _checkpoint_version(name)
            is_outdated = outdated and version is not None and f"{version + 1:020d}.json" in log_files
            has_name = any(
                search.holds(table, hit, log=True) or (is_outdated and search.in_bounds(hit)) for hit in file_seen.hits
            )
        else:
            has_name = _text_has_name(store.read(f"{table.uri}/_delta_log/{name}"), sought)
        if has_name:
            with_names.append(name)
    return LogSearchResult(len(log_files), tuple(with_names))


def clean_log(
    spark: SparkSession, search: LakeSearch, store: Store, table: KnownTable, sought: LogNames
) -> LogSearchResult:
    """Removes names while batches of the table run: they add to the log and read only its end. After a kill it is
    simply run again: each file is complete at every moment."""
    folder = f"{table.uri}/_delta_log"
    remove_attempts(store, table)
    result = search_log(search, store, table, sought, outdated=True)
    rewritten = removed = 0
    checkpoint_files: Collection[str] = ()
    if any(_COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name) for name in result.files_with_names):
        # This comes first: readers start at the checkpoint and skip the commits before it. While those are being
        # rewritten, one may name a file differently from the next one, which removes it.
        checkpoint_files = _write_clean_checkpoint(spark, search, store, table, sought)
    for name in result.files_with_names:
        if not _COMMIT.fullmatch(name) and name != "_last_checkpoint" and name not in checkpoint_files:
            delete_file(store, folder, name)
            removed += 1
    for name in result.files_with_names:
        if _COMMIT.fullmatch(name):
            # A commit that was deleted meanwhile stays deleted.
            cleaned = redact_commit(store.read(f"{folder}/{name}") or "", sought)
            if cleaned is not None:
                _replace(store, f"{folder}/{name}", cleaned)
                rewritten += 1
    return replace(result, rewritten=rewritten, removed=removed)


def remove_attempts(store: Store, table: KnownTable, *, alone: bool = False) -> None:
    """Deletes temporary files of processes that were killed while writing. Nothing writes an existing version any more;
    another process may be writing the next one, unless we are `alone`."""
    folder = f"{table.uri}/_delta_log"
    names = store.names(folder)
    newest = max((int(name[:20]) for name in names if _COMMIT.fullmatch(name)), default=-1)
    for name in names:
        attempt = _ATTEMPT.fullmatch(name)
        if name.startswith(_TEMPORARY) or (attempt is not None and (alone or int(attempt[1]) <= newest)):
            store.delete(f"{folder}/{name}")


def _write_clean_checkpoint(
    spark: SparkSession, search: LakeSearch, store: Store, table: KnownTable, sought: LogNames
) -> Collection[str]:
    """Writes a new checkpoint and returns its files. For a week a checkpoint lists removed files with their partition
    folders; if those have a name, the entries of files that no longer exist are dropped: nothing needs them."""
    folder = f"{table.uri}/_delta_log"
    before = _log_files(store, table)
    version = checkpoint(spark.newSession(), table.uri)
    after = _log_files(store, table)
    checkpoint_files = [
        name
        for name in after
        if _CHECKPOINT.fullmatch(name) and (after[name] != before.get(name) or _checkpoint_version(name) == version)
    ]
    searched = search.search_files(
        {f"{folder}/{name}": after[name] for name in checkpoint_files if name.endswith(".parquet")}
    )
    for path, file_seen in searched.items():
        if any(search.holds(table, hit, log=True) for hit in file_seen.hits):
            _drop_missing_files(spark, store, path, sought.existing_files)
    return checkpoint_files


def _checkpoint_version(name: str) -> int | None:
    checkpoint_name = _CLASSIC.fullmatch(name)
    return None if checkpoint_name is None else int(checkpoint_name[1])


def _drop_missing_files(spark: SparkSession, store: Store, path: str, existing: Collection[str]) -> None:
    """Rewrites a checkpoint file without the entries of removed files that no longer exist."""
    session = spark.newSession()
    rows = session.read.parquet(path)
    if "remove" not in rows.columns:
        return
    removed = rows.where("remove IS NOT NULL").select("remove.path").toLocalIterator()
    missing = [(row[0],) for row in removed if unquote(row[0]) not in existing]
    names = session.createDataFrame(missing, "gone STRING")
    remaining = rows.join(names, rows["remove"]["path"] == names["gone"], "left_anti")
    folder, _, name = path.rpartition("/")
    temporary = f"{folder.removesuffix('/_sidecars')}/{_TEMPORARY}{uuid.uuid4().hex}"
    remaining.coalesce(1).write.parquet(temporary)
    (rewritten,) = (f"{temporary}/{part}" for part in store.names(temporary) if part.startswith("part-"))
    if "://" in path:
        _copy_object(spark, rewritten, path)
    else:
        (Path(folder) / f".{name}.crc").unlink(missing_ok=True)
        Path(rewritten).replace(path)
    store.delete(temporary)


def _copy_object(spark: SparkSession, written: str, path: str) -> None:
    """For object stores, which replace an object as a whole."""
    jvm = jvm_of(spark)
    settings = hadoop_conf(spark)
    source, target = jvm.org.apache.hadoop.fs.Path(written), jvm.org.apache.hadoop.fs.Path(path)
    files = source.getFileSystem(settings)
    jvm.org.apache.hadoop.fs.FileUtil.copy(files, source, files, target, False, True, settings)


def _log_files(store: Store, table: KnownTable) -> dict[str, StoredFile]:
    listing = sorted(store.listing(f"{table.uri}/_delta_log").items())
    return {name: file for name, file in listing if not any(part.startswith(".") for part in name.split("/"))}


def _text_has_name(text: str | None, sought: LogNames) -> bool:
    if not text:
        return False
    try:
        return contains_name(text, sought)
    except ValueError:  # not JSON: a name in it counts all the same
        return any(needle.in_text(text) for needle in sought.name_searches if needle.is_unambiguous)


def _replace(store: Store, path: str, text: str) -> None:
    """Keeps the file's times: without times in the log, Delta uses those of the files."""
    local = Path(path) if "://" not in path else None
    times = local.stat() if local is not None else None
    store.write(path, text)
    if local is not None and times is not None:
        os.utime(local, ns=(times.st_atime_ns, times.st_mtime_ns))
