"""Debezium's envelopes, hand-made: each is a row with its order, dropped, or rejected with a reason and a path."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "id BIGINT NOT NULL, name STRING NOT NULL, amount DECIMAL(9,2), ts TIMESTAMP, tn TIMESTAMP_NTZ, d DATE, ok BOOLEAN,"
    " b BINARY, x DOUBLE, f FLOAT, n INT, xs ARRAY<INT>, ss ARRAY<STRING>, ds ARRAY<DECIMAL(5,2)>, m MAP<STRING,STRING>"
)
TS_US = 1_767_225_600_123_456
AT = datetime(2026, 1, 1, 0, 0, 0, 123456)
SOURCE = {"connector": "postgresql", "lsn": 0x20, "sequence": '["16","32"]', "ts_ms": TS_US // 1000, "ts_us": TS_US}
AFTER = {"id": 1, "name": "a"}
PLACEHOLDER = "__debezium_unavailable_value"
DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "1"}}


def change(op: str | None = "c", after: Any = None, before: Any = None, **more: Any) -> dict[str, Any]:
    """As Debezium writes it, in its order of fields."""
    source = {**SOURCE, **more.pop("source", {})}
    return {"before": before, "after": after, "source": source, "transaction": None, "op": op, "ts_ms": 5, **more}


def with_schema(payload: dict[str, Any], **columns: dict[str, Any] | str) -> dict[str, Any]:
    """Beside its schema, in which only some columns stand."""
    fields = [{"field": k, **({"type": v} if isinstance(v, str) else v)} for k, v in columns.items()]
    images = [{"type": "struct", "fields": fields, "field": name} for name in ("before", "after")]
    return {"schema": {"type": "struct", "fields": [*images, {"type": "string", "field": "op"}]}, "payload": payload}


def text(name: str) -> dict[str, Any]:
    return {"type": "string", "name": name}


@dataclass(frozen=True)
class Outcome:
    """What a batch became, in the order of its records."""

    written: list[dict[str, Any]]
    rejected: list[tuple[str, str]]
    dropped: int
    unmet: int


def run(spark: SparkSession, values: Iterable[Any], *, keys: list[Any] | None = None, **table: Any) -> Outcome:
    """One batch of records with these values; `table` has further keys of decode, or whole stages."""
    from penstock.engine.protocol.entry import Pins
    from penstock.engine.stages.function import StagedTable
    from penstock.plan.build import build_plan
    from penstock.spec.project import Project
    from penstock.testing.given import records

    stages = {name: table.pop(name) for name in ("expect", "payload") if name in table}
    decode = {"debezium": "value", "schema": SCHEMA, **table}
    tables = {"silver.t": {"from": {"kafka": "t"}, "decode": decode, **stages}}
    project = Project(name="t", lake="/lake", kafka={"bootstrap": "127.0.0.1:1"}, tables=tables)  # type: ignore[arg-type]
    rows = [{"value": value, "key": key} for value, key in zip_longest(values, keys or [])]
    staged = StagedTable(build_plan(project).tables[0])
    made = staged.make(records(spark, rows, "t", 0).coalesce(1), Pins(0, "d"), {})
    written = [row.asDict() for row in made.rows.sort("_source.offset").collect()]
    explained = staged.explained(made.judged[0].rejected()).sort("_source.offset").select("why.*")
    rejected = [(row[0], row[1]) for row in explained.collect()]
    told = made.observed[0].result()
    assert told is not None
    assert len(rows) == told["read"] == len(written) + len(rejected) + told["dropped"]
    assert len(rejected) == told["rejected"]
    return Outcome(written, rejected, told["dropped"], sum(told[name] for name in told if name.startswith("unmet_")))


def written(outcome: Outcome) -> list[dict[str, Any]]:
    assert outcome.rejected == []
    return outcome.written


def said(outcome: Outcome) -> list[tuple[str, str]]:
    assert outcome.written == []
    return outcome.rejected


def test_operations_become_rows_with_and_without_a_schema_and_tombstones_are_dropped(spark: SparkSession) -> None:
    full = {"id": 1, "name": "old", "amount": 1}
    key = {"id": 7}
    schema_key = {"schema": {"type": "struct", "fields": [{"type": "int64", "field": "id"}]}, "payload": {"id": 8}}
    payload_first = dict(reversed(with_schema(change("u", {"id": 4, "name": "n"})).items()))
    records = [
        (None, change("r", AFTER)),
        (None, with_schema(change("c", {"id": 2, "name": "n", "gone": 1}), id="int64")),
        (None, {"schema": None, "payload": change("u", {"id": 3, "name": "n"}, full)}),
        (None, payload_first),
        (key, change("d", None, {"id": 7, "name": "", "amount": "AA=="})),
        (schema_key, with_schema(change("d"), id="int64")),
        (None, None),
        (key, None),
        (None, change("t")),
        (None, change("d", None, full, source={"connector": "mysql", "file": "b.000012", "pos": 5, "row": 1})),
        (key, change("d", source={"connector": "mysql", "file": "b.000012", "pos": 5})),
    ]
    expectation = [{"name": "known", "check": "_op = 't' OR id IS NOT NULL"}]
    outcome = run(spark, [value for _, value in records], keys=[key for key, _ in records], expect=expectation)
    rows = written(outcome)
    assert (outcome.dropped, outcome.unmet) == (2, 0)
    assert [(row["_op"], row["id"], row["name"], row["amount"]) for row in rows] == [
        ("r", 1, "a", None),
        ("c", 2, "n", None),
        ("u", 3, "n", None),
        ("u", 4, "n", None),
        ("d", 7, None, None),  # PostgreSQL sent the key alone: the rest of `before` is Debezium's
        ("d", 8, None, None),
        ("t", None, None, None),
        ("d", 1, "old", Decimal("1.00")),
        ("d", 7, None, None),
    ]
    assert {row["_changed_at"].replace(tzinfo=None) for row in rows} == {AT}
    (whole,) = written(run(spark, [change("d", None, full)], keys=[key], before="full"))
    assert (whole["id"], whole["name"], whole["amount"]) == (1, "old", Decimal("1.00"))


def test_what_is_no_change_is_rejected_with_its_path(spark: SparkSession) -> None:
    good = json.dumps(change("c", AFTER))
    values: list[tuple[Any, str, str]] = [
        ("", "empty_value", "value is empty"),
        ("{", "malformed_json", "not JSON"),
        ("[1]", "not_an_object", "[1]"),
        (good + " x", "trailing_data", "behind the object"),
        (good[:-1] + ', "op": "d"}', "duplicate_field", "op is there twice"),
        (good.replace('"id": 1', '"id": 1, "id": 2'), "duplicate_field", "after.id is there twice"),
        (good.replace('"lsn"', '"ts_ms"'), "duplicate_field", "source.ts_ms is there twice"),
        (good[:-1], "malformed_json", "not JSON"),
        ('{"id": 1, "name": "flat"}', "missing_field", "op is missing: that is no change"),
        ({"schema": None, "payload": None}, "no_value", "payload is not an object"),
        (change(None, AFTER), "missing_field", "op is missing"),
        (change("m", AFTER, message={}), "unknown_operation", "op: m is none of c, r, u, d and t"),
        (change("x", {"id": "x"}), "unknown_operation", "op: x"),
        (change("c"), "missing_field", "after is missing or null"),
        (change("u", None, AFTER), "missing_field", "after is missing or null"),
        (change("c", [1]), "wrong_type", "after is not an object"),
        (change("c", {"id": 1}), "missing_field", "after.name is missing or null"),
        (change("r", {"id": None, "name": "n"}), "missing_field", "after.id is missing or null"),
        (with_schema(change("c", {"id": 1}), id="int64"), "missing_field", "after.name is missing or null"),
        (change("c", {**AFTER, "n": "5"}), "wrong_type", 'after.n: "5" is not of type INT'),
        (with_schema(change("c", {**AFTER, "xs": [1, True]})), "wrong_type", "after.xs[1]: true is not of type INT"),
        (change("c", {**AFTER, "name": 5}), "wrong_type", "after.name: 5 is not of type STRING"),
        (change("c", AFTER, source={"lsn": None}), "no_position", "source.lsn is missing"),
        (change("c", AFTER, source={"lsn": "x"}), "no_position", "source.lsn: x is not a whole number"),
        (change("c", AFTER, source={"connector": "mysql", "pos": 3}), "no_position", "source.file is missing"),
        (change("d"), "no_key", "nothing is known"),
        (change("d", None, {"id": 1}), "no_key", "(then write before: full)"),
        (change("u", {**AFTER, "name": PLACEHOLDER}), "unavailable_value", f'after.name: "{PLACEHOLDER}" stands for'),
        (change("u", {**AFTER, "ss": [PLACEHOLDER]}), "unavailable_value", "after.ss[0]: "),
        (change("u", {**AFTER, "xs": list(PLACEHOLDER.encode())}), "unavailable_value", "after.xs: [95"),
        (change("u", {**AFTER, "m": {PLACEHOLDER: PLACEHOLDER}}), "unavailable_value", "REPLICA IDENTITY FULL"),
        (
            change("u", {**AFTER, "b": base64.b64encode(PLACEHOLDER.encode()).decode()}),
            "unavailable_value",
            "after.b: ",
        ),
    ]
    found = said(run(spark, [value for value, _, _ in values]))
    wrong = [(a, b) for (_, *a), b in zip(values, found, strict=True) if a[0] != b[0] or a[1] not in b[1]]
    assert not wrong
    keys: list[Any] = ["text", {"other": 1}, {"id": "x"}, {"id": None}, "[1]", '{"id": 1']
    reasons = said(run(spark, [change("d", None, {"id": 1})] * len(keys), keys=keys))
    assert [reason for reason, _ in reasons] == ["no_key", "no_key", "wrong_type", "no_key", "no_key", "no_key"]
    assert reasons[2][1] == 'key.id: "x" is not of type BIGINT'


def test_bytes_that_are_not_text_are_rejected_not_dropped(spark: SparkSession) -> None:
    for payload in ("string", "binary"):
        outcome = run(spark, [b"\xff", None, change("c", AFTER)], payload=payload)
        assert [reason for reason, _ in outcome.rejected] == ["not_utf8"]
        assert (len(outcome.written), outcome.dropped) == (1, 1)
        deleted = run(spark, [change("d")], keys=[{"id": 3}], payload=payload)
        assert [row["id"] for row in written(deleted)] == [3]


def test_values_mean_what_the_schema_part_says(spark: SparkSession) -> None:
    at = datetime(2024, 1, 2, 3, 4, 5, 123456)
    millis, micros = 1_704_164_645_123, 1_704_164_645_123_456
    time, kafka = "io.debezium.time.", "org.apache.kafka.connect.data."
    cases: list[tuple[str, Any, dict[str, Any], Any]] = [
        ("ts", micros, {"type": "int64", "name": time + "MicroTimestamp"}, at),
        ("tn", millis, {"type": "int64", "name": time + "Timestamp"}, at.replace(microsecond=123000)),
        ("ts", millis, {"type": "int64", "name": kafka + "Timestamp"}, at.replace(microsecond=123000)),
        ("tn", micros * 1000 + 7, {"type": "int64", "name": time + "NanoTimestamp"}, at),
        ("ts", 0, {"type": "int64", "name": time + "MicroTimestamp"}, datetime(1970, 1, 1)),
        ("ts", "2024-01-02T01:04:05.123456-02:00", text(time + "ZonedTimestamp"), at),
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


def test_positions_order_the_changes_of_a_database(spark: SparkSession) -> None:
    def positions(connector: str, *sources: dict[str, Any]) -> list[str]:
        """Each source may have an op; what comes before is what the database did before."""
        values = [
            change(source.pop("op", "u"), AFTER, source={"connector": connector, "lsn": None, **source})
            for source in ({**one} for one in sources)
        ]
        return [row["_position"] for row in written(run(spark, values))]

    def sequence(commit: int | None, lsn: int) -> dict[str, Any]:
        return {"lsn": lsn, "sequence": json.dumps([commit and str(commit), str(lsn)])}

    ordered = {
        "postgresql": [
            {"op": "r", **sequence(None, 90)},
            sequence(None, 95),
            sequence(96, 97),
            sequence(96, 103),
            {**sequence(104, 98), "snapshot": "false"},  # its transaction began before, and was committed after
            {"op": "r", **sequence(110, 300)},  # a snapshot amid the stream: what was committed since 110 comes after
            sequence(110, 109),
            {"op": "r", **sequence(None, 2**33)},
            {"lsn": 2**33 + 1, "sequence": None},
        ],
        "mysql": [
            {"file": "bin.000009", "pos": 900},
            {"op": "r", "file": "bin.000010", "pos": 4},
            {"file": "bin.000010", "pos": 4, "row": 0},
            {"file": "bin.000010", "pos": 4, "row": 1},
            {"file": "bin.000010", "pos": 20},
            {"file": "bin.1000000", "pos": 1},
        ],
        "sqlserver": [
            {"op": "r", "commit_lsn": "00000027:00000758:0003"},
            {"commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0001", "event_serial_no": 1},
            {"commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0001", "event_serial_no": 2},
            {"commit_lsn": "0000002a:00000001:0001", "change_lsn": "00000027:00000758:0002"},
        ],
        "oracle": [
            {"op": "r", "scn": "999"},
            {"scn": "998", "commit_scn": "1000", "ssn": 0},
            {"scn": "998", "commit_scn": "1000", "ssn": 1},
            {"scn": "997", "commit_scn": "1001"},
        ],
        "mongodb": [{"ts_ms": 1000, "ord": 9}, {"ts_ms": 1000, "ord": 10}, {"ts_ms": 2000, "ord": 1}],
        "vitess": [{"op": "r", "ts_us": 5_000_000}, {"ts_us": 5_000_000}, {"ts_us": 5_000_001}],
    }
    for connector, sources in ordered.items():
        found = positions(connector, *sources)
        assert found == sorted(found) and len(set(found)) == len(found), (connector, found)


def test_the_time_of_a_change_is_the_databases_before_the_connectors(spark: SparkSession) -> None:
    times = [
        change("c", AFTER),
        change("c", AFTER, source={"ts_us": None}),
        change("c", AFTER, source={"ts_us": None, "ts_ms": 0}),
        change("c", AFTER, source={"ts_us": None, "ts_ms": None}, ts_us=7),
    ]
    rows = written(run(spark, times))
    assert [row["_changed_at"].replace(tzinfo=None) for row in rows] == [
        AT,
        AT.replace(microsecond=123000),
        datetime(1970, 1, 1, 0, 0, 0, 5000),
        datetime(1970, 1, 1, 0, 0, 0, 7),
    ]
    assert said(run(spark, [change("c", AFTER, source={"ts_us": None, "ts_ms": None}, ts_ms=None)]))[0][0] == (
        "missing_field"
    )


def test_unknown_columns_are_rescued_and_others_kept(spark: SparkSession) -> None:
    values = [
        change("c", {"new": {"a": 1}, **AFTER, "more": None}),
        change("d", None, {**AFTER, "new": 2}),
        with_schema(change("d", None, {**AFTER, "new": 2})),
        change("t"),
    ]
    rows = written(run(spark, values, rescue=True, before="full", keep=["partition"]))
    assert [row["_rescued"] for row in rows] == ['{"new":{"a": 1},"more":null}', '{"new":2}', '{"new":2}', None]
    assert {row["partition"] for row in rows} == {0}
    assert list(rows[0])[-6:] == ["_op", "_changed_at", "_position", "_rescued", "partition", "_source"]


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
