"""Names in the log of a table: commits are written anew without them, what only helps to read faster is deleted.

Statistics have them, of before the project said that the column holds names; and so can what others wrote into a
commit. The ledger stays whole: an entry has no names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.engine.forget.needle import Needle
from penstock.engine.forget.rewrite import checkpoint
from penstock.engine.forget.scrub import Sought, names_left, scrubbed, statistics_hold
from penstock.engine.store import Store
from penstock.engine.upkeep.places import Place
from penstock.ops.forget.asked import Name
from penstock.ops.forget.files import delete_file
from penstock.plan.subjects import Subjects

_COMMIT = re.compile(r"\d{20}\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint.*\.parquet|_sidecars/.*\.parquet")


@dataclass(frozen=True)
class LogLooked:
    place: str
    files: int = 0
    """That were read."""
    held: tuple[str, ...] = ()
    """Those that have a name."""
    rewritten: int = 0
    removed: int = 0


def sought_in(asked: Sequence[Name], subjects: Subjects) -> Sought:
    mine = [name for name in asked if name.subject in subjects]
    columns = frozenset(place.top.casefold() for places in subjects.values() for place in places)
    return Sought(tuple(Needle(one.subject, one.value) for one in mine), tuple(one.value for one in mine), columns)


def look_into_log(spark: SparkSession, store: Store, place: Place, sought: Sought) -> LogLooked:
    files = list(_log_files(store, place))
    return LogLooked(place.name, len(files), tuple(n for n in files if _holds(spark, store, place, n, sought)))


def scrub_log(spark: SparkSession, store: Store, place: Place, sought: Sought) -> LogLooked:
    """Beside the table's batches: they add to the log, and read only its end. Killed anywhere, it is done again: each
    file is whole at every moment."""
    looked = look_into_log(spark, store, place, sought)
    rewritten = removed = 0
    if any(_CHECKPOINT.fullmatch(name) for name in looked.held):
        checkpoint(spark.newSession(), place.uri)  # before the ones that go: readers begin there
    for name in looked.held:
        path = f"{place.uri}/_delta_log/{name}"
        if _COMMIT.fullmatch(name):
            made = scrubbed(store.read(path) or "", sought)  # gone meanwhile, it stays so
            if made is not None:
                _replace(store, path, made)
                rewritten += 1
        elif name != "_last_checkpoint":
            delete_file(store, f"{place.uri}/_delta_log", name)
            removed += 1
    return LogLooked(place.name, looked.files, looked.held, rewritten, removed)


def _log_files(store: Store, place: Place) -> Iterator[str]:
    for name in sorted(store.listing(f"{place.uri}/_delta_log")):
        if not name.rpartition("/")[2].startswith("."):
            yield name


def _holds(spark: SparkSession, store: Store, place: Place, name: str, sought: Sought) -> bool:
    path = f"{place.uri}/_delta_log/{name}"
    if name.endswith(".parquet"):
        return any(statistics_hold(stats, sought) for stats in _statistics(spark, path))
    text = store.read(path)
    if not text:
        return False
    try:
        return names_left(text, sought)
    except ValueError:  # no JSON: whatever it is, a name in it counts
        return any(one.in_text(text) for one in sought.needles if one.telling)


def _statistics(spark: SparkSession, path: str) -> Iterator[str]:
    """All that a checkpoint says of least and greatest values, as JSON."""
    rows = spark.read.parquet(path)
    found = []
    for action in ("add", "remove"):
        kind = rows.schema[action].dataType if action in rows.columns else None
        if isinstance(kind, StructType):
            if "stats" in kind.names:
                found.append(rows.select(F.col(f"{action}.stats").alias("stats")))
            if "stats_parsed" in kind.names:
                found.append(rows.select(F.to_json(f"{action}.stats_parsed").alias("stats")))
    for one in found:
        for row in one.where("stats IS NOT NULL").toLocalIterator():
            yield str(row[0])


def _replace(store: Store, path: str, text: str) -> None:
    """Its time stays: without times in the log, Delta goes by those of the files."""
    local = Path(path) if "://" not in path else None
    was = local.stat() if local is not None else None
    store.write(path, text)
    if local is not None and was is not None:
        os.utime(local, ns=(was.st_atime_ns, was.st_mtime_ns))
