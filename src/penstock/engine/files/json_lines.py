"""JSON files: an object a line, or a document a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.engine.files.format import Chosen, Look, Survey
from penstock.engine.files.header import Established
from penstock.engine.files.lines import Lines
from penstock.engine.files.types import decoder_schema
from penstock.engine.stages.decode import Decoded, Decoder, case, literal, reason
from penstock.engine.stages.json import UNKNOWN, JsonDecoder, own_class
from penstock.plan.files import FilesSource
from penstock.plan.stages import DecodePlan

NEW_FIELD = "penstock: a field that the schema does not name"
"""What ends a read that meets one: nothing was written then, and the read begins again with a schema that has it."""


class JsonLines:
    def __init__(self, spark: SparkSession, source: FilesSource) -> None:
        self._source, self._lines = source, Lines(spark, source)
        self.sampled: int | None = None

    def survey(self, names: Sequence[str], schema: StructType) -> Survey:
        return Survey()

    def rows(self, names: Sequence[str], look: Look, survey: Survey, tasks: int) -> DataFrame:
        return self._lines.read(names, tasks) if names else self._lines.none()

    def decoder(self, plan: DecodePlan, binary: str | None, look: Look, survey: Survey) -> Decoder:
        if self._source.new_fields in ("add", "fail") and look.watchful:
            return WatchfulJson(plan, binary, look.left_out)
        return RefusingJson(plan, binary) if self._source.new_fields == "fail" else JsonDecoder(plan, binary)

    def establish(self, names: Sequence[str], table: str) -> Established:
        return Established(list(names), [])

    def infer(self, names: Sequence[str]) -> StructType:
        found, self.sampled = infer_json(self._texts(names))
        return found

    def plain(self, names: Sequence[str], schema: StructType) -> DataFrame:
        return self._lines.plain(names)

    def probe(self, name: str) -> None:
        self._lines.probe(name)

    def first(self, names: Sequence[str]) -> tuple[str, str] | None:
        return self._lines.first(names)

    def new(self, names: Sequence[str], look: Look, only: Chosen | None = None) -> StructType:
        """The fields of the good records that have one which the schema does not name. What others hold, rejected ones
        that is, must not decide what a field is."""
        plan = DecodePlan("json", "value", decoder_schema(look.schema))
        records = self._lines.read(names, len(names))
        texts = (records if only is None else only(records)).select("value")
        made = JsonDecoder(plan, None, look.left_out).decode(texts)
        found, _ = infer_json(made.frame.where(f"{UNKNOWN} IS NOT NULL AND NOT {made.bad}").select("value"))
        return found

    def _texts(self, names: Sequence[str]) -> DataFrame:
        return self._lines.read(names, len(names)).select("value")


def infer_json(texts: DataFrame) -> tuple[StructType, int]:
    """The fields of JSON objects, each with a type that holds all of its values, and how many objects were looked at.
    A field without a value is void; one with values of several kinds is marked as `ANY_JSON`."""
    made = own_class(texts.sparkSession, "Inference").of(texts._jdf)
    return StructType.fromJson(json.loads(made.schema())), int(made.records())


@dataclass(frozen=True)
class WatchfulJson:
    """A decoder that ends the read at a field which the schema does not name, and which is not to be left out."""

    plan: DecodePlan
    binary: str | None
    left_out: tuple[str, ...]

    def decode(self, records: DataFrame) -> Decoded:
        made = JsonDecoder(self.plan, self.binary, self.left_out).decode(records)
        new = f"IF({UNKNOWN} IS NOT NULL AND NOT {made.bad}, raise_error({literal(NEW_FIELD)}), false)"
        return replace(made, bad=f"({new} OR {made.bad})")


@dataclass(frozen=True)
class RefusingJson:
    """A decoder of records that run again, where new fields stop the table: a record with one is rejected."""

    plan: DecodePlan
    binary: str | None

    def decode(self, records: DataFrame) -> Decoded:
        made = JsonDecoder(self.plan, self.binary).decode(records)
        unknown = reason("unknown_field", f"concat({UNKNOWN}, ' is not in the schema')")
        why = case([(f"{made.bad} OR {UNKNOWN} IS NULL", made.why)], unknown)
        return replace(made, bad=f"({made.bad} OR {UNKNOWN} IS NOT NULL)", why=why)
