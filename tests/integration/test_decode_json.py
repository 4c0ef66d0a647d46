"""Hostile JSON: every record is either a row or rejected, once, with a reason that a person understands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FLAT = (
    "id BIGINT NOT NULL, amount DECIMAL(5,2), ts TIMESTAMP, d DATE, name STRING, ok BOOLEAN, x DOUBLE, f FLOAT, n INT"
)
NESTED = (
    f"{FLAT}, c STRUCT<a: STRING, z: DECIMAL(4,1), t: TIMESTAMP>, xs ARRAY<TIMESTAMP>, m MAP<STRING, DECIMAL(4,1)>, "
    "ss ARRAY<STRUCT<q: INT NOT NULL>>"
)
GOOD = [
    '{"id":1,"amount":1.23,"ts":"2026-01-01T10:00:00Z","d":"2026-01-01","name":"a","ok":true,"x":1.5,"f":2.5,"n":3}',
    '{"id":1}',
    '{"id":1,"unknown":5}',
    '{"id":1,"name":"has } a brace"}',
    '{"id":1,"name":"\\"id\\":1"}',
    '{ "id" : 1 , "amount" : 1 }\n',
    '{"id":1,"amount":"12.5"}',
    '{"id":1,"name":"[not an array]"}',
    '{"id":1,"name":12}',
    '{"id":1,"name":1.5,"unknown":{"a":1}}',
    '{"id":1,"name":"a\\u0000b"}',
    '{"id":1,"name":"é中😀"}',
    '{"id":1,"ts":"0001-01-01T00:00:00Z"}',
    '{"id":1,"ts":"9999-12-31T23:59:59.999999Z"}',
    '{"id":-9223372036854775808}',
    '{"id":-0,"amount":-0.00,"x":1,"f":-1e-40,"n":2147483647}',
    '{"id":1,"amount":"+1.50","name":true}',
    '{"id":1,"amount":1.2300000e2,"name":"\\ud83d\\ude00"}',
    '{"id":1,"amount":999.99,"ts":"2026-01-01 10:00:00.123456+02:00"}',
    '{"id":1.0,"n":1e2,"amount":100e-2,"x":9007199254740992,"f":16777216}',
    '{"id":1,"d":"0001-01-01","ts":"2026-01-01t10:00z"}',
    '{"id":1,"d":"9999-12-31","ts":"2026-01-01 10:00:00.123456000+0200"}',
    '{"id":1,"amount":1' + "0" * 100_000 + "e-100000}",
    '{"id":1,"name":"' + "x" * 10_000_000 + '"}',
    '{"id":1,"name":"' + "y" * 17_000_000 + '"}',
]
BAD = [
    (None, "no_value", "value is null"),
    ("", "empty_value", "value is empty"),
    ("  ", "empty_value", "value is empty"),
    ("nope", "malformed_json", "nope"),
    ("{", "malformed_json", "{"),
    ("{'id':1}", "malformed_json", "{'id':1}"),
    ('{"id":1,"name":"a\x00b"}', "malformed_json", "not JSON"),
    ('{"id":1,"x":NaN}', "malformed_json", "NaN"),
    ('\ufeff{"id":1}', "malformed_json", "not JSON"),
    ("null", "not_an_object", "null"),
    ("[1]", "not_an_object", "[1]"),
    ("5", "not_an_object", "5"),
    ('"s"', "not_an_object", '"s"'),
    ('{"id":"12"}', "wrong_type", 'id: "12" is not of type BIGINT'),
    ('{"id":1.5}', "out_of_range", "id: 1.5 does not fit BIGINT"),
    ('{"id":99999999999999999999}', "out_of_range", "id: 99999999999999999999 does not fit BIGINT"),
    ('{"id":1,"n":2147483648}', "out_of_range", "n: 2147483648 does not fit INT"),
    ('{"id":1,"amount":1.239}', "out_of_range", "amount: 1.239 does not fit DECIMAL(5,2)"),
    ('{"id":1,"amount":12345.6}', "out_of_range", "amount: 12345.6 does not fit DECIMAL(5,2)"),
    ('{"id":1,"amount":"abc"}', "wrong_type", 'amount: "abc" is not of type DECIMAL(5,2)'),
    ('{"id":1,"x":1e400}', "out_of_range", "does not fit DOUBLE"),
    ('{"id":1,"f":1e39}', "out_of_range", "does not fit FLOAT"),
    ('{"id":1,"x":"Infinity"}', "wrong_type", "x:"),
    ('{"id":1,"ok":"true"}', "wrong_type", 'ok: "true" is not of type BOOLEAN'),
    ('{"id":1,"ok":1}', "wrong_type", "ok: 1 is not of type BOOLEAN"),
    ("{}", "missing_field", "id is missing or null"),
    ('{"ID":1}', "missing_field", "id is missing or null"),
    ('{"id":null}', "missing_field", "id is missing or null"),
    ('{"id":1} garbage', "trailing_data", "behind the object"),
    ('{"id":1}{"id":2}', "trailing_data", "behind the object"),
    ('{"id":1} x}', "trailing_data", "behind the object"),
    ('{"id":1},{"id":2}', "trailing_data", 'behind the object: ,{"id":2}'),
    ('{"id":1,"id":2}', "duplicate_field", "id is there twice"),
    ('{"id":1,"name":{"a":1}}', "wrong_type", 'name: {"a":1} is not of type STRING'),
    ('{"id":1,"name":[1]}', "wrong_type", "name: [1] is not of type STRING"),
    ('{"id":{"a":1}}', "wrong_type", 'id: {"a":1} is not of type BIGINT'),
    ('{"id":[1]}', "wrong_type", "id: [1] is not of type BIGINT"),
    ('{"id":1,"amount":true}', "wrong_type", "amount: true is not of type DECIMAL(5,2)"),
    ('{"id":1,"ts":"yesterday"}', "wrong_type", 'ts: "yesterday" is not of type TIMESTAMP'),
    ('{"id":1,"ts":{"a":1}}', "wrong_type", "is not of type TIMESTAMP"),
    ('{"id":1,"ts":1700000000}', "wrong_type", "ts: 1700000000 is not of type TIMESTAMP"),
    ('{"id":1,"ts":"12:30"}', "wrong_type", 'ts: "12:30" is not of type TIMESTAMP'),
    ('{"id":1,"ts":"T12:34-01"}', "wrong_type", "is not of type TIMESTAMP"),
    ('{"id":1,"ts":"2026"}', "wrong_type", "is not of type TIMESTAMP"),
    ('{"id":1,"ts":"99999-01-01"}', "out_of_range", "does not fit TIMESTAMP"),
    ('{"id":1,"ts":"2026-13-45"}', "out_of_range", "does not fit TIMESTAMP"),
    ('{"id":1,"ts":"9999-12-31T23:59:59-10:00"}', "out_of_range", "does not fit TIMESTAMP"),
    ('{"id":1,"d":"2026-02-30"}', "out_of_range", "does not fit DATE"),
    ('{"id":1,"d":"2026-02-01T10:00"}', "out_of_range", "does not fit DATE"),
    ('{"id":1,"name":"\\ud800"}', "malformed_json", "name: half of a character"),
    ('{"id":1,"name":"\\udc00\\ud800 "}', "malformed_json", "half of a character"),
    ('{"id":1,"other":{"a":1,"a":2}}', "duplicate_field", "other.a is there twice"),
    ('{"id":1,"' + "n" * 2000 + '":5,"' + "n" * 2000 + '":5}', "duplicate_field", "n" * 500),
    ('{"id":1,"other":5,"other":5}', "duplicate_field", "other is there twice"),
    ('{"id":1,"other":' + "[" * 2000 + "]" * 2000 + "}", "malformed_json", "nested deeper than 1000 levels"),
    ('{"id":' + "9" * 100_000 + "}", "out_of_range", "does not fit BIGINT"),
    ('{"id":1,"amount":1' + "0" * 100_000 + "}", "out_of_range", "does not fit DECIMAL(5,2)"),
    ('{"id":1,"amount":100e2147483647}', "out_of_range", "amount: 100e2147483647 does not fit DECIMAL(5,2)"),
    ('{"id":1,"amount":"100e2147483647"}', "out_of_range", 'amount: "100e2147483647" does not fit DECIMAL(5,2)'),
    ('{"id":1,"amount":0.01e-2147483648}', "out_of_range", "amount: 0.01e-2147483648 does not fit DECIMAL(5,2)"),
    ('{"id":100e2147483647}', "out_of_range", "id: 100e2147483647 does not fit BIGINT"),
    ('{"id":1,"x":9007199254740993}', "out_of_range", "x: 9007199254740993 does not fit DOUBLE"),
    ('{"id":1,"x":1e-400}', "out_of_range", "x: 1e-400 does not fit DOUBLE"),
    ('{"id":1,"f":-1e-50}', "out_of_range", "f: -1e-50 does not fit FLOAT"),
    ('{"id":1,"f":16777217}', "out_of_range", "f: 16777217 does not fit FLOAT"),
    ('{"id":1,"ts":"2026-01-01 10:00:00Z "}', "out_of_range", "does not fit TIMESTAMP"),
    ('{"id":1,"ts":"2026-01-01T10:00:00.1234567Z"}', "out_of_range", "does not fit TIMESTAMP"),
    ('{"id":1,"ts":"2026-01-01T24:00:00Z"}', "out_of_range", "does not fit TIMESTAMP"),
    ('{"id":1,"ts":"2026-06-30T23:59:60Z"}', "out_of_range", "does not fit TIMESTAMP"),
    ('{"id":1,"ts":"2026-01"}', "out_of_range", "does not fit TIMESTAMP"),
    ('{"id":1,"d":"999999-1-1"}', "out_of_range", 'd: "999999-1-1" does not fit DATE'),
    ('{"id":1,"d":"12345-1-01"}', "out_of_range", "does not fit DATE"),
    ('{"id":1,"d":"0000-01-01"}', "out_of_range", "does not fit DATE"),
    ('{"id":1,"d":"2026-1-1Tx"}', "out_of_range", "does not fit DATE"),
    ('{"id":1,"d":"+2026-1-01"}', "out_of_range", "does not fit DATE"),
    ('{"id":1,"d":"2026-1-1"}', "out_of_range", "does not fit DATE"),
    ('{"id":1,"amount":1e999999999}', "out_of_range", "does not fit DECIMAL(5,2)"),
    ('{"id":1,"amount":1e-999999999}', "out_of_range", "does not fit DECIMAL(5,2)"),
    ('{"id":1,"amount":"1e99999999999999"}', "out_of_range", "does not fit DECIMAL(5,2)"),
    ('{"id":1,"amount":""}', "wrong_type", 'amount: "" is not of type DECIMAL(5,2)'),
    ('{"id":1,"amount":"\u0661"}', "wrong_type", "is not of type DECIMAL(5,2)"),
    ('{"id":1,"amount":" 1"}', "wrong_type", "is not of type DECIMAL(5,2)"),
    ('{"id":1,"x":"1.5"}', "wrong_type", "is not of type DOUBLE"),
    ('{"id":"x","n":"y"', "malformed_json", "not JSON, at byte 17"),
    ('{"id":01}', "malformed_json", "not JSON"),
    ('{"id":1,}', "malformed_json", "not JSON"),
    ('{"id":.5}', "malformed_json", "not JSON"),
    ('{"id":1 /* one */}', "malformed_json", "not JSON"),
    ("\x00{", "malformed_json", "not JSON, at byte 0"),
    ('"s" t', "trailing_data", "behind the value: t"),
    ('{"id":1}\x00', "trailing_data", "behind the object"),
]
BAD_NESTED = [
    ('{"id":1,"c":{"a":"x","z":1.55}}', "out_of_range", "c.z: 1.55 does not fit DECIMAL(4,1)"),
    ('{"id":1,"c":{"a":"x","a":"y"}}', "duplicate_field", "c.a is there twice"),
    ('{"id":1,"c":5}', "wrong_type", "c: 5 is not of type STRUCT"),
    ('{"id":1,"c":{"t":"nope"}}', "wrong_type", 'c.t: "nope" is not of type TIMESTAMP'),
    ('{"id":1,"c":{"a":{"b":1}}}', "wrong_type", 'c.a: {"b":1} is not of type STRING'),
    ('{"id":1,"xs":["2026-01-01T00:00:00Z","bad"]}', "wrong_type", 'xs[1]: "bad" is not of type TIMESTAMP'),
    ('{"id":1,"xs":{"0":"2026-01-01"}}', "wrong_type", "is not of type ARRAY"),
    ('{"id":1,"m":{"k":1.55}}', "out_of_range", "m.k: 1.55 does not fit DECIMAL(4,1)"),
    ('{"id":1,"m":{"k":"zz"}}', "wrong_type", 'm.k: "zz" is not of type DECIMAL(4,1)'),
    ('{"id":1,"m":{"k":1,"k":1}}', "duplicate_field", "m.k is there twice"),
    ('{"id":1,"m":[1]}', "wrong_type", "m: [1] is not of type MAP"),
    ('{"id":1,"ss":[{"q":1},{"q":null}]}', "missing_field", "ss[1].q is missing or null"),
    ('{"id":1,"ss":[{}]}', "missing_field", "ss[0].q is missing or null"),
    ('{"id":1,"ss":[{"q":"v"}]}', "wrong_type", 'ss[0].q: "v" is not of type INT'),
]
GOOD_NESTED = [
    '{"id":1,"c":{"a":"x","z":1.5,"t":"2026-01-01T00:00:00Z"}}',
    '{"id":1,"xs":["2026-01-01T00:00:00Z"],"m":{"k":1.5}}',
    '{"id":1,"ss":[{"q":1}]}',
]
SCHEMA = (
    "key STRING, key_binary BINARY, value STRING, value_binary BINARY, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>, "
    "topic STRING, partition INT, offset BIGINT, kafka_timestamp TIMESTAMP, ingestion_timestamp TIMESTAMP"
)


def stages(schema: str) -> Any:
    from penstock.plan.build import build_plan
    from penstock.spec.project import Project
    from penstock.tables.pipeline import StagedPipeline

    tables = {
        "bronze.t": {"from": {"kafka": "t"}},
        "silver.t": {"from": {"table": "bronze.t"}, "decode": {"json": "value", "schema": schema}},
    }
    project = Project(name="t", lake="/lake", kafka={"bootstrap": "127.0.0.1:1"}, tables=tables)  # type: ignore[arg-type]
    return StagedPipeline(build_plan(project).tables[1])


def judged(spark: SparkSession, schema: str, values: list[str | None]) -> tuple[set[int], dict[int, tuple[str, str]]]:
    """Which of the values became rows, and what was said of the others."""
    from penstock.ledger.entry import Pins
    from penstock.tables.expectations import MAX_COLLECTED_BYTES

    rows = [(None, None, value, None, None, "t", 0, number, None, None) for number, value in enumerate(values)]
    staged = stages(schema)
    made = staged.run(spark.createDataFrame(rows, SCHEMA), Pins(0, "d"), {})
    good = [row[0] for row in made.rows.select("_source.offset").collect()]
    explained = staged.with_reasons(made.classified[0].rejected_rows())
    bad = [
        (row[0], (row[1], row[2])) for row in explained.select("_source.offset", "why.reason", "why.detail").collect()
    ]
    told = made.metrics[0].result()
    assert told is not None
    small = sum(len(values[number] or "") <= MAX_COLLECTED_BYTES for number, _ in bad)
    assert (told["read"], told["rejected"], told["brought"].size()) == (len(values), len(bad), small)
    assert len(good) + len(bad) == len(values) == len({*good, *dict(bad)}), "each record once"
    return set(good), dict(bad)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [(FLAT, GOOD, BAD), (NESTED, GOOD + GOOD_NESTED, BAD + BAD_NESTED)],
    ids=["flat", "nested"],
)
def test_every_record_is_a_row_or_rejected_with_its_reason(
    spark: SparkSession, schema: str, good: list[str], bad: list[tuple[str | None, str, str]]
) -> None:
    rows, rejected = judged(spark, schema, [*good, *(value for value, _, _ in bad)])
    assert rows == set(range(len(good)))
    wrong = []
    for number, (value, reason, detail) in enumerate(bad, start=len(good)):
        said = rejected[number]
        if said[0] != reason or detail not in said[1]:
            wrong.append((value, (reason, detail), said))
    assert not wrong
