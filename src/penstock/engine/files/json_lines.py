"""JSON files: an object a line, or a document a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import NullType, StructType

from penstock.engine.files.format import Look, Survey
from penstock.engine.files.header import Established
from penstock.engine.files.lines import Lines
from penstock.engine.stages.decode import Decoded, literal
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

    def decoder(self, plan: DecodePlan, binary: str | None, look: Look, survey: Survey) -> WatchfulJson | JsonDecoder:
        if self._source.new_fields in ("add", "fail") and look.watchful:
            return WatchfulJson(plan, binary, look.left_out)
        return JsonDecoder(plan, binary)

    def establish(self, names: Sequence[str], table: str) -> Established:
        return Established(list(names), [])

    def infer(self, names: Sequence[str]) -> StructType:
        found, self.sampled = infer_json(self._texts(names))
        return found

    def plain(self, names: Sequence[str], schema: StructType) -> DataFrame:
        return self._lines.plain(names)

    def probe(self, name: str) -> None:
        self._lines.probe(name)

    def keys(self, names: Sequence[str]) -> set[str]:
        """Those that hold a value: of the others nobody can say what they are yet."""
        found, _ = infer_json(self._texts(names))
        return {field.name for field in found.fields if not isinstance(field.dataType, NullType)}

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
