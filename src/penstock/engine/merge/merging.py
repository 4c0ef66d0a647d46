"""The rows of a batch merged into the table: one look at the files that can hold their keys, one write, one commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.engine.identifiers import quote
from penstock.engine.merge import scd1, scd2
from penstock.engine.merge.changes import CONTENT, changes, content, schema
from penstock.engine.merge.exchange import Exchange
from penstock.engine.merge.ranges import narrower, widest
from penstock.engine.merge.tombstones import DELETED, DELETED_AT, SEQUENCE
from penstock.engine.merge.turned import COUNTS, INSERTED, SUPERSEDED, TIES, UPDATED, by_file, coming
from penstock.engine.merge.turned import DELETED as DELETES
from penstock.engine.protocol.commit import carrying
from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.fates import CONFLICTS
from penstock.engine.stages.coordinates import SOURCE
from penstock.errors import TableChanged
from penstock.plan.merge import PROPERTY, merged_by
from penstock.plan.model import TablePlan
from penstock.spec.merge import VALID

SCANNED, FILES = "scanned", "files"
_FEW = 200_000
"""So many changes are sent to every task that reads the table; with more of them Spark decides."""
_MANY_FILES = 8
"""With more files to read than these, it is worth a job to bound the keys more closely."""


class Merging:
    """Of one table. `done` lets go of what was kept for a batch."""

    def __init__(self, table: TablePlan) -> None:
        assert table.write.merge is not None
        self._table, self._plan = table, table.write.merge
        self._history = scd1 if self._plan.history == "scd1" else scd2
        self._kept: list[DataFrame] = []

    def schema(self, rows: DataFrame) -> StructType:
        return schema(rows, self._plan, self._table.write.partition_by, self._table.name)

    def write(self, rows: DataFrame, entry: Entry, uri: str, *, files: int, idempotent: bool) -> None:
        session, keys = rows.sparkSession, self._plan.keys
        with carrying(session, entry, idempotent=idempotent):
            exchange = Exchange(session, uri)
            self._refuse_another(exchange.setting(PROPERTY))
            if exchange.done:
                return
            made = changes(rows, self._plan, self._table.write.partition_by, entry.pins.time_ms, self._table.name)
            values = self._values(made.columns)
            found = _with_all_columns(made, exchange.schema)
            if files == 1:  # one task: the changes of a key are together without a shuffle
                found = found.coalesce(1)
            ranked = self._keep(self._history.ranked(found, keys))
            about = _about(ranked, keys)
            newest = ranked.where(f"{scd1.RANK} = 1")
            few = int(about.getLong(0)) <= _FEW
            scanned = self._look(exchange, newest, about)
            there = _with_keys(exchange.rows(), newest, keys, few=few)
            turned = self._keep(self._turned(newest, there, found, feed=exchange.feeds, few=few))
            counted = exchange.find(by_file(turned), COUNTS)
            conflicts = int(about.getLong(1))
            if counted[TIES]:
                conflicts += self._contradicting(exchange.rows(), newest, values, few=few)
        counted[SUPERSEDED] += int(about.getLong(0)) - sum(counted[kind] for kind in COUNTS if kind != TIES)
        changed = {**counted, CONFLICTS: conflicts, SCANNED: scanned, FILES: exchange.files}
        del changed[TIES]
        feed = exchange.feeds and exchange.goes
        with carrying(session, replace(entry, changed=changed), idempotent=idempotent):
            exchange.commit(coming(turned, feed=feed).coalesce(files), _told(changed))

    def done(self) -> None:
        kept, self._kept = self._kept, []
        for frame in kept:
            frame.unpersist()

    def _refuse_another(self, was: str | None) -> None:
        now = merged_by(self._plan)
        if was != now:
            raise TableChanged(
                f"the table was merged {was}, its definition merges {now}"
                if was
                else "the table was not made by merges",
                where=self._table.name,
                hint="write it as it was, or make a table of another name: these rows cannot be told apart so",
            )

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    def _look(self, exchange: Exchange, newest: DataFrame, about: Any) -> int:
        """How many files are read for the keys."""
        bounds = about.getStruct(2) if about.size() > 2 else None
        scanned = exchange.look(bounds)
        if scanned > _MANY_FILES and (closer := narrower(newest, self._plan.keys[0])) is not None:
            scanned = exchange.look_closer(closer._jdf.first())
        return scanned

    def _turned(self, newest: DataFrame, there: DataFrame, found: DataFrame, *, feed: bool, few: bool) -> DataFrame:
        columns = [name for name in found.columns if name != CONTENT]
        if self._plan.history == "scd1":
            return scd1.turned(newest, there, self._plan.keys, columns, feed=feed, few=few)
        return scd2.turned(newest, there, self._plan.keys, columns, feed=feed)

    def _values(self, columns: list[str]) -> list[str]:
        own = {*self._plan.keys, SEQUENCE, DELETED, DELETED_AT, SOURCE, CONTENT}
        if self._plan.history == "scd2":
            own |= {*VALID}
        return [name for name in columns if name not in own]

    def _contradicting(self, there: DataFrame, newest: DataFrame, values: list[str], *, few: bool) -> int:
        """Changes with the sequence that the table has for their key, but another content. Rare: so only then the
        contents are read."""
        keys = self._plan.keys
        said = there.selectExpr(
            *(f"{quote(key)} AS `__k{index}`" for index, key in enumerate(keys)),
            f"{SEQUENCE} AS __s",
            f"{content(there.schema, values)} AS __said",
        )
        equal = [f"new.{quote(key)} = old.`__k{index}`" for index, key in enumerate(keys)]
        other = [*equal, f"new.{SEQUENCE} = old.__s", f"new.{CONTENT} <> old.__said"]
        new = (F.broadcast(newest) if few else newest).alias("new")
        return said.alias("old").join(new, F.expr(" AND ".join(other))).count()


def _with_all_columns(made: DataFrame, table: StructType) -> DataFrame:
    """Columns that the definition no longer makes are NULL in what is new; rows that are written again keep theirs."""
    there = {name.casefold() for name in made.columns}
    gone = [field for field in table.fields if field.name.casefold() not in there]
    return made.select("*", *(F.lit(None).cast(field.dataType).alias(field.name) for field in gone))


def _about(ranked: DataFrame, keys: tuple[str, ...]) -> Any:
    """Of all changes of the batch, by one job: how many, how many contradicted, the ranges of their keys."""
    ranges = widest(ranked.schema, keys)
    asked = ["count(*)", f"count_if({scd1.CONTRADICTED})"]
    parts = ranked.selectExpr(*asked, *ranges)
    named = ", ".join(quote(key) for key in parts.columns[2:])
    return parts.selectExpr(*map(quote, parts.columns[:2]), *([f"struct({named})"] if named else []))._jdf.first()


def _with_keys(there: DataFrame, newest: DataFrame, keys: tuple[str, ...], *, few: bool) -> DataFrame:
    """The rows of the table that have a key of the changes."""
    wanted = newest.select(*map(quote, keys)).alias("new")
    equal = " AND ".join(f"old.{quote(key)} = new.{quote(key)}" for key in keys)
    return there.alias("old").join(F.broadcast(wanted) if few else wanted, F.expr(equal), "left_semi")


def _told(changed: Mapping[str, int]) -> dict[str, int]:
    return {
        "numTargetRowsInserted": changed[INSERTED],
        "numTargetRowsUpdated": changed[UPDATED] + changed[DELETES],
        "numTargetRowsDeleted": 0,
        "numTargetRowsCopied": 0,
        "operationNumSourceRows": sum(changed[kind] for kind in COUNTS if kind != TIES),
    }
