"""What a table holds against what it should hold, key by key, in one query; all keys or a sample."""

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
    from pyspark.sql.types import (
        DataType,
    )

    from penstock.verify.report import Kind

# Which groups, or rows, are looked at if not all of them are.
#
# By a hash of their keys, so that the same ones are taken of both sides and one that is missing on either is found.
# The version is part of it: the same command over the same version looks at the same ones, over the next at others.


SIZE = 100
"""About so many are looked at."""
ALL_UP_TO = 2 * SIZE
"""So few are all looked at."""


@dataclass(frozen=True)
class KeySample:
    every: int = 1
    """One in so many; 1: all."""
    salt: int = 0

    @property
    def whole(self) -> bool:
        return self.every == 1

    def condition(self, keys: Sequence[str]) -> str:
        """`keys` are expressions of Spark SQL that are the same on both sides."""
        if self.whole:
            return "true"
        return f"pmod(xxhash64({self.salt}L, {', '.join(keys)}), {self.every}L) = 0"


def sample_of(rows: int, version: int, *, deep: bool) -> KeySample:
    if deep or rows <= ALL_UP_TO:
        return KeySample()
    return KeySample(max(1, rows // SIZE), version)


def hashable(column: str, kind: str) -> str | None:
    """A key as it is hashed; None if Spark holds values for equal whose hashes are others."""
    if kind in ("float", "double"):  # 0.0 and -0.0 are one group
        return f"IF({column} = 0, CAST(0 AS {kind}), {column})"
    return None if "collate" in kind or "<" in kind or kind == "variant" else column


# Types of Spark's, as far as two values of them can be compared and shown.


_NESTED = (ArrayType, MapType, StructType, VariantType)
_NUMBERS = (DoubleType, FloatType)
TOLERANCE = {"double": "1e-9D", "float": "1e-6D"}
"""A sum of them depends on the order of its parts: so much, relative to the larger one or to 1, is no difference."""


def holds(kind: DataType, *wanted: type[DataType]) -> bool:
    if isinstance(kind, wanted):
        return True
    if isinstance(kind, StructType):
        return any(holds(field.dataType, *wanted) for field in kind.fields)
    if isinstance(kind, MapType):
        return holds(kind.keyType, *wanted) or holds(kind.valueType, *wanted)
    return isinstance(kind, ArrayType) and holds(kind.elementType, *wanted)


def unsteady(kind: DataType) -> bool:
    """Two values that mean the same may differ: a map has no order, a number within another value no tolerance."""
    return holds(kind, MapType, VariantType) or (isinstance(kind, _NESTED) and holds(kind, *_NUMBERS))


def equal(one: str, other: str, kind: DataType) -> str:
    """An expression that is never NULL. NULL is equal to NULL, and NaN to NaN."""
    if isinstance(kind, _NUMBERS):
        apart = f"abs(CAST({one} AS DOUBLE) - CAST({other} AS DOUBLE))"
        bound = f"{TOLERANCE[kind.simpleString()]} * greatest(abs({one}), abs({other}), 1D)"
        # NaN is larger than anything, and within an infinite bound lies everything.
        near = f"NOT isnan({apart}) AND {apart} < double('Infinity') AND {apart} <= {bound}"
        return f"({one} <=> {other} OR coalesce({near}, false))"
    if holds(kind, MapType, VariantType):  # Spark compares none
        return f"(to_json(struct({one})) <=> to_json(struct({other})))"
    return f"({one} <=> {other})"


def shown(value: str, kind: DataType) -> str:
    """As text, by Spark: Python would turn times into those of the machine."""
    if isinstance(kind, BinaryType):
        return f"concat('0x', hex({value}))"
    return f"to_json({value})" if isinstance(kind, _NESTED) else f"CAST({value} AS STRING)"


# What a table holds against what it should hold, key by key, in one query.
#
# All sides are put together and grouped by the keys: NULL is a key like any other, what is there twice is seen, and
# what only one side has too. Where a table may rightly be in one of several states, a key is right if it is as in any
# of them.


_SIDE, _ROW, _TIMES, _NAMED = "__side", "__row", "__times", "__named"


@dataclass(frozen=True)
class Sides:
    there: DataFrame
    should: Sequence[DataFrame]
    """Each with the same columns. The first is what differences are told against."""
    keys: Sequence[str]
    values: Sequence[str]
    loose: Sequence[str] = ()
    """Values that may rightly be others each time they are computed."""
    by: Sequence[str] = ()
    """The keys by which a sample is taken; all of them if there are none."""

    @property
    def sampled_by(self) -> Sequence[str]:
        return self.by or self.keys

    @property
    def kinds(self) -> Mapping[str, DataType]:
        """Of its keys and values; Spark finds a column whatever its capitals."""
        known = {field.name.casefold(): field.dataType for field in self.there.schema.fields}
        return {name: known[name.casefold()] for name in (*self.keys, *self.values)}


@dataclass(frozen=True)
class KeyDiff:
    compared: int
    differing: int
    unsteady: int
    """Those that differ in `loose` values alone."""
    ambiguous: int = 0
    """Keys that several rows have of what should be there: nobody can say which it is."""
    differences: tuple[Differing, ...] = ()


def hold(sides: Sides, sample: KeySample) -> KeyDiff:
    found = judged(sides, sample)
    # Not what only another state has, which is right too.
    counts = ("NOT ambiguous AND (s0 IS NOT NULL OR s1 IS NOT NULL OR wrong)", "wrong", "unsteady", "ambiguous")
    counted = found.agg(*(F.count_if(F.expr(one)) for one in counts)).first()
    assert counted is not None
    compared, differing, unsteady, ambiguous = (int(one) for one in counted)
    told = tuple(_told(found.where("wrong"), sides)) if differing else ()
    return KeyDiff(compared, differing, unsteady, ambiguous, told)


def can_sample(sides: Sides) -> bool:
    kinds = sides.kinds
    return all(hashable("", kinds[key].simpleString()) is not None for key in sides.sampled_by)


def judged(sides: Sides, sample: KeySample) -> DataFrame:
    """One row per key that was looked at: k0, k1, … its values, `wrong`, `unsteady`, and what both sides have."""
    parts = [_side(sides, frame, number, sample) for number, frame in enumerate([sides.there, *sides.should])]
    grouped = (
        reduce(DataFrame.unionByName, parts)
        .groupBy(*_names(sides))
        .agg(
            F.count_if(F.expr(f"{_SIDE} = 0")).alias(_TIMES),
            F.count_if(F.expr(f"{_SIDE} = 1")).alias(_NAMED),
            *(
                F.first(F.expr(f"IF({_SIDE} = {number}, {_ROW}, NULL)"), ignorenulls=True).alias(f"s{number}")
                for number in range(len(parts))
            ),
        )
    )
    firm = [name for name in sides.values if name not in sides.loose]
    right = " OR ".join(_like(sides, firm, number) for number in range(1, len(parts)))
    exactly = " OR ".join(_like(sides, sides.values, number) for number in range(1, len(parts)))
    return grouped.selectExpr(
        *_names(sides),
        _TIMES,
        "s0",
        "s1",
        f"{_NAMED} > 1 AS ambiguous",
        f"{_NAMED} <= 1 AND ({_TIMES} > 1 OR NOT ({right})) AS wrong",
        f"{_NAMED} <= 1 AND {_TIMES} = 1 AND ({right}) AND NOT ({exactly}) AS unsteady",
    )


def _side(sides: Sides, frame: DataFrame, number: int, sample: KeySample) -> DataFrame:
    """Its keys and values in the types that the table has, so that both sides have the same hashes."""
    kinds = sides.kinds
    wanted = {**{f"k{n}": key for n, key in enumerate(sides.keys)}, **{f"v{n}": v for n, v in enumerate(sides.values)}}
    cast = frame.select(
        *(F.col(quote(name)).cast(sql_type(kinds[name])).alias(short) for short, name in wanted.items())
    )
    values = "".join(f", 'v{n}', v{n}" for n in range(len(sides.values)))
    keyed = cast.selectExpr(*_names(sides), f"{number} AS {_SIDE}", f"named_struct('there', true{values}) AS {_ROW}")
    hashed = [
        hashable(f"k{n}", kinds[key].simpleString()) or "NULL"
        for n, key in enumerate(sides.keys)
        if key in sides.sampled_by
    ]
    return keyed.where(sample.condition(hashed))


def _like(sides: Sides, names: Sequence[str], number: int) -> str:
    """The key is the same in the table and on another side: there on both with these values, or on neither."""
    both = [f"s0 IS NOT NULL AND s{number} IS NOT NULL", *(_equal(sides, name, number) for name in names)]
    return f"((s0 IS NULL AND s{number} IS NULL) OR ({' AND '.join(both)}))"


def _equal(sides: Sides, name: str, number: int) -> str:
    field = f"v{list(sides.values).index(name)}"
    return equal(f"s0.{field}", f"s{number}.{field}", sides.kinds[name])


def _told(wrong: DataFrame, sides: Sides) -> list[Differing]:
    kinds, firm = sides.kinds, [name for name in sides.values if name not in sides.loose]
    values = [
        f"named_struct('column', {literal(name)}, 'there', {shown(f's0.v{n}', kinds[name])}, "
        f"'should', {shown(f's1.v{n}', kinds[name])}, 'differs', NOT {_equal(sides, name, 1)})"
        for n, name in enumerate(sides.values)
        if name in firm
    ]
    kind = (
        f"CASE WHEN {_TIMES} > 1 THEN 'doubled' WHEN s0 IS NULL THEN 'missing' "
        "WHEN s1 IS NULL THEN 'extra' ELSE 'changed' END"
    )
    rows = (
        wrong.orderBy(*_names(sides))
        .limit(COLLECTED)
        .selectExpr(
            f"{kind} AS kind",
            *(f"{shown(f'k{n}', kinds[key])} AS k{n}" for n, key in enumerate(sides.keys)),
            f"array({', '.join(values)}) AS parts" if values else "NULL AS parts",
        )
    )
    return [_differing(row, sides.keys) for row in rows.collect()]


def _differing(row: Row, keys: Sequence[str]) -> Differing:
    kind: Kind = row["kind"]
    named = {key: row[f"k{n}"] for n, key in enumerate(keys)}
    parts = [part for part in row["parts"] or [] if part["differs"]] if kind == "changed" else []
    return Differing(kind, named, tuple(Value(part["column"], part["there"], part["should"]) for part in parts))


def _names(sides: Sides) -> list[str]:
    return [f"k{n}" for n in range(len(sides.keys))]


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
"""approx_count_distinct is none of them: it gives the same for the same rows, in whatever order they come."""


def unsteady_metrics(metrics: Mapping[str, str]) -> list[str]:
    """Those that depend on the order of rows, on which of several equal ones comes first, or on the moment. Too many
    rather than too few: they are compared too, and only a difference is not held for a mistake."""
    return [name for name, expression in metrics.items() if _CALLED.search(expression)]
