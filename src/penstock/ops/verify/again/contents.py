"""The rows of a table against what its definition makes of its source now, column by column: with --deep.

Rows are told apart by their coordinates; without any, by what they say. Of a table with `dedupe` it is looked at which
record of a key was kept: the one that came first, and none besides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, VariantType

from penstock.engine.delta.version import parse
from penstock.engine.identifiers import quote
from penstock.engine.replay.kept import kept_rows
from penstock.engine.schema import sql_type
from penstock.engine.stages.coordinates import SOURCE
from penstock.errors import PenstockError
from penstock.ops.verify.again.around import Around, Comparison, answer
from penstock.ops.verify.again.arrivals import NUMBER, numbered_arrivals
from penstock.ops.verify.again.content import Content
from penstock.ops.verify.again.grown import FIELDS, grown_columns
from penstock.ops.verify.again.held import Held, Sides, hold
from penstock.ops.verify.again.kinds import holds as holds_kind
from penstock.ops.verify.again.kinds import unsteady
from penstock.ops.verify.again.sample import Sample
from penstock.ops.verify.again.source_rows import GREW, SourceRows, source_rows
from penstock.ops.verify.check import COLLECTED, Check, Differing
from penstock.plan.model import KafkaSource, TablePlan
from penstock.plan.stages import DedupePlan

_SAME, _TIMES = "__content", "__times"


def check_contents(around: Around, content: Content) -> list[Check]:
    table, entry = around.table, content.entry
    against = _against(around)
    check = around.begun("contents", f"what {against} gives now", "rows")
    if entry is None or (not isinstance(table.source, KafkaSource) and parse(entry.after[0]).read_up_to < 0):
        check.outcome, check.said = ("not made" if around.report.rows else "same"), "nothing was read yet"
        return [check]
    version = -1 if isinstance(table.source, KafkaSource) else parse(entry.after[0]).read_up_to
    with around.reading(version):
        made = source_rows(around, content)
        there = around.there()
        kept = kept_rows(table, made.covered)
        if kept is not None:
            left = there.where(kept).count()
            there = there.where(f"NOT ({kept})")
            check.remarks.append(f"not compared: {left:,} rows of which the source no longer has the records")
        content.excuses += made.excuses
        sides, held = _compared(around, content, there, made)
        check = answer(around, check, Comparison(held, Sample()), content, list(sides.loose))
        dedupe = table.stages.dedupe if table.stages is not None else None
        if dedupe is None:
            return [check]
        return [check, _duplicates(around, content, there, made, dedupe)]


def _compared(around: Around, content: Content, there: DataFrame, made: SourceRows) -> tuple[Sides, Held]:
    """A difference is excused by fields that were no columns yet only if none is left without the records that have
    such a field."""
    sides = _sides(around, there, made)
    held = hold(sides, Sample())
    if not held.differing or made.reshaped is None:
        return sides, held
    rest = replace(made, rows=made.rows.join(made.reshaped, SOURCE, "left_anti"))
    others = _sides(around, there.join(made.reshaped, SOURCE, "left_anti"), rest)
    surely = hold(others, Sample())
    if surely.differing:
        return others, surely
    content.excuses.append(GREW)
    return sides, held


def _against(around: Around) -> str:
    source = around.table.source
    return "the broker" if isinstance(source, KafkaSource) else around.upstream


def _coordinates(table: TablePlan, there: DataFrame) -> dict[str, str]:
    """Expressions that tell the rows of the table apart, by what they are called here; none if it has none."""
    if SOURCE in there.columns and table.input.stable:
        fields = there.select(f"{SOURCE}.*").columns
        return {f"record_{name}": f"{SOURCE}.{quote(name)}" for name in fields}
    if table.columns and table.stages is None:
        return {f"record_{name}": quote(table.columns[name]) for name in ("topic", "partition", "offset")}
    return {}


def _sides(around: Around, there: DataFrame, made: SourceRows) -> Sides:
    """What both sides are compared by, under names that are the same on both."""
    table = around.table
    grown = grown_columns(around, there)
    there, rows = grown.of(there), grown.of(made.rows)
    taken = {name.casefold() for name in rows.columns}
    unlike = {SOURCE, *([table.columns["ingestion_timestamp"]] if _stamps(table) else [])}
    same = [name for name in there.columns if name.casefold() in taken and name not in unlike and name != FIELDS]
    values = grown.values(same)
    places = _coordinates(table, there)
    dedupe = table.stages is not None and table.stages.dedupe is not None
    if not places or (table.stages is not None and table.stages.transform is not None):
        return _counted(there, rows, values, places, dedupe)
    keys = list(places)
    names = [*(f"{place} AS {key}" for key, place in places.items()), *map(quote, values)]
    should = rows.selectExpr(*names)
    here = there.selectExpr(*names)
    if dedupe:
        should = should.join(here.select(*keys), keys, "left_semi")
    loose = [name for name in values if unsteady(there.schema[name].dataType)]
    return Sides(here, [should], keys, values, loose)


def _stamps(table: TablePlan) -> bool:
    """Its rows have the time of their batch."""
    return isinstance(table.source, KafkaSource) and "ingestion_timestamp" in table.columns


def _counted(there: DataFrame, should: DataFrame, values: list[str], places: Mapping[str, str], dedupe: bool) -> Sides:
    """Rows that may be many of one record, or have no coordinates: how often each content is there."""
    kinds = {one.name.casefold(): one.dataType for one in there.schema.fields}
    keys = list(places)

    def told(rows: DataFrame) -> DataFrame:
        cast = rows.select(
            *(F.expr(place).alias(key) for key, place in places.items()),
            *(F.col(quote(name)).cast(sql_type(kinds[name.casefold()])).alias(name) for name in values),
        )
        parts = [
            part
            for name in values
            for part in (
                f"{quote(name)} IS NULL",
                f"to_json(named_struct('v', {quote(name)}))"
                if holds_kind(kinds[name.casefold()], MapType, VariantType)
                else quote(name),
            )
        ]
        hashed = cast.selectExpr(*keys, f"xxhash64({', '.join(parts) or '0'}) AS {_SAME}")
        return hashed.groupBy(*keys, _SAME).agg(F.count(F.lit(1)).alias(_TIMES))

    here, wanted = told(there), told(should)
    if dedupe and keys:
        wanted = wanted.join(here.select(*keys).distinct(), keys, "left_semi")
    elif dedupe:  # which of them were left out cannot be told: each that is there must be among them
        here, wanted = (one.withColumn(_TIMES, F.lit(1)) for one in (here, wanted))
        wanted = wanted.join(here.select(_SAME), _SAME, "left_semi")
    return Sides(here, [wanted], [*keys, _SAME], [_TIMES])


def _duplicates(around: Around, content: Content, there: DataFrame, made: SourceRows, plan: DedupePlan) -> Check:
    """Each record that was left out must have one with its keys in the table that came before it."""
    check = around.begun("duplicates", f"the records of {_against(around)} with the same keys", "records")
    if SOURCE not in there.columns or not around.table.input.stable:
        check.outcome = "unverifiable"
        check.said = "which record of a key was kept cannot be told: its rows do not say where they came from"
        return check
    names = list(dict.fromkeys([*plan.keys, *([plan.time] if plan.time else [])]))
    there_fields = [*map(quote, names), SOURCE]
    rows = made.rows.select(*there_fields)
    kept = there.select(*there_fields)
    left = rows.join(kept.select(SOURCE).distinct(), SOURCE, "left_anti").select(*there_fields)
    try:
        arrived = numbered_arrivals(around)
    except PenstockError as error:
        arrived, why = None, error.message
    else:
        why = ""
    near = [f"l.{quote(key)} = k.{quote(key)}" for key in plan.keys]
    if plan.time is not None:
        apart = f"abs(unix_micros(l.{quote(plan.time)}) - unix_micros(k.{quote(plan.time)}))"
        near.append(f"{apart} <= {(plan.within_ms or 0) * 1000}L")
    if arrived is not None:
        left, kept = arrived(left), arrived(kept)
        order = f"named_struct('n', {{0}}.{NUMBER}, 'p', {{0}}.{SOURCE})"
        near.append(f"{order.format('k')} < {order.format('l')}")
    else:
        check.remarks.append(f"whether the first of them was kept is not looked at: {why}")
    alone = left.alias("l").join(kept.alias("k"), F.expr(" AND ".join(near)), "left_anti")
    wrong = [
        Differing("missing", _shown(row, names)) for row in alone.limit(COLLECTED).selectExpr(*_texts(names)).collect()
    ]
    count = alone.count() if len(wrong) == COLLECTED else len(wrong)
    twice = _twice(kept, plan, names) if plan.time is None else []
    compared = left.count()
    held = Held(compared + len(twice), count + len(twice), 0, 0, tuple([*wrong, *twice][:COLLECTED]))
    check.of = held.compared
    return answer(around, check, Comparison(held, Sample()), replace(content, excuses=list(content.excuses)), [])


def _texts(names: list[str]) -> list[str]:
    return [*(f"CAST({quote(name)} AS STRING) AS k{n}" for n, name in enumerate(names)), f"to_json({SOURCE}) AS place"]


def _shown(row: object, names: list[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {name: row[f"k{n}"] for n, name in enumerate(names)}  # type: ignore[index]
    return {**found, "record": row["place"]}  # type: ignore[index]


def _twice(kept: DataFrame, plan: DedupePlan, names: list[str]) -> list[Differing]:
    keys = [quote(key) for key in plan.keys]
    known = kept.where(" AND ".join(f"{key} IS NOT NULL" for key in keys))
    found = known.groupBy(*keys).agg(F.count(F.lit(1)).alias("n"), F.max(SOURCE).alias(SOURCE)).where("n > 1")
    return [
        Differing("doubled", _shown(row, list(plan.keys)))
        for row in found.limit(COLLECTED).selectExpr(*_texts(list(plan.keys))).collect()
    ]
