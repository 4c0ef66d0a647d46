"""Which row `from: {where: …}` raises on, of a table that sets no rows aside: aggregates, sinks, stream functions."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.engine.isolation.expressions import error_of
from penstock.engine.isolation.places import shown
from penstock.engine.stages.coordinates import SOURCE
from penstock.errors import RowRaised
from penstock.plan.model import DeltaSource, TablePlan

_ERROR, _PLACE = "__error", "__place"
_LANDED = ("topic", "partition", "offset")
_LONGEST = 200


def row_at_fault(spark: SparkSession, table: TablePlan) -> RowRaised | None:
    """The first one in its sources as they are now; None if their conditions raise on no row."""
    sources = table.stream.inputs.values() if table.stream is not None else (table.source,)
    for source in sources:
        if isinstance(source, DeltaSource) and source.where is not None and not table.isolates_where:
            rows = spark.read.format("delta").load(source.uri)
            tried = rows.select(_place(rows).alias(_PLACE), error_of(spark, source.where).alias(_ERROR))
            found = tried.where(f"{_ERROR} IS NOT NULL").agg(F.expr(f"min(struct({_PLACE}, {_ERROR}))")).first()
            if found is not None and found[0] is not None:
                place, raised = found[0]
                at = place[:_LONGEST] if isinstance(place, str) else shown(tuple(place))
                return RowRaised(
                    f"from.where raises on a row of {source.table or source.uri}, {at}: {raised}",
                    where=table.name,
                    hint="nothing of the batch was written. Correct the condition: try_cast, try_divide and their like "
                    "give NULL, which is not met; or make a table of those rows first, which sets such rows aside",
                )
    return None


def _place(rows: DataFrame) -> Column:
    """Its coordinates, or what is in it."""
    if SOURCE in rows.columns and isinstance(rows.schema[SOURCE].dataType, StructType):
        return F.col(SOURCE)
    if {*_LANDED} <= {*rows.columns}:
        return F.struct(*_LANDED)
    return F.to_json(F.struct("*"))
