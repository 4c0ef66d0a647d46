"""Values in Debezium's envelopes: they mean what the schema part says; where there is none, what the user says."""

from __future__ import annotations

import base64
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tests.integration.debezium_envelopes import AFTER, DECIMAL, change, run, said, text, with_schema, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_values_mean_what_the_schema_part_says(spark: SparkSession) -> None:
    at = datetime(2024, 1, 2, 3, 4, 5, 123456)
    millis, micros = 1_704_164_645_123, 1_704_164_645_123_456
    time, kafka = "io.debezium.time.", "org.apache.kafka.connect.data."
    cases: list[tuple[str, Any, dict[str, Any], Any]] = [
        ("ts", micros, {"type": "int64", "name": time + "MicroTimestamp"}, at),
        ("tn", millis, {"type": "int64", "name": time + "Timestamp"}, at.replace(microsecond=123000)),
        ("ts", millis, {"type": "int64", "name": kafka + "Timestamp"}, at.replace(microsecond=123000)),
        ("tn", micros * 1000, {"type": "int64", "name": time + "NanoTimestamp"}, at),
        ("ts", 0, {"type": "int64", "name": time + "MicroTimestamp"}, datetime(1970, 1, 1)),
        ("ts", "2024-01-02T01:04:05.123456-02:00", text(time + "ZonedTimestamp"), at),
        ("tn", "2024-01-02T03:04:05.123456Z", text(time + "IsoTimestamp"), at),
        ("d", 19782, {"type": "int32", "name": time + "Date"}, date(2024, 2, 29)),
        ("d", -1, {"type": "int32", "name": kafka + "Date"}, date(1969, 12, 31)),
        ("d", "2024-02-29Z", text(time + "IsoDate"), date(2024, 2, 29)),
        ("amount", "fQ==", DECIMAL, Decimal("12.50")),
        ("amount", "/w==", DECIMAL, Decimal("-0.10")),
        ("amount", 12.5, DECIMAL, Decimal("12.50")),
        ("amount", "1234", {"type": "string"}, Decimal("1234.00")),
        ("amount", {"scale": 4, "value": "BNH8"}, {"type": "struct"}, Decimal("31.59")),
        ("ds", ["fQ==", None], {"type": "array", "items": DECIMAL}, [Decimal("12.50"), None]),
        ("b", "AP8=", {"type": "bytes"}, b"\x00\xff"),
        ("m", {"k": "v", "e": None}, {"type": "map", "values": {"type": "string"}}, {"k": "v", "e": None}),
        ("n", 45_000, {"type": "int32", "name": time + "Time"}, 45_000),
        ("x", 1.5, {"type": "double"}, 1.5),
        ("name", 'q"\n😀', text("io.debezium.data.Json"), 'q"\n😀'),
    ]
    values = [with_schema(change("c", {**AFTER, name: value}), **{name: m}) for name, value, m, _ in cases]
    rows = written(run(spark, values))
    for (name, value, _, wanted), row in zip(cases, rows, strict=True):
        found = row[name]
        found = found.replace(tzinfo=None) if isinstance(found, datetime) else found
        found = dict(found) if name == "m" else found
        assert found == wanted, (name, value, found, wanted)
    refused: list[tuple[str, Any, dict[str, Any], str]] = [
        ("ts", micros, {"type": "int64"}, "wrong_type"),
        ("ts", 5, {"type": "int32", "name": time + "Date"}, "wrong_type"),
        ("d", 5, {"type": "int64", "name": time + "Timestamp"}, "wrong_type"),
        ("ts", 2**62, {"type": "int64", "name": time + "Timestamp"}, "out_of_range"),
        ("ts", 9223372036825200000, {"type": "int64", "name": time + "MicroTimestamp"}, "out_of_range"),
        ("ts", micros * 1000 + 7, {"type": "int64", "name": time + "NanoTimestamp"}, "out_of_range"),
        ("tn", "2024-01-02T03:04:05Z", text(time + "ZonedTimestamp"), "out_of_range"),
        ("amount", "fQ==", {**DECIMAL, "parameters": {"scale": "x"}}, "unknown_encoding"),
        ("amount", "fQ==", {**DECIMAL, "parameters": {}}, "unknown_encoding"),
        ("amount", "fQ==", {**DECIMAL, "parameters": {"scale": "-2147483648"}}, "out_of_range"),
        ("amount", "fQ==", {**DECIMAL, "parameters": {"scale": "2147483647"}}, "out_of_range"),
        ("amount", {"scale": -2147483648, "value": "fQ=="}, {"type": "struct"}, "out_of_range"),
        ("ts", "infinity", text(time + "ZonedTimestamp"), "wrong_type"),
        ("d", 2**31 - 1, {"type": "int32", "name": time + "Date"}, "out_of_range"),
        ("amount", "fQ==", {"type": "bytes"}, "wrong_type"),
        ("amount", "fQ", DECIMAL, "wrong_type"),
        ("amount", "////////////", {**DECIMAL, "parameters": {"scale": "3"}}, "out_of_range"),
        ("amount", "NaN", {"type": "string"}, "wrong_type"),
        ("amount", {"scale": 3, "value": "fQ=="}, {"type": "struct"}, "out_of_range"),
        ("amount", {"scale": 2}, {"type": "struct"}, "wrong_type"),
        ("name", "fQ==", DECIMAL, "wrong_type"),
        ("b", "00ff", {"type": "string"}, "wrong_type"),
    ]
    values = [with_schema(change("c", {**AFTER, name: value}), **{name: m}) for name, value, m, _ in refused]
    reasons = said(run(spark, values))
    assert [(reason, detail.split(":")[0]) for reason, detail in reasons] == [
        (reason, f"after.{name}") for name, _, _, reason in refused
    ]
    plain = with_schema(change("c", {**AFTER, "ts": millis}), ts="int64")
    assert written(run(spark, [plain], times="millis"))[0]["ts"].replace(tzinfo=None) == at.replace(microsecond=123000)


def test_without_a_schema_part_the_user_says_what_values_mean(spark: SparkSession) -> None:
    micros = 1_704_164_645_123_456
    at = datetime(2024, 1, 2, 3, 4, 5, 123456)

    def read(given: dict[str, Any], **decode: Any) -> list[Any]:
        """The column of each record, and then what was said of those that are none."""
        outcome = run(spark, [change("c", {**AFTER, k.rstrip("_"): v}) for k, v in given.items()], **decode)
        found = [row["amount"] or row["ts"] or row["tn"] for row in outcome.written]
        return [*found, *(reason for reason, _ in outcome.rejected)]

    assert read({"ts": micros, "tn": micros, "amount": {"scale": 1, "value": "fQ=="}, "amount_": 12.5}) == (
        [at, at, Decimal("12.50"), Decimal("12.50")]
    )
    # Milliseconds of now are microseconds of January 1970.
    assert read({"ts": micros // 1000, "tn": micros // 1000, "amount": "1234", "amount_": "12.5"}) == (
        ["unknown_encoding"] * 4
    )
    assert read({"ts": micros * 1000}) == read({"ts": micros}, times="millis") == ["out_of_range"]
    assert read({"ts": micros // 1000, "amount": "1234"}, times="millis", decimals="string") == (
        [at.replace(microsecond=123000), Decimal("1234.00")]
    )
    assert read({"ts": 1000, "amount": "BOI="}, times="micros", decimals="unscaled") == (
        [datetime(1970, 1, 1, 0, 0, 0, 1000), Decimal("12.50")]
    )
    assert read({"ts": micros * 1000}, times="nanos") == [at]
    values = {"d": 19782, "x": "NaN", "f": "-Infinity", "b": "AP8=", "ok": True, "ss": ["a", None]}
    (row,) = written(run(spark, [change("c", {**AFTER, **values})]))
    assert (row["d"], str(row["x"]), row["f"]) == (date(2024, 2, 29), "nan", float("-inf"))
    assert (bytes(row["b"]), row["ok"], list(row["ss"])) == (b"\x00\xff", True, ["a", None])


def test_many_schema_parts_are_told_apart(spark: SparkSession) -> None:
    size = 400
    scales = [number % 7 for number in range(size)]
    values = [
        with_schema(
            change("c", {**AFTER, "amount": base64.b64encode((10**scale).to_bytes(4, "big")).decode(), "n": number}),
            amount={**DECIMAL, "parameters": {"scale": str(scale)}, "doc": str(number)},
        )
        for number, scale in enumerate(scales)
    ]
    rows = written(run(spark, values))
    assert [row["n"] for row in rows] == list(range(size))
    assert {row["amount"] for row in rows} == {Decimal("1.00")}
