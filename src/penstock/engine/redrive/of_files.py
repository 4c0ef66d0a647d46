"""Rejected lines of files, read again from the files that they stand in.

A file that is no longer there, or no longer the one that was listed, cannot say what the line was: its lines stay in
quarantine as they are. So do files that could not be read at all: put right, such a file is landed under a new name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.engine.files.evolve import redriven
from penstock.engine.files.format import Survey
from penstock.engine.files.function import staged_table, with_schema
from penstock.engine.files.listing import list_files
from penstock.engine.files.manifest import Manifest
from penstock.engine.files.reader import FilesReader
from penstock.engine.forget.function import Forgetting
from penstock.engine.forget.suppression import Suppression
from penstock.engine.isolation.function import Isolating
from penstock.engine.lookups import Lookups
from penstock.engine.merge.merging import table_schema
from penstock.engine.merge.tombstone_table import tombstone_table
from penstock.engine.protocol.entry import Pins
from penstock.engine.redrive.runnable import Runnable
from penstock.engine.replay.fill import Work
from penstock.engine.schema import settle_columns
from penstock.engine.staged import Staged
from penstock.engine.stages.coordinates import FILE, ROW, SOURCE

_FILES_A_TASK = 100


def of_files(work: Work, rejected: DataFrame) -> Runnable:
    reader = work.source
    assert isinstance(reader, FilesReader)
    names = _as_they_were(work, reader, rejected)
    again = F.coalesce(F.col(f"{SOURCE}.row").isNotNull() & F.col(f"{SOURCE}.file").isin(names), F.lit(False))
    look = redriven(reader, names, reader.schema.require(), partial(_lines, wanted=rejected.where(again)))
    look = replace(look, watchful=False)
    survey = reader.schema.format.survey(names, StructType()) if names else Survey()
    stages = staged_table(work.table, reader, look, survey)
    rows = reader.schema.format.rows(names, look, survey, max(1, len(names) // _FILES_A_TASK))
    suppression = Suppression(work.table, work.store)
    tombstones = tombstone_table(work.spark, work.store, work.table, idempotent=work.idempotent)
    lookups = Lookups(work.table, work.store)
    if reader.files.new_fields == "add":
        pins = Pins(0, "", lookups.newest())
        made = stages.make(rows, pins, lookups.read(work.spark, pins))
        settle_columns(work.spark, work.table, table_schema(work.table, made.rows))
    staged = Staged(with_schema(work.table, look), stages, lookups, None, suppression, tombstones)
    return Runnable(
        Isolating(Forgetting(staged, suppression), staged, work.table, work.log, redriving=True),
        rejected.where(again),
        partial(_lines, rows),
        rejected.where(~again),
    )


def _lines(rows: DataFrame, wanted: DataFrame) -> DataFrame:
    """Those with the coordinates of rejected rows."""
    places = wanted.selectExpr(f"{SOURCE}.file AS __at", f"{SOURCE}.row AS __number").distinct()
    same = (F.col(FILE) == F.col("__at")) & (F.col(ROW) == F.col("__number"))
    return rows.join(places, same, "left_semi")


def _as_they_were(work: Work, reader: FilesReader, rejected: DataFrame) -> Sequence[str]:
    named = rejected.where(f"{SOURCE}.row IS NOT NULL").select(f"{SOURCE}.file").distinct().collect()
    names = [str(row[0]) for row in named if row[0] is not None]
    if not names:
        return []
    manifest = Manifest(work.spark, work.store, reader.files.uri, work.table.name)
    listed = manifest.known(names, manifest.newest())
    now = {file.name: file for file in list_files(work.spark, reader.files, work.table.name).files}
    return sorted(name for name in names if name in now and now[name] == listed.get(name))
