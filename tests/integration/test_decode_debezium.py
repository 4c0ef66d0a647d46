"""Debezium's envelopes: each is a row with its order, dropped, or rejected with a reason and a path."""

from __future__ import annotations

import base64
import json
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from tests.integration.debezium_envelopes import AFTER, AT, PLACEHOLDER, change, run, said, with_schema, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        "vitess": [
            {"ts_us": -2},
            {"ts_us": -1},
            {"op": "r", "ts_us": 5_000_000},
            {"ts_us": 5_000_000},
            {"ts_us": 5_000_001},
        ],
    }
    for connector, sources in ordered.items():
        found = positions(connector, *sources)
        assert found == sorted(found) and len(set(found)) == len(found), (connector, found)


def test_the_time_of_a_change_is_the_databases_before_the_connectors(spark: SparkSession) -> None:
    times = [
        change("c", AFTER),
        change("c", AFTER, source={"ts_us": None}),
        change("c", AFTER, source={"ts_us": 2**62}),
        change("c", AFTER, source={"ts_us": None, "ts_ms": 0}),
        change("c", AFTER, source={"ts_us": None, "ts_ms": None}, ts_us=7),
    ]
    rows = written(run(spark, times))
    assert [row["_changed_at"].replace(tzinfo=None) for row in rows] == [
        AT,
        AT.replace(microsecond=123000),
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
