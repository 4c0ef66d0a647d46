"""A table's columns against those that its definition makes now."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from penstock.errors import TableChanged
from penstock.plan.model import TablePlan


def refuse_other_columns(spark: SparkSession, table: TablePlan, wanted: StructType) -> None:
    """`strict`: a column that is new, missing or of another type stops the table."""
    there = _columns(spark.read.format("delta").load(table.uri).schema)
    made = _columns(wanted)
    if there == made:
        return
    new = [f"{name} {kind}" for name, kind in made.items() if there.get(name) != kind]
    gone = [f"{name} {kind}" for name, kind in there.items() if made.get(name) != kind]
    if table.stages is None and not new:
        return
    raise TableChanged(
        f"the table's columns are not those that its definition makes: it has {', '.join(gone) or 'all of them'}, the "
        f"definition makes {', '.join(new) or 'no others'}",
        where=table.name,
        hint="write the definition as it was, or make a new table of another name",
    )


def _columns(schema: StructType) -> dict[str, str]:
    """Name without capitals -> type; whether NULL is allowed is not looked at."""
    return {field.name.lower(): field.dataType.simpleString().lower() for field in schema.fields}
