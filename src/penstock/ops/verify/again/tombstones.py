"""The tombstones of a merged table against the deletes of its source.

A tombstone that is missing would let a late change bring its row back; one that no delete has made would keep out
changes that are still to come.
"""

from __future__ import annotations

import time
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.engine.identifiers import quote
from penstock.engine.protocol.entry import Entry
from penstock.engine.schema import sql_type
from penstock.engine.stages.coordinates import SOURCE
from penstock.ops.verify.again.around import Around, Comparison, answer
from penstock.ops.verify.again.content import Content
from penstock.ops.verify.again.held import Held
from penstock.ops.verify.again.kinds import shown
from penstock.ops.verify.again.sample import Sample, hashable
from penstock.ops.verify.check import COLLECTED, Check, Differing, Kind
from penstock.plan.quarantine import tombstones_of
from penstock.plan.stages import MergePlan
from penstock.spec.merge import OWN

_SEQUENCE, _DELETED = OWN[:2]


def check_tombstones(around: Around, content: Content, changes: DataFrame, sample: Sample) -> Check | None:
    """`changes` are those of the source: their keys, `s` and `p`, their place in the order, `dead`: whether each
    deletes, and `all`: whether it is about every row. None where no tombstone decides anything: the newest extract
    does."""
    merge, entry = around.table.write.merge, content.entry
    assert merge is not None
    if merge.snapshot is not None or entry is None or not merge.deletes:
        return None
    check = around.begun("tombstones", "the deletes of its source", "tombstones")
    check.held = tombstones_of(around.table.name, around.table.uri).table
    tombstones = _tombstones(around, entry, merge)
    kinds = {field.name: sql_type(field.dataType) for field in tombstones.schema.fields}
    columns = [F.col(quote(name)).cast(kinds[name]).alias(name) for name in (*merge.keys, "s", "p")]
    changes = changes.select(*columns, "dead", "all")
    if not around.table.input.stable:  # read again, a change has another place
        nowhere = F.lit(None).cast(kinds["p"])
        changes, tombstones = changes.withColumn("p", nowhere), tombstones.withColumn("p", nowhere).distinct()
    changes = _sampled(changes, merge, sample)
    tombstones = _sampled(tombstones, merge, sample)
    found = _named("extra", _strays(tombstones, changes, merge), merge)
    if lacks_old_ones(around, merge):
        check.remarks.append("deletes whose tombstone `keep_deleted` may have removed were not looked for")
    else:
        found += _named("missing", _missing(tombstones, changes, merge), merge)
    compared = tombstones.count() + sum(one.kind == "missing" for one in found)
    check.of = compared
    held = Held(compared, len(found), 0, 0, tuple(found[:COLLECTED]))
    return answer(around, check, Comparison(held, sample), replace(content, excuses=list(content.excuses)), [])


def _tombstones(around: Around, entry: Entry, merge: MergePlan) -> DataFrame:
    """Of the batches up to the entry: those of a batch that is being written are there before its rows."""
    uri = tombstones_of(around.table.name, around.table.uri).uri
    columns = [*(f"{quote(key)} AS {quote(key)}" for key in merge.keys), f"{_SEQUENCE} AS s", f"{SOURCE} AS p"]
    among_rows = around.there().where(_DELETED).selectExpr(*columns)  # as tables made before have them
    if not around.store.names(f"{uri}/_delta_log"):
        return among_rows.distinct()
    until = f"generation < {entry.generation} OR (generation = {entry.generation} AND batch <= {entry.batch})"
    beside = around.spark.read.format("delta").load(uri).where(until).selectExpr(*columns)
    return beside.unionByName(among_rows).distinct()


def _sampled(rows: DataFrame, merge: MergePlan, sample: Sample) -> DataFrame:
    if sample.whole:
        return rows
    hashed = [hashable(quote(key), rows.schema[key].dataType.simpleString()) or "NULL" for key in merge.keys]
    return rows.where(f"{sample.condition(hashed)}{' OR all' if 'all' in rows.columns else ''}")


def lacks_old_ones(around: Around, merge: MergePlan) -> bool:
    """The table is there for longer than a tombstone is kept."""
    if merge.keep_deleted_ms is None or not merge.deletes:
        return False
    detail = around.spark.sql(f"DESCRIBE DETAIL delta.{quote(around.table.uri)}")
    made = detail.selectExpr("unix_millis(createdAt) AS at").first()
    assert made is not None
    return bool(made["at"] is None or made["at"] <= time.time() * 1000 - merge.keep_deleted_ms)


def _strays(tombstones: DataFrame, changes: DataFrame, merge: MergePlan) -> DataFrame:
    """Those that neither a delete of the source has made nor a truncate."""
    place = "t.s <=> c.s AND t.p <=> c.p"
    deletes, truncates = changes.where("dead AND NOT all"), changes.where("all")
    left = tombstones.alias("t").join(deletes.alias("c"), F.expr(f"{_same(merge)} AND {place}"), "left_anti")
    if merge.truncate is None:
        return left
    return left.alias("t").join(truncates.alias("c"), F.expr(place), "left_anti")


def _missing(tombstones: DataFrame, changes: DataFrame, merge: MergePlan) -> DataFrame:
    """Deletes that decide, since the last truncate, what a key is, or of a history what a version is. Of two changes
    that claim the same place it is open which of them does."""
    if merge.truncate is not None:
        last = changes.where("all").agg(F.expr("max(struct(s, p))").alias("last"))
        changes = changes.crossJoin(F.broadcast(last)).where("last IS NULL OR struct(s, p) > last").drop("last")
    alone = changes.where("NOT all")
    groups = [*map(quote, merge.keys), *(["s"] if merge.history == "scd2" else [])]
    window = f"(PARTITION BY {', '.join(groups)} ORDER BY s DESC, p DESC)"
    newest = alone.selectExpr("*", f"rank() OVER {window} AS rank").where("rank = 1")
    decided = newest.groupBy(*map(quote, merge.keys), "s", "p").agg(F.expr("bool_and(dead)").alias("dead"))
    same = F.expr(f"{_same(merge)} AND t.s <=> c.s AND t.p <=> c.p")
    return decided.where("dead").alias("t").join(tombstones.alias("c"), same, "left_anti")


def _same(merge: MergePlan) -> str:
    return " AND ".join(f"t.{quote(key)} <=> c.{quote(key)}" for key in merge.keys)


def _named(kind: Kind, rows: DataFrame, merge: MergePlan) -> list[Differing]:
    names = [*merge.keys, "s"]
    texts = [f"{shown(quote(name), rows.schema[name].dataType)} AS k{n}" for n, name in enumerate(names)]
    told = [*merge.keys, _SEQUENCE]
    found = rows.select(*map(quote, names)).distinct().limit(COLLECTED).selectExpr(*texts).collect()
    return [Differing(kind, {name: row[f"k{n}"] for n, name in enumerate(told)}) for row in found]
