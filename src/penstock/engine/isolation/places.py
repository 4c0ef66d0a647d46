"""Which records of a batch: by their coordinates; where those are not the same each time, by what is in them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.engine.identifiers import quote
from penstock.engine.protocol.entry import Place
from penstock.engine.stages.coordinates import FILE, ROW, SOURCE
from penstock.engine.stages.decode import literal
from penstock.plan.model import KafkaSource, TablePlan

CONTENT = "#"
"""The first part of a place that is no place, but the hash of a record."""
NOWHERE = "a record without coordinates"


class Places:
    def __init__(self, table: TablePlan) -> None:
        self._table = table

    def of(self, batch: DataFrame) -> list[str]:
        """Expressions over the rows of a batch: the parts of a place."""
        brought, columns = self._table.input, batch.columns
        if isinstance(self._table.source, KafkaSource):
            return ["topic", "partition", "offset"]
        if brought.coordinates == "file" and brought.stable and ROW in columns:
            return [FILE, ROW]
        if brought.coordinates == "carried" and brought.stable:
            names = ("topic", "partition", "offset") if brought.origin == "kafka" else ("file", "row")
            return [f"{SOURCE}.{name}" for name in names]
        if brought.coordinates == "kafka" and brought.stable:
            return [quote(brought.raw[name]) for name in ("topic", "partition", "offset")]
        text = f"to_json(struct({', '.join(quote(name) for name in columns if name not in (FILE, ROW))}))"
        return [f"'{CONTENT}'", f"xxhash64({text})", f"xxhash64('{CONTENT}', {text})"]

    def by_content(self, batch: DataFrame) -> bool:
        return self.of(batch)[0] == f"'{CONTENT}'"

    def are(self, batch: DataFrame, places: Sequence[Place]) -> Column:
        """Whether a row of the batch is one of them."""
        parts = self.of(batch)
        by_group: dict[tuple[str | int, ...], list[str]] = {}
        for place in places:
            by_group.setdefault(tuple(place[:-1]), []).append(_value(place[-1]))
        groups = [
            " AND ".join([*(f"{part} = {_value(value)}" for part, value in zip(parts, group, strict=False)), last])
            for group, numbers in by_group.items()
            for last in [f"{parts[-1]} IN ({', '.join(numbers)})"]
        ]
        return F.expr(f"coalesce({' OR '.join(f'({one})' for one in groups)}, false)")

    def without(self, batch: DataFrame, places: Sequence[Place]) -> DataFrame:
        return batch.where(~self.are(batch, places))


def shown(place: Place) -> str:
    if place[0] == CONTENT:
        return "a row that has no coordinates of its own"
    if len(place) == 3:
        return f"{place[0]}-{place[1]}@{place[2]}"
    return f"{place[0]} row {place[1]}" if len(place) == 2 else str(place[0])


def _value(part: str | int) -> str:
    return literal(part) if isinstance(part, str) else f"{part}L"
