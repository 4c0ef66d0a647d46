"""JSON files: an object a line, or a document a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.engine.files.format import Look, Survey
from penstock.engine.files.lines import Lines
from penstock.engine.files.names import AS_NAMED, location_of
from penstock.engine.identifiers import quote
from penstock.engine.stages.decode import PARSED, Decoded, literal
from penstock.engine.stages.json import JsonDecoder
from penstock.plan.files import FilesSource
from penstock.plan.stages import DecodePlan
from penstock.spec.schema import Array, Map, Scalar, Struct, Type

NEW_FIELD = "penstock: a field that the schema does not name"
"""What ends a read that meets one: nothing was written then, and the read begins again with a schema that has it."""
_INFERENCE = {"mode": "DROPMALFORMED", "allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
_KEY = '":'


class JsonLines:
    def __init__(self, spark: SparkSession, source: FilesSource) -> None:
        self._source, self._lines = source, Lines(spark, source)
        self._exact = spark.newSession()
        self._exact.conf.set("spark.sql.caseSensitive", "true")  # to JSON, id and ID are two fields

    def survey(self, names: Sequence[str], schema: StructType) -> Survey:
        return Survey()

    def rows(self, names: Sequence[str], look: Look, survey: Survey, tasks: int) -> DataFrame:
        return self._lines.read(names, tasks) if names else self._lines.none()

    def decoder(self, plan: DecodePlan, binary: str | None, look: Look, survey: Survey) -> WatchfulJson | JsonDecoder:
        if self._source.new_fields in ("add", "fail") and look.watchful:
            return WatchfulJson(plan, binary, look.left_out)
        return JsonDecoder(plan, binary)

    def infer(self, names: Sequence[str]) -> StructType:
        reader = self._exact.read.options(**_INFERENCE, **AS_NAMED)
        reader = reader.option("multiLine", self._source.documents)
        return reader.json([location_of(name, self._source) for name in names]).schema

    def plain(self, names: Sequence[str], schema: StructType) -> DataFrame:
        return self._lines.plain(names)

    def probe(self, name: str) -> None:
        self._lines.probe(name)

    def keys(self, names: Sequence[str]) -> set[str]:
        found = self._lines.read(names, 1).selectExpr("explode(json_object_keys(value)) AS name").distinct()
        return {row.name for row in found.collect()}


@dataclass(frozen=True)
class WatchfulJson:
    """A decoder that ends the read at a field which the schema does not name.

    A record with as many keys as values were found has no other. Only the rest are looked at again, exactly."""

    plan: DecodePlan
    binary: str | None
    left_out: tuple[str, ...]

    def decode(self, records: DataFrame) -> Decoded:
        assert self.plan.schema is not None
        made = JsonDecoder(self.plan, self.binary).decode(records)
        column, schema = quote(self.plan.column), self.plan.schema
        new = (
            f"coalesce({_suspicious(column, schema)}, true) AND coalesce({_new(column, schema, self.left_out)}, false)"
        )
        return replace(made, bad=f"(IF({new}, raise_error({literal(NEW_FIELD)}), false) OR {made.bad})")


def _suspicious(column: str, schema: Struct) -> str:
    """False only if every key of the record is one of the schema. A key may be followed by a blank: then it is not
    counted, so such a record counts as suspicious."""
    found = _found(schema, PARSED)
    if found is None:
        return "true"
    keys = f"(octet_length({column}) - octet_length(replace({column}, '{_KEY}', ''))) / {len(_KEY)}"
    blank = " OR ".join(f"instr({column}, '{sign}:') > 0" for sign in (" ", "\\t", "\\r", "\\n"))
    return f"({keys} <> {' + '.join(found)} OR {blank})"


def _found(schema: Struct, parsed: str) -> list[str] | None:
    """How many values the parser found, as terms of a sum; None where they cannot be counted so."""
    terms: list[str] = []
    for field in schema.fields:
        place = f"{parsed}.{quote(field.name)}"
        terms.append(f"int({place} IS NOT NULL)")
        if isinstance(field.type, Struct):
            inner = _found(field.type, place)
            if inner is None:
                return None
            terms += inner
        elif not isinstance(field.type, Scalar) and not _of_scalars(field.type):
            return None
    return terms


def _of_scalars(kind: Type) -> bool:
    return isinstance(kind, Array) and (isinstance(kind.element, Scalar) or _of_scalars(kind.element))


def _new(text: str, kind: Type, left_out: tuple[str, ...] = (), depth: int = 0) -> str:
    """Whether a JSON value, given as text, has a field that its type does not name; NULL counts as no."""
    match kind:
        case Struct(fields):
            names = ", ".join(literal(name) for name in (*(field.name for field in fields), *left_out))
            key = f"k{depth}"
            parts = [f"exists(json_object_keys({text}), {key} -> {key} NOT IN ({names}))"]
            for field in fields:
                if not isinstance(field.type, Scalar) and not _of_scalars(field.type):
                    inner = f"get_json_object({text}, {literal(_step(field.name))})"
                    parts.append(_new(inner, field.type, depth=depth + 1))
            return "(" + " OR ".join(f"coalesce({part}, false)" for part in parts) + ")"
        case Array(element):
            one = f"x{depth}"
            inner = _new(one, element, depth=depth + 1)
            return f"coalesce(exists(from_json({text}, 'ARRAY<STRING>'), {one} -> {inner}), false)"
        case Map(_, value):
            one = f"v{depth}"
            inner = _new(one, value, depth=depth + 1)
            return f"coalesce(exists(map_values(from_json({text}, 'MAP<STRING, STRING>')), {one} -> {inner}), false)"
        case Scalar():
            return "false"


def _step(name: str) -> str:
    return f"$['{name}']" if not name.isidentifier() else f"$.{name}"
