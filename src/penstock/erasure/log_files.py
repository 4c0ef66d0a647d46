"""Names in the log of a table: commits are written anew without them, what only helps to read faster is deleted.

Statistics have them, of columns that hold names without being declared, and from before the project said so; so have
the folders of partitions, and what others wrote into a commit. The ledger stays whole: an entry has no names.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from penstock.erasure.files import delete_file
from penstock.erasure.log_redaction import Sought, names_left, scrubbed
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
class LogLooked:
    place: str
    files: int = 0
    """That were read."""
    held: tuple[str, ...] = ()
    """Those that have a name."""
    rewritten: int = 0
    removed: int = 0


def sought_in(spark: SparkSession, search: LakeSearch, store: Store, known: KnownTable) -> Sought:
    """Who is looked for in the log of a table as it is now."""
    listed = store.listing(known.uri)
    files = Rewrite(spark.newSession(), known.uri).files
    return Sought(
        search.needles,
        frozenset(column.partition(".")[0] for columns in known.numbers.values() for column in columns),
        frozenset(within(name, known.uri) for name in files),
        frozenset(name for name in listed if not name.startswith("_delta_log/")),
        frozenset(search.others),
        search.excepted_in(known),
    )


def look_into_log(
    search: LakeSearch, store: Store, known: KnownTable, sought: Sought, *, outdated: bool = False
) -> LogLooked:
    """With `outdated`, old checkpoints count if the name, or a number with the same digits, is in statistics in any
    way: they have those of files that no version has any more."""
    listed = dict(_log_files(store, known))
    found = search.look(
        {f"{known.uri}/_delta_log/{name}": about for name, about in listed.items() if name.endswith(".parquet")}
    )
    held = []
    for name in listed:
        one = found.get(f"{known.uri}/_delta_log/{name}")
        if one is not None:
            old = outdated and _is_old(name, listed)
            hit = any(search.holds(known, seen, log=True) or (old and search.in_bounds(seen)) for seen in one.seen)
        else:
            hit = _text_holds(store.read(f"{known.uri}/_delta_log/{name}"), sought)
        if hit:
            held.append(name)
    return LogLooked(known.name, len(listed), tuple(held))


def scrub_log(spark: SparkSession, search: LakeSearch, store: Store, known: KnownTable, sought: Sought) -> LogLooked:
    """Beside the table's batches: they add to the log, and read only its end. Killed anywhere, it is done again: each
    file is whole at every moment."""
    folder = f"{known.uri}/_delta_log"
    remove_attempts(store, known)
    looked = look_into_log(search, store, known, sought, outdated=True)
    rewritten = removed = 0
    kept: Collection[str] = ()
    if any(_COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name) for name in looked.held):
        # First of all: readers begin there, and do not look at the commits before it. While these are written anew,
        # one may call a file by another name than the next one, which takes it away.
        kept = _checkpoint_without(spark, search, store, known, sought)
    for name in looked.held:
        if not _COMMIT.fullmatch(name) and name != "_last_checkpoint" and name not in kept:
            delete_file(store, folder, name)
            removed += 1
    for name in looked.held:
        if _COMMIT.fullmatch(name):
            made = scrubbed(store.read(f"{folder}/{name}") or "", sought)  # gone meanwhile, it stays so
            if made is not None:
                _replace(store, f"{folder}/{name}", made)
                rewritten += 1
    return LogLooked(known.name, looked.files, looked.held, rewritten, removed)


def remove_attempts(store: Store, known: KnownTable, *, alone: bool = False) -> None:
    """What is left of processes that were killed as they wrote. Of a version that is there nobody writes any more; of
    the next one another process may, unless we are `alone`."""
    folder = f"{known.uri}/_delta_log"
    names = store.names(folder)
    newest = max((int(name[:20]) for name in names if _COMMIT.fullmatch(name)), default=-1)
    for name in names:
        attempt = _ATTEMPT.fullmatch(name)
        if name.startswith(_TEMPORARY) or (attempt is not None and (alone or int(attempt[1]) <= newest)):
            store.delete(f"{folder}/{name}")


def _checkpoint_without(
    spark: SparkSession, search: LakeSearch, store: Store, known: KnownTable, sought: Sought
) -> Collection[str]:
    """A new checkpoint, of which these are the files. Files that are gone are in it as removed for a week, with the
    folder of their partition: that they were there is of no use to anybody."""
    folder = f"{known.uri}/_delta_log"
    before = dict(_log_files(store, known))
    version = checkpoint(spark.newSession(), known.uri)
    after = dict(_log_files(store, known))
    mine = [
        name
        for name in after
        if _CHECKPOINT.fullmatch(name)
        and (name not in before or after[name] != before[name] or _is_classic(name, version))
    ]
    found = search.look({f"{folder}/{name}": after[name] for name in mine if name.endswith(".parquet")})
    for path, one in found.items():
        if any(search.holds(known, seen, log=True) for seen in one.seen):
            _without_removed(spark, store, path, sought.there)
    return mine


def _is_old(name: str, listed: Collection[str]) -> bool:
    """Of a checkpoint: there are commits after it."""
    found = _CLASSIC.fullmatch(name)
    return found is not None and f"{int(found[1]) + 1:020d}.json" in listed


def _is_classic(name: str, version: int) -> bool:
    found = _CLASSIC.fullmatch(name)
    return found is not None and int(found[1]) == version


def _without_removed(spark: SparkSession, store: Store, path: str, there: Collection[str]) -> None:
    """The same file of a checkpoint without what it says of files that are gone."""
    session = spark.newSession()
    rows = session.read.parquet(path)
    if "remove" not in rows.columns:
        return
    removed = rows.where("remove IS NOT NULL").select("remove.path").toLocalIterator()
    gone = [(row[0],) for row in removed if unquote(row[0]) not in there]
    names = session.createDataFrame(gone, "gone STRING")
    kept = rows.join(names, rows["remove"]["path"] == names["gone"], "left_anti")
    folder, _, name = path.rpartition("/")
    temporary = f"{folder.removesuffix('/_sidecars')}/{_TEMPORARY}{uuid.uuid4().hex}"
    kept.coalesce(1).write.parquet(temporary)
    (made,) = (f"{temporary}/{one}" for one in store.names(temporary) if one.startswith("part-"))
    if "://" in path:
        _copy(spark, made, path)
    else:
        (Path(folder) / f".{name}.crc").unlink(missing_ok=True)
        Path(made).replace(path)
    store.delete(temporary)


def _copy(spark: SparkSession, made: str, path: str) -> None:
    """On an object store, where the object is replaced as a whole."""
    jvm = jvm_of(spark)
    settings = hadoop_conf(spark)
    source, target = jvm.org.apache.hadoop.fs.Path(made), jvm.org.apache.hadoop.fs.Path(path)
    files = source.getFileSystem(settings)
    jvm.org.apache.hadoop.fs.FileUtil.copy(files, source, files, target, False, True, settings)


def _log_files(store: Store, known: KnownTable) -> Iterator[tuple[str, StoredFile]]:
    for name, about in sorted(store.listing(f"{known.uri}/_delta_log").items()):
        if not any(part.startswith(".") for part in name.split("/")):
            yield name, about


def _text_holds(text: str | None, sought: Sought) -> bool:
    if not text:
        return False
    try:
        return names_left(text, sought)
    except ValueError:  # no JSON: whatever it is, a name in it counts
        return any(one.in_text(text) for one in sought.needles if one.telling)


def _replace(store: Store, path: str, text: str) -> None:
    """Its time stays: without times in the log, Delta goes by those of the files."""
    local = Path(path) if "://" not in path else None
    was = local.stat() if local is not None else None
    store.write(path, text)
    if local is not None and was is not None:
        os.utime(local, ns=(was.st_atime_ns, was.st_mtime_ns))
