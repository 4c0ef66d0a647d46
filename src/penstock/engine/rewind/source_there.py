"""Whether a source still has all that a table would read again after it went back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import unquote

from pyspark.sql import SparkSession

from penstock.engine.covered import Asked
from penstock.engine.delta.version import Version, parse
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.ledger import read_tail
from penstock.engine.protocol.log import DeltaLog
from penstock.engine.replay.fill import Work
from penstock.engine.rewind.goes_on import GoesOn
from penstock.engine.store import Store
from penstock.errors import DataLoss, PenstockError, Terminal
from penstock.plan.files import FilesSource
from penstock.plan.model import DeltaSource
from penstock.plan.readers import how_it_reads


def refuse_gone(work: Work, now: Entry, on: GoesOn) -> None:
    """Terminal where rows would be lost, because they could not be read again."""
    instead = f"`penstock replay {work.table.name}` makes it anew with what there is"
    try:
        work.source.refuse_lost(replace(now, after=on.after, topics=on.topics))
    except DataLoss as error:
        raise Terminal(
            f"its source no longer has all that it would read again: {error.message}",
            where=work.table.name,
            hint=instead,
        ) from None
    source = work.table.source
    if isinstance(source, FilesSource):
        asked = Asked(now.after, on.after, now.topics)
        gone: tuple[str, ...] = work.source.covered(work.spark, asked).gone
        what = "files that it would read again"
    elif isinstance(source, DeltaSource):
        _refuse_exchanged(work, source, parse(on.after[0]), instead)
        gone = tuple(_missing(work.spark, work.store, source, parse(on.after[0])))
        what = f"files of {source.table or source.uri} that it would read again"
    else:
        return
    if gone:
        raise Terminal(f"{what} are no longer there: {gone[0]} …", where=work.table.name, hint=instead)


def _refuse_exchanged(work: Work, source: DeltaSource, at: Version, instead: str) -> None:
    """All rows of the table upstream were exchanged since: a stream from there would read those of before."""
    if source.table is None or how_it_reads(work.table) in ("follows", "recomputed"):
        return
    try:
        upstream = read_tail(DeltaLog(work.store, source.uri, source.table))
    except PenstockError:
        return  # that it cannot be read is said where it is
    if upstream is not None and upstream.filled is not None and upstream.filled[1] > at.read_up_to:
        raise Terminal(
            f"{source.table} was made anew, or went back, in version {upstream.filled[1]}, and {work.table.name} had "
            f"read it up to version {at.read_up_to} then: it would read rows that are no longer there",
            where=work.table.name,
            hint=instead,
        )


def _missing(spark: SparkSession, store: Store, source: DeltaSource, at: Version) -> Iterator[str]:
    """By their names in the log, of the versions from a position on. The log is read before the folder is listed: a
    batch may be adding files meanwhile."""
    wanted = list(_wanted(spark, store, source, at))
    there = store.listing(source.uri)
    yield from (path for path in wanted if path not in there)


def _wanted(spark: SparkSession, store: Store, source: DeltaSource, at: Version) -> Iterator[str]:
    version = at.version
    if at.snapshot:
        inside = spark.read.format("delta").option("versionAsOf", version).load(source.uri).inputFiles()
        yield from (unquote(str(one)).rpartition(f"{source.uri.rstrip('/').rpartition('/')[2]}/")[2] for one in inside)
        version += 1
    while (text := store.read(f"{source.uri}/_delta_log/{version:020d}.json")) is not None:
        actions = [json.loads(line) for line in text.split("\n") if line]
        changes = any("remove" in one and one["remove"]["dataChange"] for one in actions)
        fed = [one["cdc"] for one in actions if "cdc" in one] if source.changes else []
        if not changes or source.changes:  # a stream of rows steps over commits that change some
            fed = fed or [one["add"] for one in actions if "add" in one and one["add"]["dataChange"]]
            yield from (path for one in fed if "://" not in (path := unquote(one["path"])) and path[:1] != "/")
        version += 1
