"""Records made at random: the schema that is inferred from some decodes all of them, and says the same in any order."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from penstock.formats.json import JsonDecoder
from penstock.plan.stages import DecodePlan
from penstock.sources.files.lines import infer_json
from penstock.sources.files.types import decoder_schema, nulls_to_json_text, usable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

ROUNDS, RECORDS = 25, 6
NUMBERS = [
    *("0", "-0", "1", "-1", "0.0", "1.50", "1e2", "1E-3", "2.5", "1e22", "1e23", "1e300", "1e308", "1e309", "-1e309"),
    *("5e-324", "1e-324", "1e-400", "0e999", "1e999999999999", "100e2147483647", "12345678901234567.89"),
    *("9007199254740992", "9007199254740993", "9007199254740993.0", "9007199254740992.5", "9223372036854775807"),
    *("9223372036854775808", "-9223372036854775808", "-9223372036854775809", "1" * 38, "1" * 39, "0." + "3" * 60),
    *(
        "1" * 30 + "." + "5" * 8,
        "1" * 30 + "." + "5" * 9,
        "1" * 500,
        "1" * 450 + "." + "1" * 10,
        "0." + "0" * 500 + "1",
    ),
]
NAMES = ["a", "b", "A", "ıd", "id", "a b", "_metadata", "`", "x.y", "é", "\\ud800", "\\ud83d\\ude00", ""]


def number(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return chance.choice(NUMBERS)
    digits = (
        "".join(chance.choices("0123456789", k=chance.choice([1, 3, 15, 16, 17, 19, 25, 38, 40]))).lstrip("0") or "0"
    )
    behind = (
        "." + "".join(chance.choices("0123456789", k=chance.choice([1, 2, 10, 20]))) if chance.random() < 0.5 else ""
    )
    power = f"e{chance.randint(-30, 30)}" if chance.random() < 0.3 else ""
    return chance.choice(["", "-"]) + digits + behind + power


def value(chance: random.Random, depth: int) -> str:
    kind = chance.random()
    if kind < 0.5:
        return number(chance)
    if kind < 0.6 or depth > 3:
        return chance.choice(['"x"', '"1"', '""', "true", "false", "null", "null"])
    if kind < 0.62:
        depth = chance.choice([29, 30, 31, 200])
        return '{"a":' * depth + "1" + "}" * depth if chance.random() < 0.5 else "[" * depth + "1" + "]" * depth
    if kind < 0.8:
        return f"[{', '.join(value(chance, depth + 1) for _ in range(chance.randint(0, 3)))}]"
    return record(chance, depth + 1)


def record(chance: random.Random, depth: int = 0) -> str:
    names = chance.sample(NAMES, chance.randint(0, 4))
    return "{" + ", ".join(f'"{name}": {value(chance, depth)}' for name in names) + "}"


def faults(spark: SparkSession, texts: list[str], found: StructType, keep: bool) -> list[Any]:
    schema = usable(nulls_to_json_text(found) if keep else found)
    if not schema.fields:
        return []
    plan = DecodePlan("json", "value", decoder_schema(schema))
    made = JsonDecoder(plan, None).decode(spark.createDataFrame([(text,) for text in texts], "value STRING"))
    return made.frame.where(made.is_bad).selectExpr("value", f"{made.reason} AS why").collect()


@pytest.mark.deep
@pytest.mark.parametrize("seed", [1, 2])
def test_an_inferred_schema_takes_what_it_was_inferred_from(seed: int, spark: SparkSession) -> None:
    chance = random.Random(seed)
    for _ in range(ROUNDS):
        texts = [record(chance) for _ in range(RECORDS)]
        frame = spark.createDataFrame([(text,) for text in texts], "value STRING").coalesce(1)
        found, count = infer_json(frame)
        assert count == RECORDS
        assert faults(spark, texts, found, chance.random() < 0.5) == [], texts
        turned = spark.createDataFrame([(text,) for text in reversed(texts)], "value STRING").repartition(2)
        assert infer_json(turned)[0] == found


def test_numbers_that_a_double_refuses_are_decimals_or_text(spark: SparkSession) -> None:
    texts = [f'{{"n{at}": {text}, "m{at}": [{text}, 1.5]}}' for at, text in enumerate(NUMBERS)]
    lists = ['{"ll": [["x"], [1]], "lo": [{"a": ["x"]}, {"a": [{"b": 1}]}]}']
    found, _ = infer_json(spark.createDataFrame([(text,) for text in [*texts, *lists]], "value STRING"))
    kinds = {field.name: field.dataType.simpleString() for field in found.fields}
    assert kinds[f"n{NUMBERS.index('12345678901234567.89')}"] == "decimal(38,2)"
    assert kinds[f"n{NUMBERS.index('2.5')}"] == "double"
    assert json.loads(found.json())["fields"]
    assert faults(spark, [*texts, *lists], found, False) == []
