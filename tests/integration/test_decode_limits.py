"""Every type of every format with values at its limits: a record is a row with exactly the documented value, or it is
rejected with a reason that names the field. Nothing stops the table, and nothing takes long."""

from __future__ import annotations

import base64
import json
import random
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.hostile_values import NUMBERS, OTHERS, RAW, TIMES, in_csv, in_json, texts
from tests.type_rules import EPOCH, FIRST, LAST, Refused, of_json, of_line, parsed, whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALARS = {
    "bo": "BOOLEAN",
    "i8": "TINYINT",
    "i16": "SMALLINT",
    "i32": "INT",
    "i64": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "n5": "DECIMAL(5,2)",
    "n18": "DECIMAL(18,0)",
    "n18s": "DECIMAL(18,18)",
    "n19": "DECIMAL(19,10)",
    "n38": "DECIMAL(38,0)",
    "n38s": "DECIMAL(38,38)",
    "s": "STRING",
    "b": "BINARY",
    "da": "DATE",
    "t": "TIMESTAMP",
    "tn": "TIMESTAMP_NTZ",
}
NESTED = {
    "xs": "ARRAY<DECIMAL(5,2)>",
    "m": "MAP<STRING, BIGINT>",
    "o": "STRUCT<x: DATE, y: ARRAY<STRUCT<z: DOUBLE>>>",
}
AS_NUMBER = {
    "DATE": "unix_date({})",
    "TIMESTAMP": "unix_micros({})",
}
LONGEST = 60


@contextmanager
def in_zone(spark: SparkSession, zone: str) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        yield
    finally:
        assert before is not None
        spark.conf.set("spark.sql.session.timeZone", before)


def decoded(
    spark: SparkSession, form: str, schema: dict[str, str], records: Sequence[str], **plan: Any
) -> list[tuple[list[Any] | None, str | None, str | None]]:
    """Of each record its values, or None with the reason and the detail. One action."""
    from penstock.formats.registry import open_decoder
    from penstock.plan.stages import DecodePlan, csv_options
    from penstock.spec.schema import parse_ddl

    ddl = ", ".join(f"{name} {kind}" for name, kind in schema.items())
    options = csv_options({}) if form == "csv" else {}
    frame = spark.createDataFrame(list(enumerate(records)), "__n INT, value STRING")
    frame = frame.selectExpr("*", "CAST(NULL AS STRING) AS __key")
    made = open_decoder(DecodePlan(form, "value", parse_ddl(ddl), options=options, **plan), None).decode(frame)  # type: ignore[arg-type]
    values = [
        f"{AS_NUMBER.get(schema[name], '{}').format(value)} AS `{name}`"
        for name, value in made.columns
        if name in schema
    ]
    rows = made.frame.selectExpr(
        "__n", f"{made.is_bad} AS __bad", f"IF({made.is_bad}, {made.reason}, NULL) AS __why", *values
    )
    found: dict[int, Any] = {row["__n"]: row for row in rows.collect()}
    assert len(found) == len(records)
    return [
        (None, row["__why"]["reason"], row["__why"]["detail"])
        if row["__bad"]
        else ([as_number(row[name]) for name in schema], None, None)
        for row in (found[number] for number in range(len(records)))
    ]


def as_number(value: Any) -> Any:
    """A local time in microseconds, as the rules give it."""
    return (value - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value


def json_wanted(schema: dict[str, str], record: str, zone: str = "UTC") -> list[Any] | None:
    try:
        found = parsed(record)
        return [nested(kind, found.get(name), zone) for name, kind in schema.items()]
    except Refused:
        return None


def nested(kind: str, value: Any, zone: str) -> Any:
    if kind not in NESTED.values() or value is None:
        return of_json(kind, value, zone)
    if not isinstance(value, list if kind.startswith("ARRAY") else dict):
        raise Refused
    if kind.startswith("ARRAY"):
        return [of_json("DECIMAL(5,2)", one) for one in value]
    if kind.startswith("MAP"):
        return {whole(name): of_json("BIGINT", one) for name, one in value.items()}
    day = of_json("DATE", value.get("x"))
    many = value.get("y")
    if many is not None and (not isinstance(many, list) or not all(isinstance(one, dict) for one in many if one)):
        raise Refused
    return (
        None if day is None else date.fromordinal(day + date(1970, 1, 1).toordinal()),
        None if many is None else [None if one is None else (of_json("DOUBLE", one.get("z")),) for one in many],
    )


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return struct.pack("d", one) == struct.pack("d", other)
    return (bool(one == other) and type(one) is type(other)) or (isinstance(one, tuple | bytearray) and one == other)


def check(
    form: str,
    columns: Sequence[str],
    records: Sequence[str],
    wanted: Sequence[list[Any] | None],
    found: Sequence[tuple[list[Any] | None, str | None, str | None]],
    *,
    least: float,
) -> None:
    """`columns`: in which of them the value of each record stands."""
    wrong = []
    for column, record, want, (values, reason, detail) in zip(columns, records, wanted, found, strict=True):
        if want is None or values is None:
            named = reason in ("malformed_json", "malformed_csv", "duplicate_field", "trailing_data") or (
                reason in ("wrong_type", "out_of_range", "missing_field") and (detail or "").startswith(column)
            )
            if want is not None or values is not None or not named or not detail or len(detail) > 500:
                wrong.append((column, record[:200], want, values, reason, detail))
        elif not all(map(same, values, want)):
            wrong.append((column, record[:200], want, values, reason, detail))
    assert not wrong, f"{form}: {len(wrong)} of {len(records)}, such as {wrong[:8]}"
    assert sum(want is not None for want in wanted) > least * len(wanted)


def json_records(schema: dict[str, str], literals: Sequence[str]) -> tuple[list[str], list[str]]:
    pairs = [(name, f'{{"{name}":{literal}}}') for literal in literals for name in schema]
    return [name for name, _ in pairs], [record for _, record in pairs]


def limits(chance: random.Random) -> list[str]:
    """As they stand in JSON: what may be a number also as one."""
    written = [*NUMBERS, *TIMES, *OTHERS]
    return [*NUMBERS, *(json.dumps(text, ensure_ascii=False) for text in written), *RAW]


def run_json(spark: SparkSession, literals: Sequence[str], zone: str = "UTC") -> None:
    schema = {**SCALARS, **NESTED}
    columns, records = json_records(SCALARS, literals)
    more, deeper = json_records(NESTED, RAW)
    columns, records = [*columns, *more], [*records, *deeper]
    with in_zone(spark, zone):
        found = decoded(spark, "json", schema, records)
    check("json", columns, records, [json_wanted(schema, record, zone) for record in records], found, least=0.05)


def run_csv(spark: SparkSession, written: Sequence[str], zone: str = "UTC") -> None:
    places = list(SCALARS)
    written = [text for text in written if text]  # nothing between two commas is NULL
    columns = [name for _ in written for name in SCALARS]
    records = [",".join(in_csv(text) if one == name else "" for one in places) for text in written for name in SCALARS]
    wanted: list[list[Any] | None] = []
    for text in written:
        for name, kind in SCALARS.items():
            try:
                value = of_line(kind, whole(text), zone)
                wanted.append([value if one == name else None for one in places])
            except Refused:
                wanted.append(None)
    with in_zone(spark, zone):
        found = decoded(spark, "csv", SCALARS, records)
    check("csv", columns, records, wanted, found, least=0.05)


def test_json_values_at_the_limits_of_every_type(spark: SparkSession) -> None:
    run_json(spark, limits(random.Random(1)))


def test_csv_values_at_the_limits_of_every_type(spark: SparkSession) -> None:
    run_csv(spark, [*NUMBERS, *TIMES, *OTHERS])


def test_times_without_an_offset_are_of_the_session_zone(spark: SparkSession) -> None:
    schema = {"t": "TIMESTAMP", "tn": "TIMESTAMP_NTZ"}
    columns, records = json_records(schema, [json.dumps(text) for text in TIMES])
    with in_zone(spark, "Europe/Berlin"):
        found = decoded(spark, "json", {"t": "TIMESTAMP"}, records)
    wanted = [json_wanted({"t": "TIMESTAMP"}, record, "Europe/Berlin") for record in records]
    check("json", columns, records, wanted, found, least=0.3)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("seed", "zone"), [(1, "UTC"), (2, "Europe/Berlin"), (3, "America/St_Johns"), (4, "Asia/Kolkata")]
)
def test_random_values_of_every_type(spark: SparkSession, seed: int, zone: str) -> None:
    chance = random.Random(seed)
    written = texts(chance, 3_000)
    run_json(spark, [in_json(text, chance) for text in written], zone)
    run_csv(spark, written, zone)


CONNECT, DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
UNITS = {"Timestamp": 1000, "MicroTimestamp": 1, "NanoTimestamp": 0}
CHANGED = {
    "t": "TIMESTAMP",
    "tn": "TIMESTAMP_NTZ",
    "da": "DATE",
    "n5": "DECIMAL(5,2)",
    "n38": "DECIMAL(38,0)",
    "n38s": "DECIMAL(38,38)",
    "i64": "BIGINT",
    "d": "DOUBLE",
}


def counts() -> list[int]:
    edges = [FIRST, LAST, FIRST // 1000, LAST // 1000, FIRST * 1000, LAST * 1000, -719162, 2932896, 2**31, 2**53, 2**63]
    return [
        0,
        1,
        -1,
        999,
        1000,
        *(sign * edge + step for edge in edges for step in (-1, 0, 1, 1000) for sign in (1, -1)),
    ]


def counted(kind: str, value: int, unit: int) -> int:
    """A time of that many units; `unit` is its microseconds, or 0 for nanoseconds."""
    if not -(2**63) <= value < 2**63 or (unit == 0 and value % 1000):  # an int64, by its schema
        raise Refused
    return bounded(value * unit if unit else value // 1000)


def bounded(micros: int) -> int:
    if not FIRST <= micros <= LAST:
        raise Refused
    return micros


def unscaled(kind: str, value: int, scale: int) -> Any:
    return of_json(kind, f"{value}e{-scale}")


def envelope(column: str, value: str, meaning: dict[str, Any] | None) -> str:
    image = {"type": "struct", "field": "after", "fields": [{"field": column, **(meaning or {"type": "struct"})}]}
    part = json.dumps({"type": "struct", "fields": [image]}) if meaning is not None else "null"
    source = '{"connector":"other","ts_ms":1767225600123}'
    return f'{{"schema":{part},"payload":{{"op":"c","after":{{"{column}":{value}}},"source":{source}}}}}'


def changes() -> Iterator[tuple[str, str, Any]]:
    """Column, record, and a function that gives the value."""
    for number in counts():
        for column in ("t", "tn"):
            for name, unit in UNITS.items():
                record = envelope(column, str(number), {"type": "int64", "name": DEBEZIUM + name})
                yield column, record, lambda number=number, unit=unit, column=column: counted(column, number, unit)
        for name in (DEBEZIUM + "Date", CONNECT + "Date"):
            record = envelope("da", str(number), {"type": "int32", "name": name})
            yield "da", record, lambda number=number: bounded(number * 86_400_000_000) // 86_400_000_000
    for number in (0, 1, -1, 127, -128, 10**5, 99999, 10**37, 10**38 - 1, -(10**38) + 1, 10**38, 10**60, 2**10_000):
        content = base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()
        for column in ("n5", "n38", "n38s"):
            for scale in (0, 1, 2, -2, 38, 39, 60, -38, 100_000, 2**31 - 1, -(2**31)):
                meaning = {"type": "bytes", "name": CONNECT + "Decimal", "parameters": {"scale": str(scale)}}
                wanted = lambda column=column, number=number, scale=scale: unscaled(CHANGED[column], number, scale)  # noqa: E731
                yield column, envelope(column, json.dumps(content), meaning), wanted
                yield column, envelope(column, json.dumps({"scale": scale, "value": content}), None), wanted
    for text in TIMES:
        written = json.dumps(text)
        zoned = {"type": "string", "name": DEBEZIUM + "ZonedTimestamp"}
        yield "t", envelope("t", written, zoned), lambda text=text: of_json("TIMESTAMP", text)
        yield "tn", envelope("tn", written, zoned), lambda text=text: of_json("TIMESTAMP_NTZ", text)
        local = text.removesuffix("Z")
        for meaning in ({"type": "string", "name": DEBEZIUM + "IsoTimestamp"}, None):
            yield "tn", envelope("tn", written, meaning), lambda local=local: of_json("TIMESTAMP_NTZ", local)
        day = text.removesuffix("Z") if len(text) == 11 else text
        yield "da", envelope("da", written, {"type": "string"}), lambda day=day: of_json("DATE", day)
    for text in NUMBERS:
        for column in ("i64", "d", "n5", "n38"):
            record = envelope(column, text, {"type": "double"})
            yield (
                column,
                record,
                lambda text=text, column=column: of_json(CHANGED[column], parsed(f'{{"a":{text}}}')["a"]),
            )


def test_debezium_values_at_the_limits_of_every_type(spark: SparkSession) -> None:
    cases = list(changes())
    records = [record for _, record, _ in cases]
    wanted: list[list[Any] | None] = []
    for column, record, of in cases:
        try:
            parsed(record)
            value = of()
            wanted.append([value if name == column else None for name in CHANGED])
        except Refused:
            wanted.append(None)
    found = decoded(spark, "debezium", CHANGED, records)
    check("debezium", [f"after.{column}" for column, _, _ in cases], records, wanted, found, least=0.1)


def large() -> list[tuple[str, str, Any]]:
    """Column, value in JSON, and what becomes of it: a value, or None."""
    size = 1_000_000
    ten = "1" + "0" * size
    cases: list[tuple[str, str, Any]] = []
    for column in ("i64", "n5", "n38", "d", "f"):
        for text in ("9" * size, ten, f"0.{'0' * size}1", "1e1000000000", "1e-1000000000", f"1e{'9' * size}"):
            cases.append((column, text, None))
        one: Any = Decimal(1) if column in ("n5", "n38") else 1.0 if column in ("d", "f") else 1
        cases.append((column, f"{ten}e-{size}", one))
        cases.append((column, f"0.{'0' * size}1e{size + 1}", one))
    return cases


@pytest.mark.parametrize("form", ["json", "csv"])
def test_huge_numbers_take_no_time(spark: SparkSession, form: str) -> None:
    cases = large()
    schema = {name: SCALARS[name] for name in ("i64", "n5", "n38", "d", "f")}
    if form == "json":
        records = [f'{{"{column}":{text}}}' for column, text, _ in cases]
        deep = 100_000
        records += [f'{{"{column}":{"[" * deep}{"]" * deep}}}' for column in schema]
        records += [f'{{"other":{{"a":{"9" * 1_000_000}}}}}', '{"n5":"' + "9" * 1_000_000 + '"}']
    else:
        records = [",".join(text if one == column else "" for one in schema) for column, text, _ in cases]
        records += ["," * 30_000, '"' + "," * 1_000_000]
    began = time.monotonic()
    found = decoded(spark, form, schema, records)
    assert time.monotonic() - began < LONGEST
    for (column, text, want), (values, reason, detail) in zip(cases, found, strict=False):
        if want is None:
            assert reason in ("out_of_range", "wrong_type") and detail and detail.startswith(column), text[:50]
        else:
            assert values is not None and values[list(schema).index(column)] == want, (column, text[:50], detail)
    assert all(reason is None or reason != "decode_failed" for _, reason, _ in found)


def private(jvm: Any, thing: Any, name: str) -> Any:
    """A field that is nobody's business, or what a method of a record gives."""
    kind = thing.getClass()
    for field in kind.getDeclaredFields():
        if field.getName() == name:
            field.setAccessible(True)
            return field.get(thing)
    raise AssertionError(f"{kind.getName()} has no {name}")


def test_whatever_a_decoder_throws_is_the_reason_of_its_record(spark: SparkSession) -> None:
    """Decoders that were broken on purpose: they have no reader for the second column."""
    from pyspark.sql import functions as F

    jvm: Any = spark.sparkContext._jvm
    text = jvm.org.apache.spark.unsafe.types.UTF8String.fromString

    def target(column: Any) -> Any:
        return jvm.org.apache.spark.sql.classic.ExpressionUtils.expression(column).targetObject().value()

    def broken(fields: Any) -> None:
        jvm.java.lang.reflect.Array.set(private(jvm, fields, "values"), 1, None)

    def reason(row: Any) -> tuple[str, str]:
        last = row.numFields() - 1
        return str(row.getUTF8String(last - 1)), str(row.getUTF8String(last))

    value, ddl = F.col("v")._jc, "id BIGINT, c STRUCT<a: INT, b: INT>"
    decoder = target(jvm.penstock.json.Decoder.column(value, ddl, "UTC", False, False, []))
    broken(private(jvm, decoder, "fields"))
    record = '{"id": 1, "c": {"a": 1}}'
    found = reason(decoder.decode(text(record)))
    assert found[0] == "decode_failed" and found[1].startswith("c: cannot be decoded: NullPointerException")
    assert reason(decoder.decode(text('{"id": 1}'))) == ("None", "None")

    changes = target(jvm.penstock.json.Changes.column(value, value, ddl, "UTC", False, "", "", ""))
    broken(private(jvm, private(jvm, private(jvm, changes, "schema"), "plain"), "whole"))
    found = reason(changes.decode(text(f'{{"after": {record}, "op": "c"}}'), None))
    assert found[0] == "decode_failed" and found[1].startswith("after.c: cannot be decoded: NullPointerException")

    cells = target(jvm.penstock.json.Cells.column(value, "id BIGINT, c INT", "UTC"))
    short = jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(1)
    found = reason(cells.decode(short))
    assert found[0] == "decode_failed" and found[1].startswith("c: cannot be decoded: ArrayIndexOutOfBounds")
