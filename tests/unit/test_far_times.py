"""Times that a table can hold and Python cannot: years before 1 and after 9999."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from arro3.core import Array, DataType
from typer.testing import CliRunner

from penstock.cli.dlq import group
from penstock.storage.delta_rows import FarTime, micros_of, values_of
from tests.unit.hand_quarantines import make_plan, rejected, write

FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (LAST + 1, "+10000-01-01T00:00:00.000000Z"),
        (FIRST - 1, "0000-12-31T23:59:59.999999Z"),
        (1_760_000_000_000_000_000, "+57742-03-07T08:53:20.000000Z"),
        (2**63 - 1, "+294247-01-10T04:00:54.775807Z"),
        (-(2**63), "-290308-12-21T19:59:05.224192Z"),
    ],
)
def test_a_far_time_has_its_text(micros: int, text: str) -> None:
    assert FarTime(micros).text == text
    assert micros_of(FarTime(micros)) == micros


def test_a_column_with_any_time_is_read() -> None:
    numbers = Array([FIRST - 1, FIRST, 0, None, LAST, LAST + 1], DataType.int64())
    zoned = values_of(numbers.cast(DataType.timestamp("us", tz="UTC")))
    far = [FarTime(FIRST - 1), FarTime(LAST + 1)]
    last = datetime(9999, 12, 31, 23, 59, 59, 999999)
    assert zoned == [
        far[0],
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        None,
        last.replace(tzinfo=UTC),
        far[1],
    ]
    assert [micros_of(at) for at in zoned if at is not None] == [FIRST - 1, FIRST, 0, LAST, LAST + 1]
    local = values_of(numbers.cast(DataType.timestamp("us")))
    assert local[1:5] == [datetime(1, 1, 1), datetime(1970, 1, 1), None, last]
    assert local[5].text == "+10000-01-01T00:00:00.000000"
    days = Array([-719_163, -719_162, None, 2_932_896, 2_932_897, 20_370_370], DataType.int32()).cast(DataType.date32())
    texts = [None if one is None else str(one) for one in values_of(days)]
    assert texts == ["0000-12-31", "0001-01-01", None, "9999-12-31", "+10000-01-01", "+57742-03-07"]
    assert values_of(days)[3] == date(9999, 12, 31)


@pytest.mark.parametrize("micros", [FIRST - 1, FIRST, LAST, LAST + 1, 1_760_000_000_000_000_000])
def test_a_quarantine_with_any_kafka_timestamp_is_listed_and_shown(tmp_path: Path, micros: int) -> None:
    plan = make_plan(tmp_path)
    table = plan.table("silver.orders")
    assert table is not None
    write(table, rejected("wrong_type", "amount: x", kafka_timestamp=micros, ingestion_timestamp=micros))
    for words in (("list",), ("list", "--json"), ("show", "silver.orders"), ("show", "silver.orders", "--json")):
        done = CliRunner().invoke(group, [words[0], "-C", plan.root, *words[1:]], env={"COLUMNS": "100"})
        assert done.exit_code == 0, done.output
        assert "cannot be read" not in done.output
    (row,) = json.loads(done.stdout)["shown"]
    assert row["kafka_timestamp"][-1] == "Z" and row["kafka_timestamp"].lstrip("+")[:4].isdigit()
