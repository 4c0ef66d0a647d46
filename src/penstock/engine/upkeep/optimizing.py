"""The statements by which files are written anew. None changes a row: readers and streams do not see them."""

from __future__ import annotations

import re

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.engine.identifiers import quote
from penstock.engine.protocol.upkeep import Upkeep
from penstock.engine.stages.decode import literal
from penstock.engine.upkeep.layout import Layout, Partition
from penstock.engine.upkeep.places import Place
from penstock.engine.upkeep.session import session_with
from penstock.engine.upkeep.worth import CUBE, Step, Wanted
from penstock.errors import Terminal

_CONFLICT = re.compile(r"DELTA_CONCURRENT|Concurrent\w+Exception|ProtocolChangedException|MetadataChangedException")
_OPTIMIZE = "spark.databricks.delta.optimize"


def is_conflict(error: BaseException) -> bool:
    """A batch has changed one of the files first: what was written anew is of no use."""
    return bool(_CONFLICT.search(str(error)))


def rewrite(spark: SparkSession, place: Place, layout: Layout, step: Step, wanted: Wanted, by: str) -> None:
    """One commit, or none if Delta finds nothing to do. Raises what Delta raises."""
    note = f"{step.said}, {len(layout.files):,} before"
    upkeep = Upkeep("purge" if step.kind == "purge" else "optimize", place.name, by, note)
    threads = str(max(1, spark.sparkContext.defaultParallelism))
    session = session_with(
        spark,
        {
            f"{_OPTIMIZE}.minFileSize": str(wanted.small),
            f"{_OPTIMIZE}.maxFileSize": str(wanted.target),
            f"{_OPTIMIZE}.maxThreads": threads,
            # Deleted rows are another step: here they would have files of any size written anew.
            f"{_OPTIMIZE}.maxDeletedRowsRatio": "1.0",
            f"{_OPTIMIZE}.clustering.mergeStrategy.minCubeSize.threshold": str(CUBE * wanted.target),
            f"{_OPTIMIZE}.clustering.mergeStrategy.minCubeSize.targetCubeSize": str(2 * CUBE * wanted.target),
        },
        upkeep,
    )
    try:
        session.sql(statement(place, layout, step, wanted)).collect()
    except PySparkException as error:
        raise _explained(error, place, wanted) or error from None


def _explained(error: PySparkException, place: Place, wanted: Wanted) -> Terminal | None:
    columns = ", ".join(wanted.zorder_by)
    if "DELTA_ZORDERING_ON_COLUMN_WITHOUT_STATS" in str(error):
        return Terminal(
            f"zorder_by: {columns}: the table keeps no statistics of these columns, so their order would help nobody",
            where=place.name,
            hint="order by columns that have some; delta.dataSkippingStatsColumns says which they are",
        )
    if "DELTA_ZORDERING" in str(error):
        hint = "`zorder_by` names columns of the table by which it is not partitioned"
        return Terminal(f"zorder_by: {columns}: {str(error).splitlines()[0]}", where=place.name, hint=hint)
    return None


def statement(place: Place, layout: Layout, step: Step, wanted: Wanted) -> str:
    table = f"delta.{quote(place.uri)}"
    match step.kind:
        case "purge":
            return f"REORG TABLE {table} APPLY (PURGE)"
        case "compact":
            return f"OPTIMIZE {table}"
        case "cluster":
            return f"OPTIMIZE {table} FULL" if wanted.full else f"OPTIMIZE {table}"
        case "zorder":
            where = f" WHERE {_within(layout, step.partitions)}" if step.partitions else ""
            return f"OPTIMIZE {table}{where} ZORDER BY ({', '.join(map(quote, wanted.zorder_by))})"


def _within(layout: Layout, partitions: tuple[Partition, ...]) -> str:
    """The values are data: somebody else's text. Each is a literal of its column's type."""
    return " OR ".join(
        "("
        + " AND ".join(
            f"{quote(column)} <=> CAST({'NULL' if value is None else literal(value)} AS {layout.types[column]})"
            for column, value in zip(layout.partition_by, partition, strict=True)
        )
        + ")"
        for partition in partitions
    )
