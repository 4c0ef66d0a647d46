"""The sensors example: strict types and windows against a batch query over the raw zone."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock.dev.examples import EXAMPLES, copy_example
from penstock.dev.generate import events, produce
from tests.e2e.batch_query import (
    Lake,
    Record,
    Row,
    decimal,
    first_of_each,
    groups_of,
    judge,
    moment,
    out_of_order,
    text,
    whole,
    window,
)
from tests.e2e.run_demo import COUNT, DUPLICATES, MALFORMED, demonstrate

QUARTER = timedelta(minutes=15)


@pytest.mark.deep
def test_readings_and_windows_are_those_of_a_batch_query(tmp_path: Path) -> None:
    lake = demonstrate("sensors", tmp_path)
    records = lake.records("raw.sensors", "raw_payload")
    arrived = {(row["topic"], row["partition"], row["offset"]): row["arrived_at"] for row in lake.rows("raw.sensors")}
    judged = judge_readings(records)
    silver = first_of_each(judged.good, "sensor_id", "reading_id")
    assert (len(records), len(judged.bad), len(judged.good) - len(silver)) == (COUNT, MALFORMED, DUPLICATES)
    assert out_of_order(silver, "reading_ts") > COUNT // 100
    assert {row["site"] for row in silver.values() if row["_rescued"]} == {"Enschede"}
    lake.check("typed.readings", {at: {**row, "arrived_at": arrived[at]} for at, row in silver.items()})
    lake.check_quarantine("typed.readings", judged, records)

    windows = groups_of(
        silver.values(), lambda row: (window(row["reading_ts"], QUARTER), row["site"], row["sensor_id"])
    )
    expected = {group: {"window_end": group[0] + QUARTER, **_measured(rows)} for group, rows in windows.items()}
    lake.check_groups("gold.sensor_windows", ("window_start", "site", "sensor_id"), expected)


@pytest.mark.deep
def test_an_unknown_field_is_rescued_and_a_new_column_stops_only_the_strict_table(broker: Any, tmp_path: Path) -> None:
    project = copy_example(EXAMPLES["sensors"], tmp_path)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    produce(broker.bootstrap, "sensors", events("sensors", 500, start=start))
    lake = Lake(project)
    assert run_once(project, broker.bootstrap).returncode == 0
    typed = lake.rows("typed.readings")
    assert len(typed) == 500
    assert {row["_rescued"] for row in typed if row["site"] == "Enschede"} == {'{"firmware":"2.4.1"}'}
    assert {row["_rescued"] for row in typed if row["site"] != "Enschede"} == {None}

    schema = project / "schemas" / "reading.ddl"
    schema.write_text(schema.read_text() + ", firmware STRING\n")
    produce(broker.bootstrap, "sensors", events("sensors", 200, start=start, seed=7))
    stopped = run_once(project, broker.bootstrap)
    assert stopped.returncode == 3
    assert "typed.readings" in stopped.stdout and "firmware string" in stopped.stdout.lower(), stopped.stdout
    assert len(lake.rows("raw.sensors")) == 700, "the raw zone runs on"
    assert len(lake.rows("typed.readings")) == 500


def run_once(project: Path, bootstrap: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", "-C", str(project), "run", "--once"]
    environment = {**os.environ, "KAFKA_BOOTSTRAP": bootstrap}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)


def judge_readings(records: list[Record]) -> Any:
    decimals = ("temperature_c", "humidity_pct", "battery_pct")
    return judge(
        records,
        {
            **dict.fromkeys(("sensor_id", "site"), text),
            **dict.fromkeys(decimals, decimal),
            "reading_id": whole,
            "reading_ts": moment,
            "firmware": text,
        },
        required=("sensor_id", "reading_id", "temperature_c", "reading_ts"),
        expect=lambda row: -40 <= row["temperature_c"] <= 85 and 0 <= row["humidity_pct"] <= 100,
        made=_rescued,
    )


def _rescued(row: Row) -> Row:
    firmware = row.pop("firmware")
    return {**row, "_rescued": None if firmware is None else f'{{"firmware":"{firmware}"}}'}


def _measured(rows: list[Row]) -> Row:
    temperatures = [row["temperature_c"] for row in rows]
    average = sum(temperatures, Decimal(0)) / len(rows)
    return {
        "readings": len(rows),
        "temperature_min": min(temperatures),
        "temperature_avg": average.quantize(Decimal("0.000001"), ROUND_HALF_UP),
        "temperature_max": max(temperatures),
        "battery_pct": min(row["battery_pct"] for row in rows),
    }
