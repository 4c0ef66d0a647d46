"""Rows of a table that got columns from its records, in a form that does not depend on when: a field that held nothing
yet (null, {} or []) was rescued or left out, and has a column since another record brought a value for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as JvmColumn
from pyspark.sql.types import ArrayType, StructType

from penstock.engine.files.types import spark_schema
from penstock.engine.grow import GrownSchema, grows
from penstock.engine.identifiers import quote
from penstock.engine.stages.json import RESCUED, own_class
from penstock.ops.verify.again.around import Around
from penstock.plan.files import FilesSource
from penstock.spec.schema import column_key

FIELDS = "new fields"
"""No column can be called so."""


@dataclass(frozen=True)
class GrownColumns:
    """Columns whose values are compared as the fields that they hold, together."""

    names: frozenset[str]

    def of(self, rows: DataFrame) -> DataFrame:
        """The rows with these fields as one text."""
        if not self._of(rows.columns):
            return rows
        own = [name for name in self._of(rows.columns) if name != RESCUED]
        texts = [f"to_json(struct({', '.join(map(quote, own))}))"] if own else []
        texts += [RESCUED] if RESCUED in self._of(rows.columns) else []
        leaves = own_class(rows.sparkSession, "Leaves")
        parts = [F.coalesce(JvmColumn(leaves.column(F.expr(text)._jc)), F.expr("array()")) for text in texts]
        fields = F.array_sort(F.array_distinct(F.concat(*parts)))
        return rows.withColumn(FIELDS, F.nullif(F.array_join(fields, ", "), F.lit("")))

    def values(self, names: Sequence[str]) -> list[str]:
        """Names of columns to compare, with the text instead of these."""
        mine = self._of(names)
        return [*(name for name in names if name not in mine), *([FIELDS] if mine else [])]

    def _of(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if column_key(name) in self.names]


def grown_columns(around: Around, there: DataFrame) -> GrownColumns:
    """None of a table that does not grow, or whose transform may have made anything of them."""
    table = around.table
    if table.stages is None or table.stages.transform is not None:
        return GrownColumns(frozenset())
    if isinstance(table.source, FilesSource):
        if table.source.new_fields != "add" or table.source.format != "json":
            return GrownColumns(frozenset())
        declared = spark_schema(table.source.schema) if table.source.schema is not None else StructType()
        found = StructType([one for one in there.schema.fields if isinstance(one.dataType, StructType | ArrayType)])
        rescued: list[str] = []
    elif table.stages.decode is not None and grows(table) and table.stages.decode.new_fields == "add":
        grown = GrownSchema(table, around.store)
        declared, found, rescued = grown.declared, grown.require().schema, [RESCUED]
    else:
        return GrownColumns(frozenset())
    known = {column_key(one.name): one.dataType for one in declared.fields}
    own = {column_key(name) for name in ("_source", "_sequence")}
    names = [column_key(one.name) for one in found.fields if known.get(column_key(one.name)) != one.dataType]
    return GrownColumns(frozenset({*names, *rescued} - own))
