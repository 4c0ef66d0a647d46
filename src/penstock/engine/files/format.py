"""What is asked of a format of files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.engine.files.head import Head
from penstock.engine.files.header import Established
from penstock.engine.stages.decode import Decoder
from penstock.plan.stages import DecodePlan


@dataclass(frozen=True)
class Survey:
    """What was learnt of the files of a batch before their rows are read."""

    heads: Mapping[str, Head] = field(default_factory=dict)
    """By the file's name: the line that names its fields."""
    fields: StructType = field(default_factory=StructType)
    """What the files have, as far as that is known without reading them."""


Chosen = Callable[[DataFrame], DataFrame]
"""Of rows that have the file and the number of each, some."""


@dataclass(frozen=True)
class Look:
    """How the files of a batch are read: decided once, and kept."""

    schema: StructType
    left_out: tuple[str, ...] = ()
    """Fields that cannot be columns, and are no news."""
    watchful: bool = True
    """A field that the schema does not name ends the read, where new fields are not simply left out."""


class Unfit(Exception):
    """Files that cannot be what the table reads, each with the reason."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(", ".join(reasons))
        self.reasons = reasons


class Format(Protocol):
    sampled: int | None
    """How many records the last inference looked at, if it looked at records."""

    def survey(self, names: Sequence[str], schema: StructType) -> Survey:
        """Raises Unfit if a file cannot be of a table with that schema, or what Spark says if it does not open."""

    def rows(self, names: Sequence[str], look: Look, survey: Survey, tasks: int) -> DataFrame:
        """For the stages of a table: a line each, or a row, with its file and its number there."""

    def decoder(self, plan: DecodePlan, binary: str | None, look: Look, survey: Survey) -> Decoder | None:
        """None where rows need none, or the one that Kafka's payloads have."""

    def establish(self, names: Sequence[str], table: str) -> Established:
        """Of the first files, before a schema is inferred: which of them can be what the table reads. Terminal where a
        person has to say it."""

    def infer(self, names: Sequence[str]) -> StructType:
        """The fields that the files have."""

    def plain(self, names: Sequence[str], schema: StructType) -> DataFrame:
        """All of the files, to find out whether they can be read."""

    def probe(self, name: str) -> None:
        """Raises if a look at this file alone, without Spark's tasks, shows that it cannot be read."""

    def first(self, names: Sequence[str]) -> tuple[str, str] | None:
        """The first line that is not blank, of a format that has lines, and its file."""

    def new(self, names: Sequence[str], look: Look, only: Chosen | None = None) -> StructType:
        """The fields of the records that end a read because they have one which the schema does not name; `only`
        chooses some of the records."""
