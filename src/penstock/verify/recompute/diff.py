"""Compares what a table holds with what it should hold, key by key, in one query; all keys or a sample."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
    VariantType,
)

from penstock.spark.sql_text import literal, quote
from penstock.spark.sql_types import sql_type
from penstock.verify.report import COLLECTED, Differing, Value

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.types import DataType

    from penstock.verify.report import Kind

# Which groups or rows are compared if not all of them are.
#
# They are chosen by a hash of their keys, so that both sides have the same ones and one that is missing on either is
# found. The version is part of the hash: the same command over the same version compares the same ones, over the next
# version others.


SAMPLE_SIZE = 100
"""About this many are compared."""
ALL_UP_TO = 2 * SAMPLE_SIZE
"""Up to this many, all are compared."""


@dataclass(frozen=True)
class KeySample:
    every: int = 1
    """One in this many; 1: all."""
    salt: int = 0

    @property
    def whole(self) -> bool:
        return self.every == 1

    def condition(self, keys: Sequence[str]) -> str:
        """`keys` are expressions of Spark SQL that are the same on both sides."""
        if self.whole:
            return "true"
        return f"pmod(xxhash64({self.salt}L, {', '.join(keys)}), {self.every}L) = 0"


EVERY_KEY = KeySample()


def sample_of(rows: int, version: int, *, deep: bool) -> KeySample:
    if deep or rows <= ALL_UP_TO:
        return EVERY_KEY
    return KeySample(max(1, rows // SAMPLE_SIZE), version)


def hashable(column: str, type_name: str) -> str | None:
    """A key as it is hashed; None if Spark treats values with different hashes as equal."""
    if type_name in ("float", "double"):  # 0.0 and -0.0 are one group
        return f"IF({column} = 0, CAST(0 AS {type_name}), {column})"
    return None if "collate" in type_name or "<" in type_name or type_name == "variant" else column


# Comparing and showing values of Spark's types.


_NESTED = (ArrayType, MapType, StructType, VariantType)
_NUMBERS = (DoubleType, FloatType)
TOLERANCE = {"double": "1e-9D", "float": "1e-6D"}
"""A sum of them depends on the order of its parts: this much, relative to the larger one or to 1, is not a
difference."""


def contains_type(data_type: DataType, *types: type[DataType]) -> bool:
    if isinstance(data_type, types):
        return True
    if isinstance(data_type, StructType):
        return any(contains_type(field.dataType, *types) for field in data_type.fields)
    if isinstance(data_type, MapType):
        return contains_type(data_type.keyType, *types) or contains_type(data_type.valueType, *types)
    return isinstance(data_type, ArrayType) and contains_type(data_type.elementType, *types)


def is_nondeterministic(data_type: DataType) -> bool:
    """Whether two values that mean the same may differ: a map has no order, a number within another value no
    tolerance."""
    return contains_type(data_type, MapType, VariantType) or (
        isinstance(data_type, _NESTED) and contains_type(data_type, *_NUMBERS)
    )


def nondeterministic_columns(rows: DataFrame, names: Sequence[str]) -> list[str]:
    return [name for name in names if is_nondeterministic(rows.schema[name].dataType)]


def equal(first: str, second: str, data_type: DataType) -> str:
    """An SQL expression that is never NULL. NULL is equal to NULL, and NaN to NaN."""
    if isinstance(data_type, _NUMBERS):
        distance = f"abs(CAST({first} AS DOUBLE) - CAST({second} AS DOUBLE))"
        bound = f"{TOLERANCE[data_type.simpleString()]} * greatest(abs({first}), abs({second}), 1D)"
        # NaN is larger than anything, and within an infinite bound lies everything.
        near = f"NOT isnan({distance}) AND {distance} < double('Infinity') AND {distance} <= {bound}"
        return f"({first} <=> {second} OR coalesce({near}, false))"
    if contains_type(data_type, MapType, VariantType):  # Spark cannot compare these
        return f"(to_json(struct({first})) <=> to_json(struct({second})))"
    return f"({first} <=> {second})"


def text_of(value: str, data_type: DataType) -> str:
    """An expression for a value as text. Spark makes it: Python would convert times to the zone of the machine."""
    if isinstance(data_type, BinaryType):
        return f"concat('0x', hex({value}))"
    return f"to_json({value})" if isinstance(data_type, _NESTED) else f"CAST({value} AS STRING)"


# Comparing the sides, in one query.
#
# All sides are combined and grouped by the keys: NULL is a key like any other, and duplicates and keys that only one
# side has are found too. Where a table may rightly be in one of several states, a key is right if it is as in any of
# them.


_SIDE, _ROW, _TIMES, _EXPECTED_TIMES = "__side", "__row", "__times", "__named"


@dataclass(frozen=True)
class Sides:
    actual: DataFrame
    expected: Sequence[DataFrame]
    """Each with the same columns. DifferingRows are reported against the first."""
    keys: Sequence[str]
    values: Sequence[str]
    nondeterministic: Sequence[str] = ()
    """Values that may rightly differ each time they are computed."""
    sample_keys: Sequence[str] = ()
    """The keys by which a sample is taken; all keys if empty."""

    @property
    def sampled_by(self) -> Sequence[str]:
        return self.sample_keys or self.keys

    @property
    def kinds(self) -> Mapping[str, DataType]:
        """Types of the keys and values; Spark finds a column in any capitalisation."""
        types = {field.name.casefold(): field.dataType for field in self.actual.schema.fields}
        return {name: types[name.casefold()] for name in (*self.keys, *self.values)}


@dataclass(frozen=True)
class KeyDiff:
    compared: int
    differing: int
    nondeterministic: int
    """Those that differ in `nondeterministic` values alone."""
    ambiguous: int = 0
    """Keys that several of the expected rows have: which of them is right is unknown."""
    differences: tuple[Differing, ...] = ()
    doubled: int = 0
    """Those of `differing` that the table has more than once."""


def compare_sides(sides: Sides, sample: KeySample = EVERY_KEY) -> KeyDiff:
    verdicts = judge_keys(sides, sample)
    # Without what only another state has, which is right too.
    conditions = (
        "NOT ambiguous AND (s0 IS NOT NULL OR s1 IS NOT NULL OR wrong)",
        "wrong",
        "unsteady",
        "ambiguous",
        f"wrong AND {_TIMES} > 1",
    )
    totals = verdicts.agg(*(F.count_if(F.expr(condition)) for condition in conditions)).first()
    assert totals is not None
    compared, differing, unsteady_count, ambiguous, doubled = (int(count) for count in totals)
    differences = tuple(_list_differences(verdicts.where("wrong"), sides)) if differing else ()
    return KeyDiff(compared, differing, unsteady_count, ambiguous, differences, doubled)


def can_sample(sides: Sides) -> bool:
    types = sides.kinds
    return all(hashable("", types[key].simpleString()) is not None for key in sides.sampled_by)


def judge_keys(sides: Sides, sample: KeySample) -> DataFrame:
    """One row per compared key: k0, k1, … its values, `wrong`, `unsteady`, and what both sides have."""
    parts = [_side(sides, frame, number, sample) for number, frame in enumerate([sides.actual, *sides.expected])]
    grouped = (
        reduce(DataFrame.unionByName, parts)
        .groupBy(*_key_names(sides))
        .agg(
            F.count_if(F.expr(f"{_SIDE} = 0")).alias(_TIMES),
            F.count_if(F.expr(f"{_SIDE} = 1")).alias(_EXPECTED_TIMES),
            *(
                F.first(F.expr(f"IF({_SIDE} = {number}, {_ROW}, NULL)"), ignorenulls=True).alias(f"s{number}")
                for number in range(len(parts))
            ),
        )
    )
    firm_values = [name for name in sides.values if name not in sides.nondeterministic]
    right = " OR ".join(_matches(sides, firm_values, number) for number in range(1, len(parts)))
    exactly = " OR ".join(_matches(sides, sides.values, number) for number in range(1, len(parts)))
    return grouped.selectExpr(
        *_key_names(sides),
        _TIMES,
        "s0",
        "s1",
        f"{_EXPECTED_TIMES} > 1 AS ambiguous",
        f"{_EXPECTED_TIMES} <= 1 AND ({_TIMES} > 1 OR NOT ({right})) AS wrong",
        f"{_EXPECTED_TIMES} <= 1 AND {_TIMES} = 1 AND ({right}) AND NOT ({exactly}) AS unsteady",
    )


def _side(sides: Sides, frame: DataFrame, number: int, sample: KeySample) -> DataFrame:
    """The keys and values of a side, cast to the types of the table so that both sides have the same hashes."""
    types = sides.kinds
    columns = {**{f"k{n}": key for n, key in enumerate(sides.keys)}, **{f"v{n}": v for n, v in enumerate(sides.values)}}
    cast = frame.select(
        *(F.col(quote(name)).cast(sql_type(types[name])).alias(short) for short, name in columns.items())
    )
    values = "".join(f", 'v{n}', v{n}" for n in range(len(sides.values)))
    keyed = cast.selectExpr(
        *_key_names(sides), f"{number} AS {_SIDE}", f"named_struct('there', true{values}) AS {_ROW}"
    )
    hashed = [
        hashable(f"k{n}", types[key].simpleString()) or "NULL"
        for n, key in enumerate(sides.keys)
        if key in sides.sampled_by
    ]
    return keyed.where(sample.condition(hashed))


def _matches(sides: Sides, names: Sequence[str], number: int) -> str:
    """Condition: the key is the same in the table and on another side, there on both with these values, or on
    neither."""
    conditions = [f"s0 IS NOT NULL AND s{number} IS NOT NULL", *(_equal(sides, name, number) for name in names)]
    return f"((s0 IS NULL AND s{number} IS NULL) OR ({' AND '.join(conditions)}))"


def _equal(sides: Sides, name: str, number: int) -> str:
    field = f"v{list(sides.values).index(name)}"
    return equal(f"s0.{field}", f"s{number}.{field}", sides.kinds[name])


def _list_differences(wrong: DataFrame, sides: Sides) -> list[Differing]:
    types, firm_values = sides.kinds, [name for name in sides.values if name not in sides.nondeterministic]
    values = [
        f"named_struct('column', {literal(name)}, 'there', {text_of(f's0.v{n}', types[name])}, "
        f"'should', {text_of(f's1.v{n}', types[name])}, 'differs', NOT {_equal(sides, name, 1)})"
        for n, name in enumerate(sides.values)
        if name in firm_values
    ]
    kind = (
        f"CASE WHEN {_TIMES} > 1 THEN 'doubled' WHEN s0 IS NULL THEN 'missing' "
        "WHEN s1 IS NULL THEN 'extra' ELSE 'changed' END"
    )
    rows = (
        wrong.orderBy(*_key_names(sides))
        .limit(COLLECTED)
        .selectExpr(
            f"{kind} AS kind",
            *(f"{text_of(f'k{n}', types[key])} AS k{n}" for n, key in enumerate(sides.keys)),
            f"array({', '.join(values)}) AS parts" if values else "NULL AS parts",
        )
    )
    return [_to_differing(row, sides.keys) for row in rows.collect()]


def _to_differing(row: Row, keys: Sequence[str]) -> Differing:
    kind: Kind = row["kind"]
    key_texts = {key: row[f"k{n}"] for n, key in enumerate(keys)}
    parts = [part for part in row["parts"] or [] if part["differs"]] if kind == "changed" else []
    return Differing(kind, key_texts, tuple(Value(part["column"], part["there"], part["should"]) for part in parts))


def _key_names(sides: Sides) -> list[str]:
    return [f"k{n}" for n in range(len(sides.keys))]


# DifferingRows that a query of their own looks for, one per row.


@dataclass(frozen=True)
class DifferingRows:
    names: tuple[str, ...]
    """What identifies each of them."""
    count: int = 0
    """How many there are, listed or not."""
    listed: tuple[Differing, ...] = ()
    """All of them, up to `COLLECTED`."""


def collect_differences(kind: Kind, rows: DataFrame, texts: Mapping[str, str]) -> DifferingRows:
    """`texts` are the names that identify a row, each with an expression for its value as text."""
    columns = (f"{text} AS k{n}" for n, text in enumerate(texts.values()))
    sample = rows.limit(COLLECTED).selectExpr(*columns).collect()
    listed = tuple(Differing(kind, dict(zip(texts, row, strict=True))) for row in sample)
    return DifferingRows(tuple(texts), rows.count() if len(listed) == COLLECTED else len(listed), listed)


def rows_with_keys(rows: DataFrame, other_rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows whose key is in `other_rows`."""
    names = [quote(key) for key in keys]
    condition = " AND ".join(f"a.{name} <=> b.{name}" for name in names)
    return rows.alias("a").join(other_rows.select(*names).distinct().alias("b"), F.expr(condition), "left_semi")


# Metrics that may rightly give another value each time they are computed.


_FUNCTIONS = (
    "any_value|approx_percentile|approx_top_k|array_agg|collect_list|collect_set|current_date|current_time|"
    "current_timestamp|first|first_value|histogram_numeric|hll_sketch_agg|hll_union_agg|last|last_value|listagg|"
    "localtimestamp|max_by|min_by|mode|now|percentile_approx|rand|randn|random|string_agg|try_reflect|unix_timestamp|"
    "uuid"
)
_CALLED = re.compile(
    rf"(?<![\w`.])({_FUNCTIONS})\s*\(|(?<![\w`.])(current_date|current_timestamp)(?!\w)", re.IGNORECASE
)
"""approx_count_distinct is not one of them: it gives the same for the same rows, in whatever order they come."""


def unsteady_metrics(metrics: Mapping[str, str]) -> list[str]:
    """Metrics that depend on the order of rows, on which of several equal ones comes first, or on the time. Better too
    many than too few: they are compared too, only a difference is not treated as a mistake."""
    return [name for name, expression in metrics.items() if _CALLED.search(expression)]
