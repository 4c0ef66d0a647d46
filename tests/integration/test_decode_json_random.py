"""Records made and damaged at random: what is taken, and as which values, is what Python's own parser says."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests import type_rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "id BIGINT NOT NULL, amount DECIMAL(9,3), name STRING, ok BOOLEAN, x DOUBLE, c STRUCT<a: STRING, n: INT NOT NULL>, "
    "xs ARRAY<SMALLINT>, m MAP<STRING, DECIMAL(21,1)>"
)
RECORDS = 4_000
NAMES = ("id", "amount", "name", "ok", "x", "c", "xs", "m")
DAMAGE = [
    '"',
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\\",
    "0",
    "-",
    ".",
    "e",
    " ",
    "\n",
    "\x01",
    "é",
    "\\u00e9",
    "\\ud83d",
    "null",
]


class Bad(Exception):
    pass


def judged(text: str) -> list[Any] | None:
    """The values of the columns, or None if the record is to be rejected."""
    try:
        found = json.loads(text, object_pairs_hook=once, parse_constant=no, parse_int=Written, parse_float=Written)
        if not isinstance(found, dict):
            return None
        row = [
            integer(found.get("id"), 64),
            decimal(found.get("amount"), 9, 3),
            string(found.get("name")),
            boolean(found.get("ok")),
            double(found.get("x")),
            struct(found.get("c")),
            each(found.get("xs"), list, lambda value: integer(value, 16)),
            each(found.get("m"), dict, lambda value: decimal(value, 21, 1)),
        ]
    except (Bad, ValueError, RecursionError):
        return None
    return None if row[0] is None else row


class Written(str):
    """A number as it stands there."""


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise Bad
    return made


def no(_: str) -> Any:
    raise Bad


def integer(value: Any, bits: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, Written):
        raise Bad
    number = Decimal(value)
    if number != number.to_integral_value() or not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise Bad
    return int(number)


def decimal(value: Any, precision: int, scale: int) -> Decimal | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.isascii() or value != value.strip() or set(value) & set("_nN"):
        raise Bad
    try:
        number = Decimal(value)
    except ArithmeticError:
        raise Bad from None
    if number.is_zero():
        return number
    shortest = number.normalize().as_tuple()
    assert isinstance(shortest.exponent, int)
    if -shortest.exponent > scale or len(shortest.digits) + shortest.exponent > precision - scale:
        raise Bad
    return number


def string(value: Any) -> str | None:
    if isinstance(value, dict | list):
        raise Bad
    if isinstance(value, str) and any(0xD800 <= ord(one) < 0xE000 for one in value):
        raise Bad
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else value


def boolean(value: Any) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise Bad
    return value


def double(value: Any) -> float | None:
    if value is None:
        return None
    if not isinstance(value, Written):
        raise Bad
    try:
        return type_rules.double(value)
    except type_rules.Refused:
        raise Bad from None


def struct(value: Any) -> tuple[str | None, int] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Bad
    n = integer(value.get("n"), 32)
    if n is None:
        raise Bad
    return string(value.get("a")), n


def each(value: Any, kind: type, one: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, kind):
        raise Bad
    if isinstance(value, dict):
        for name in value:
            string(name)
        return {name: one(inner) for name, inner in value.items()}
    return [one(inner) for inner in value]


def made(chance: random.Random) -> str:
    def number() -> str:
        whole = chance.choice(["0", "7", "-3", "12345", "99999999", "-123456", "9" * 19, "9" * 25])
        return whole + chance.choice(["", "", "", ".5", ".125", ".50", ".1234", "e2", "E-1", "e400"])

    def text() -> str:
        return json.dumps(chance.choice(["", "a", "é中😀", 'q"}{', "\\", "\u0000", "1.5", "-2", "true", " "]))

    def value(depth: int = 0) -> str:
        kind = chance.randrange(9 if depth < 3 else 5)
        if kind < 5:
            return [number(), text(), "true", "null", number()][kind]
        if kind < 7:
            return "[" + ",".join(value(depth + 1) for _ in range(chance.randrange(3))) + "]"
        return "{" + ",".join(f"{text()}:{value(depth + 1)}" for _ in range(chance.randrange(3))) + "}"

    def fitting(name: str) -> str:
        match name:
            case "id":
                return str(chance.randrange(-(2**63), 2**63))
            case "amount":
                return chance.choice(["1", "0.125", "-999999.999", '"12.5"', "1e3", "123456.780000", "-0.0"])
            case "name":
                return text()
            case "ok":
                return chance.choice(["true", "false"])
            case "x":
                return repr(chance.uniform(-1e6, 1e6))
            case "c":
                return f'{{"a":{text()},"n":{chance.randrange(100)}}}'
            case "xs":
                return str([chance.randrange(-32768, 32768) for _ in range(chance.randrange(4))])
        return f'{{"k":{chance.choice(["1.5", "null", "9" * 20])}}}'

    names = chance.sample(NAMES, chance.randrange(1, 9)) if chance.random() < 0.7 else list(NAMES)
    names = names if "id" in names or chance.random() < 0.1 else ["id", *names]
    parts = [f'"{name}":{fitting(name) if chance.random() < 0.93 else value()}' for name in names]
    if chance.random() < 0.2:
        parts.insert(chance.randrange(len(parts) + 1), f"{text()}:{value()}")
    whole = "{" + chance.choice([",", " , ", ",\n"]).join(parts) + "}"
    if chance.random() < 0.35:
        for _ in range(chance.randrange(1, 3)):
            at = chance.randrange(len(whole) + 1)
            whole = whole[:at] + chance.choice(["", chance.choice(DAMAGE)]) + whole[at + chance.randrange(2) :]
    return whole


@pytest.mark.parametrize("seed", [1, 2])
def test_as_python_reads_them(spark: SparkSession, seed: int) -> None:
    from penstock.formats.json import JsonDecoder
    from penstock.plan.stages import DecodePlan
    from penstock.spec.schema import parse_ddl

    chance = random.Random(seed)
    texts = [made(chance) for _ in range(RECORDS)]
    plan = DecodePlan("json", "value", parse_ddl(SCHEMA))
    frame = spark.createDataFrame(list(enumerate(texts)), "n INT, value STRING")
    decoded = JsonDecoder(plan, None).decode(frame)
    values = [f"{value} AS v{number}" for number, (_, value) in enumerate(decoded.columns)]
    found = decoded.frame.selectExpr("n", f"{decoded.is_bad} AS bad", "__parsed.__detail AS detail", *values).collect()
    taken = 0
    for row in found:
        wanted = judged(texts[row.n])
        assert (wanted is None) == row.bad, (texts[row.n], row.detail)
        if wanted is not None:
            taken += 1
            given = list(row[3:])
            given[5] = None if given[5] is None else tuple(given[5])
            assert given == wanted, texts[row.n]
    assert RECORDS * 0.4 < taken < RECORDS * 0.9
