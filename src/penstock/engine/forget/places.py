"""Places that a table names and does not have: whoever asks to forget somebody would believe that it was searched."""

from __future__ import annotations

from pyspark.sql.types import StructType

from penstock.engine.forget.matching import type_at
from penstock.errors import Terminal
from penstock.plan.files import FilesSource
from penstock.plan.model import KafkaSource, TablePlan


def refuse_unknown_places(table: TablePlan, schema: StructType) -> None:
    """Terminal. A place is in a column of the table, or in the record that it decodes."""
    raw = {name.casefold() for name in table.input.raw.values()}
    decodes = isinstance(table.source, KafkaSource | FilesSource)
    for subject, places in table.subjects.items():
        for place in places:
            if type_at(schema, place.column) is None and not (decodes and place.column.casefold() in raw):
                known = ", ".join(field.name for field in schema.fields)
                raise Terminal(
                    f"there is no column {place.column}, where `subjects` says that it holds a {subject}",
                    where=table.name,
                    hint=f"correct it in the project file; the table has {known}",
                )
