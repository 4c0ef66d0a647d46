"""The records in a table's quarantine against those of its source, byte by byte: with --deep. What a redrive lands is
what the quarantine holds."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as F

from penstock.engine.forget.suppression import Suppression
from penstock.engine.stages.coordinates import SOURCE
from penstock.engine.stages.function import StagedTable
from penstock.engine.stages.rejects import FAILED, NOTHING_FAILED, RAW
from penstock.ops.verify.again.around import Around, Comparison, answer
from penstock.ops.verify.again.content import Content
from penstock.ops.verify.again.held import Held
from penstock.ops.verify.again.sample import Sample
from penstock.ops.verify.again.source_rows import changed_upstream, covered_rows, read_files
from penstock.ops.verify.check import COLLECTED, Check, Differing
from penstock.plan.files import FilesSource
from penstock.plan.model import TablePlan
from penstock.plan.quarantine import quarantine_of

_COMPARED = [name for name in RAW if name != "ingestion_timestamp"]
"""When it was read is not the record's own."""


def has_records(table: TablePlan) -> bool:
    """Its quarantine holds records of a topic, or lines of files, each with its coordinates."""
    kept = table.staged and (table.stages is None or table.stages.transform is None or table.write.source)
    stable = table.input.stable and (table.input.origin == "kafka" or isinstance(table.source, FilesSource))
    return table.may_reject and kept and stable and table.aggregate is None and table.stream is None


def check_rejected(around: Around, content: Content) -> list[Check]:
    table, entry = around.table, content.entry
    place = quarantine_of(table.name, table.uri)
    if entry is None or not around.store.names(f"{place.uri}/_delta_log"):
        return []
    check = around.begun("quarantine", "the records of its source", "rows")
    check.held = place.table
    until = f"generation < {entry.generation} OR (generation = {entry.generation} AND batch <= {entry.batch})"
    with around.reading(-1):
        rejected = around.spark.read.format("delta").load(place.uri).where(until).where(f"{SOURCE} IS NOT NULL")
        if isinstance(table.source, FilesSource):
            files = read_files(around, entry, table.source)
            source, stages, join = files.rows, files.stages, "left"
            rejected = rejected.where(f"{SOURCE}.row IS NOT NULL").where(F.col(f"{SOURCE}.file").isin(files.names))
        else:
            source = Suppression(table, around.store).source(covered_rows(around, entry).rows)
            stages, join = StagedTable(table), "inner"  # a topic may have lost its oldest records
        places = rejected.selectExpr(SOURCE, f"{NOTHING_FAILED} AS {FAILED}")
        came = stages.records_of(source, entry.pins, places)
        same = " AND ".join(f"q.{name} <=> s.{name}" for name in _COMPARED)
        both = rejected.alias("q").join(came.alias("s"), F.expr(f"q.{SOURCE} = s.{SOURCE}"), join)
        judged = both.groupBy(f"q.{SOURCE}").agg(F.expr(f"bool_or({same})").alias("same")).persist()
        try:
            compared = judged.count()
            wrong = judged.where("NOT same").limit(COLLECTED).selectExpr(f"to_json({SOURCE}) AS place").collect()
        finally:
            judged.unpersist()
    check.of = compared
    held = Held(compared, len(wrong), 0, 0, tuple(Differing("altered", {"record": row["place"]}) for row in wrong))
    return [answer(around, check, Comparison(held, Sample()), replace(content, excuses=changed_upstream(around)), [])]
