"""Rows that are numbered from 0 on, so that parts of them can be run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.engine.isolation.expressions import fenced
from penstock.engine.isolation.places import NOWHERE
from penstock.engine.protocol.entry import Place

NUMBER, PLACE = "__record", "__place"
"""What `monotonically_increasing_id` gave, and, of records, the parts of the place as text."""


class Numbered:
    """The records of a batch, numbered from 0 on."""

    def __init__(self, kept: DataFrame) -> None:
        self._kept = kept
        parts = kept.groupBy(F.expr(f"shiftright({NUMBER}, 33)").alias("part")).count().orderBy("part").collect()
        self._parts = [int(row[0]) for row in parts]
        self._ends = list(accumulate(int(row[1]) for row in parts))

    @property
    def count(self) -> int:
        return self._ends[-1] if self._ends else 0

    def between(self, first: int, end: int) -> DataFrame:
        """Those from `first` on and before `end`, as rows of the batch."""
        if first >= end:
            chosen = self._kept.where("false")
        else:
            chosen = self._kept.where(f"{NUMBER} BETWEEN {self._id(first)}L AND {self._id(end - 1)}L")
        return fenced(chosen.drop(NUMBER, PLACE))

    def place(self, number: int) -> Place:
        return self.places([number]).get(number, (NOWHERE,))

    def places(self, numbers: Sequence[int]) -> dict[int, Place]:
        """Those that have one."""
        ids = {self._id(number): number for number in numbers}
        rows = self._kept.where(F.col(NUMBER).isin(list(ids))).select(NUMBER, PLACE).collect()
        return {ids[int(row[0])]: _place(row[1]) for row in rows if None not in row[1]}

    def _id(self, number: int) -> int:
        for index, end in enumerate(self._ends):
            if number < end:
                before = self._ends[index - 1] if index else 0
                return (self._parts[index] << 33) + number - before
        raise IndexError(number)


def _place(parts: Sequence[str]) -> Place:
    """As text they come, and all but the first are numbers."""
    first, *numbers = parts
    return (first, *map(int, numbers))
