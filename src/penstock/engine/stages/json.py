"""JSON objects. Spark's parser says nothing of half of what is wrong with a record; the rest is looked for here.

Cheap signs first: a record whose first closing brace is its last character, and which has as many keys as values were
found, has nothing behind its object and no key twice. Only others are looked at again, exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.engine.identifiers import quote
from penstock.engine.stages.decode import PARSED, Decoded, absent, case, literal, reason
from penstock.engine.stages.leaves import AS_TEXT, any_of, parsed_type, read
from penstock.plan.stages import DecodePlan
from penstock.spec.schema import Array, Column, Map, Scalar, Struct

CORRUPT = "__corrupt"
RESCUED = "_rescued"
_VARIANT_LIMIT = 16_000_000
_SHOWN = 80
_OPTIONS = {
    "mode": "PERMISSIVE",  # any option at all: without one Spark prunes the parse and lets wrong types pass
    "columnNameOfCorruptRecord": CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}


@dataclass(frozen=True)
class JsonDecoder:
    plan: DecodePlan
    binary: str | None
    """The column that holds payloads that are not UTF-8."""

    def decode(self, records: DataFrame) -> Decoded:
        assert self.plan.schema is not None
        schema, column = self.plan.schema, quote(self.plan.column)
        wanted = ", ".join(f"{quote(f.name)} {parsed_type(f.type)}" for f in schema.fields)
        parsed = F.from_json(F.expr(column), f"{wanted}, {CORRUPT} STRING", {**_OPTIONS, **self.plan.options})
        reads = [_Held.of(number, field) for number, field in enumerate(schema.fields)]
        columns = [(one.name, one.column) for one in reads]
        if self.plan.rescue:
            columns.append((RESCUED, _rescued(column, schema)))
        faults = tuple(fault for one in reads for fault in one.faults)
        missing = tuple(f"{PARSED}.{quote(f.name)} IS NULL" for f in schema.fields if f.required)
        bad = (
            f"{column} IS NULL OR {PARSED} IS NULL OR {PARSED}.{CORRUPT} IS NOT NULL"
            f" OR {any_of((*missing, *faults))} OR {_inexact(column, schema)}"
        )
        # The values are computed before they are judged: Spark would compute those with care twice.
        values = (f"{one.value} AS {one.column}" for one in reads if one.is_held)
        frame = records.withColumn(PARSED, parsed).selectExpr("*", *values)
        return Decoded(frame, tuple(columns), f"({bad})", self._why(column, schema))

    def _why(self, column: str, schema: Struct) -> str:
        whole = f"json_array_length(concat('[', {column}, ']'))"
        keys = f"json_object_keys({column})"
        twice = f"try_element_at(filter({keys}, k -> size(filter({keys}, j -> j = k)) > 1), 1)"
        unclear = f"octet_length({column}) < {_VARIANT_LIMIT} AND try_parse_json({column}) IS NULL"
        conditions = absent(self.plan.column, self.binary)
        conditions += [
            (
                f"{whole} IS NULL AND {PARSED}.{CORRUPT} IS NULL",
                reason("trailing_data", literal("there is something behind the object")),
            ),
            (f"{whole} IS NULL", reason("malformed_json", f"concat('not JSON: ', left({column}, {_SHOWN}))")),
            (f"{whole} > 1", reason("trailing_data", literal("there is more than one value"))),
            (
                f"left(ltrim({column}), 1) <> '{{'",
                reason("not_an_object", f"concat('a JSON object is needed, not ', left({column}, {_SHOWN}))"),
            ),
            (
                f"{unclear} AND ({twice} IS NOT NULL OR {PARSED}.{CORRUPT} IS NULL)",
                reason("duplicate_field", f"concat(coalesce({twice}, 'a nested field'), ' is there twice')"),
            ),
            (unclear, reason("malformed_json", f"concat('not JSON: ', left({column}, {_SHOWN}))")),
        ]
        for path, field, found in _fields(schema, (), PARSED):
            conditions += _field_faults(column, path, field, found)
        return case(conditions, reason("wrong_type", f"concat('does not fit the schema: ', left({column}, {_SHOWN}))"))


@dataclass(frozen=True)
class _Held:
    """A field of the record, and the column that has its value, where that takes a computation."""

    name: str
    value: str
    column: str
    faults: tuple[str, ...]

    @property
    def is_held(self) -> bool:
        return self.column != self.value

    @classmethod
    def of(cls, number: int, field: Column) -> _Held:
        found, held = f"{PARSED}.{quote(field.name)}", f"__value_{number}"
        made = read(field.type, found, held=held)
        if made.value == found:
            return cls(field.name, found, found, read(field.type, found).faults)
        return cls(field.name, made.value, held, made.faults)


def _inexact(column: str, schema: Struct) -> str:
    """By IF: what stands behind an AND Spark computes for every record if it stands there twice."""
    if any(not isinstance(field.type, Scalar) for field in schema.fields):
        return _not_exact(column, schema)
    return f"IF({_suspicious(column, schema)}, {_not_exact(column, schema)}, false)"


def _suspicious(column: str, schema: Struct) -> str:
    found = " + ".join(f"int({PARSED}.{quote(f.name)} IS NOT NULL)" for f in schema.fields)
    keys = f"octet_length({column}) - octet_length(replace({column}, '\":', ''))"
    texts = [f"{PARSED}.{quote(f.name)}" for f in schema.fields if f.type == Scalar("STRING")]
    objects = "".join(f" OR left({text}, 1) IN ('{{', '[')" for text in texts)
    return f"coalesce(instr({column}, '}}') <> octet_length({column}) OR {keys} <> 2 * ({found}){objects}, true)"


def _not_exact(column: str, schema: Struct) -> str:
    variant = f"try_parse_json({column})"
    texts = [
        f"schema_of_variant(try_variant_get({variant}, {literal(_path(path))}, 'variant')) RLIKE '{_NESTED}'"
        for path, field, _ in _fields(schema, (), PARSED)
        if field.type == Scalar("STRING")
    ]
    inside = any_of(tuple(texts))
    small = f"octet_length({column}) < {_VARIANT_LIMIT}"
    return (
        f"(NOT (json_array_length(concat('[', {column}, ']')) <=> 1) OR ({small} AND ({variant} IS NULL OR {inside})))"
    )


_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")
_A_NUMBER = "^(BIGINT|DOUBLE|FLOAT|DECIMAL)"
_A_DATE = "^[+-]?[0-9]{4,}-[0-9]{1,2}"
_NESTED = "^(OBJECT|ARRAY)"


def _fields(schema: Struct, path: tuple[str, ...], found: str) -> list[tuple[tuple[str, ...], Column, str]]:
    made = []
    for field in schema.fields:
        inner = f"{found}.{quote(field.name)}"
        if isinstance(field.type, Struct):
            made += _fields(field.type, (*path, field.name), inner)
        made.append(((*path, field.name), field, inner))
    return made


def _field_faults(column: str, path: tuple[str, ...], field: Column, found: str) -> list[tuple[str, str]]:
    name = ".".join(path)
    given = f"try_variant_get(try_parse_json({column}), {literal(_path(path))}, 'variant')"
    text = f"get_json_object({column}, {literal(_path(path))})"
    shown = f"left(IF(schema_of_variant({given}) = 'STRING', to_json({given}), {text}), {_SHOWN})"
    absent_ = f"({given} IS NULL OR is_variant_null({given}))"
    kind = field.type if isinstance(field.type, Scalar | Array | Map) else "STRUCT"
    faults: list[tuple[str, str]] = []
    if field.required:
        faults.append(
            (f"{found} IS NULL AND {absent_}", reason("missing_field", literal(f"{name} is missing or null")))
        )
    wrong = f"{found} IS NULL AND NOT {absent_}"
    if str(kind).startswith(_NUMBERS):
        detail = f"concat({literal(f'{name}: ')}, {shown}, {literal(f' does not fit {kind}')})"
        faults.append((f"{wrong} AND schema_of_variant({given}) RLIKE '{_A_NUMBER}'", reason("out_of_range", detail)))
    detail = f"concat({literal(f'{name}: ')}, {shown}, {literal(f' is not of type {kind}')})"
    faults.append((wrong, reason("wrong_type", detail)))
    if isinstance(field.type, Scalar) and field.type.name in AS_TEXT:
        not_a_time = f"{found} IS NOT NULL AND NOT {found} RLIKE '{_A_DATE}'"
        detail = f"concat({literal(f'{name}: ')}, {shown}, {literal(f' is not of type {kind}')})"
        faults.append((not_a_time, reason("wrong_type", detail)))
    if not isinstance(field.type, Struct) and (care := read(field.type, found).faults):
        detail = f"concat({literal(f'{name}: ')}, {shown}, {literal(f' does not fit {kind}')})"
        faults.append((any_of(care), reason("out_of_range", detail)))
    if field.type == Scalar("STRING"):
        detail = f"concat({literal(f'{name}: ')}, {shown}, ' is not of type STRING')"
        faults.append((f"schema_of_variant({given}) RLIKE '{_NESTED}'", reason("wrong_type", detail)))
    return faults


def _path(path: tuple[str, ...]) -> str:
    return "$" + "".join(f"['{step}']" if not step.isidentifier() else f".{step}" for step in path)


def _rescued(column: str, schema: Struct) -> str:
    """The fields of the object that the schema does not name, as JSON; NULL if there are none."""
    known = ", ".join(literal(field.name) for field in schema.fields)
    others = f"map_filter(from_json({column}, 'MAP<STRING, STRING>'), (k, v) -> k NOT IN ({known}))"
    return f"nullif(to_json({others}), '{{}}')"
