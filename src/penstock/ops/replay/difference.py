"""Two states of a table held against each other, row by row: what is new, what is gone, what is another."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, MapType, StructType, VariantType

from penstock.engine.identifiers import quote
from penstock.engine.merge.horizon import exactly

SAMPLES = 3
PARTITIONS = 20
_ROW, _KEY, _PART, _WHICH = "__row", "__key", "__part", "__which"


@dataclass(frozen=True)
class Part:
    """Numbers of one partition."""

    partition: dict[str, Any]
    added: int
    removed: int
    changed: int


@dataclass(frozen=True)
class Sample:
    kind: str
    """added, removed or changed."""
    now: dict[str, Any] | None
    then: dict[str, Any] | None


@dataclass(frozen=True)
class Difference:
    by: tuple[str, ...]
    """The columns that tell rows apart; empty: whole rows are counted, so that a changed one is one removed and one
    added."""
    added: int
    removed: int
    changed: int
    rows: int
    """That there would be."""
    parts: tuple[Part, ...] = ()
    samples: tuple[Sample, ...] = ()
    columns: dict[str, list[str]] = field(default_factory=dict)
    """new and gone columns: these are not compared."""

    @property
    def none(self) -> bool:
        return not (self.added or self.removed or self.changed or any(self.columns.values()))


def document(one: Difference) -> dict[str, Any]:
    return asdict(one)


def difference(
    now: DataFrame, then: DataFrame, by: Sequence[str], partition_by: Sequence[str], leave: Sequence[str] = ()
) -> Difference:
    """Columns in `leave` are not compared: they say when a row was written."""
    both = [name for name in then.columns if name in now.columns and name not in leave]
    by = [name for name in by if name in both]
    parts = [name for name in partition_by if name in both]
    tagged = {which: _tagged(rows, both, by, parts, which) for which, rows in ((-1, now), (1, then))}
    net = (
        tagged[-1].unionByName(tagged[1]).groupBy(_KEY, _ROW).agg(F.sum(_WHICH).alias("n"), F.first(_PART).alias(_PART))
    )
    differing = net.where("n <> 0").persist(StorageLevel.MEMORY_AND_DISK)
    try:
        counted = differing.groupBy(_KEY).agg(
            F.expr(f"max_by({_PART}, n)").alias(_PART),
            F.expr("sum(greatest(n, 0))").alias("plus"),
            F.expr("sum(greatest(-n, 0))").alias("minus"),
        )
        changed = "least(plus, minus)" if by else "0L"
        per_part = (
            counted.selectExpr(
                _PART, f"plus - {changed} AS added", f"minus - {changed} AS removed", f"{changed} AS changed"
            )
            .groupBy(_PART)
            .agg(*(F.sum(name).alias(name) for name in ("added", "removed", "changed")))
            .orderBy(F.expr("added + removed + changed").desc())
        )
        found = [Part(_plain(row[0]), int(row[1]), int(row[2]), int(row[3])) for row in per_part.collect()]
        samples = _samples(differing, now, then, both, by)
    finally:
        differing.unpersist()
    added, removed, changes = (sum(getattr(one, name) for one in found) for name in ("added", "removed", "changed"))
    columns = {
        "new": [name for name in then.columns if name not in now.columns],
        "gone": [name for name in now.columns if name not in then.columns],
    }
    return Difference(
        by=tuple(by),
        added=added,
        removed=removed,
        changed=changes,
        rows=now.count() + added - removed,
        parts=tuple(found[:PARTITIONS]) if parts else (),
        samples=samples,
        columns=columns,
    )


def _tagged(rows: DataFrame, both: Sequence[str], by: Sequence[str], parts: Sequence[str], which: int) -> DataFrame:
    row, part = _hashed(rows, both), ", ".join(quote(name) for name in parts)
    return rows.selectExpr(
        f"{_key(by) if by else row} AS {_KEY}",
        f"{row} AS {_ROW}",
        f"{f'to_json(struct({part}))' if part else repr('{}')} AS {_PART}",
        f"{which} AS {_WHICH}",
    )


def _hashed(rows: DataFrame, both: Sequence[str]) -> str:
    """A row as a pair of hashes, 128 bits in all."""
    values = ", ".join(_comparable(rows.schema[name].dataType, quote(name)) for name in both)
    return f"struct(xxhash64({values}) AS a, xxhash64('b', {values}) AS b)"


def _key(by: Sequence[str]) -> str:
    return exactly(f"struct({', '.join(quote(name) for name in by)})")


def _samples(
    differing: DataFrame, now: DataFrame, then: DataFrame, both: Sequence[str], by: Sequence[str]
) -> tuple[Sample, ...]:
    """Of each kind a few, those of a changed row side by side. Their rows are looked for once more: to carry every row
    along until it is known whether it differs would cost far more."""
    sides = differing.groupBy(_KEY).agg(
        F.expr(f"max(IF(n < 0, {_ROW}, NULL))").alias("now"), F.expr(f"max(IF(n > 0, {_ROW}, NULL))").alias("then")
    )
    wanted = {"added": "now IS NULL", "removed": "then IS NULL"}
    if by:
        wanted["changed"] = "now IS NOT NULL AND then IS NOT NULL"
    asked = [
        (kind, row["now"], row["then"])
        for kind, condition in wanted.items()
        for row in sides.where(condition).limit(SAMPLES).collect()
    ]
    was = _texts(now, both, [one[1]["a"] for one in asked if one[1] is not None])
    will = _texts(then, both, [one[2]["a"] for one in asked if one[2] is not None])
    return tuple(
        Sample(kind, was.get(old["a"]) if old else None, will.get(new["a"]) if new else None)
        for kind, old, new in asked
    )


def _texts(rows: DataFrame, both: Sequence[str], hashes: Sequence[int]) -> dict[int, dict[str, Any]]:
    if not hashes:
        return {}
    shown = ", ".join(quote(name) for name in both)
    found = rows.selectExpr(f"{_hashed(rows, both)}.a AS a", f"to_json(struct({shown})) AS text")
    return {
        int(row[0]): _plain(row[1])
        for row in found.where(F.col("a").isin(list(hashes))).dropDuplicates(["a"]).collect()
    }


def _plain(text: str | None) -> dict[str, Any]:
    made = json.loads(text) if text else {}
    return made if isinstance(made, dict) else {}


def _comparable(kind: DataType, name: str) -> str:
    """Spark hashes no maps, and NULL leaves a hash as it is: that it is there counts by itself."""
    value = f"to_json(struct({name}))" if _odd(kind) else name
    return f"{name} IS NULL, {value}"


def _odd(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_odd(one.dataType) for one in kind.fields)
    inner = getattr(kind, "elementType", None)
    return isinstance(kind, MapType | VariantType) or (inner is not None and _odd(inner))
