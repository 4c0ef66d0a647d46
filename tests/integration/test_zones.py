"""Zones whose clocks change: an hour that comes twice, one that is left out.

What travels from a batch to a condition is an instant, so every number is that of a plain computation over instants, in
whatever zone session and process are.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from penstock.errors import PenstockError
from penstock.plan.spark_settings import EXCLUDED_RULES, session_settings
from tests.integration.run_plan import rows, rows_at, run, run_well

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from penstock.plan.model import Plan

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000
WITHIN, EVERY, DELAY = 10 * MINUTE, 15 * MINUTE, 30 * MINUTE
SCHEMA = "key BIGINT, ts TIMESTAMP, nt TIMESTAMP_NTZ, d DATE, n BIGINT"
PLAIN, ONCE, LOCAL, DAYS_ONCE = "silver.plain", "silver.once", "silver.local", "silver.days"
NEAR = [
    0,
    1,
    11 * MINUTE,
    20 * MINUTE,
    29 * MINUTE,
    30 * MINUTE,
    47 * MINUTE,
    HOUR - 1,
    HOUR,
    90 * MINUTE,
    3 * HOUR,
    DAY,
]
"""Around the moment at which the clocks change."""


@dataclass(frozen=True)
class Event:
    key: int
    micros: int
    """The instant."""
    local: int
    """What a clock says that nobody changes: it shows times of the hour that is left out, too."""
    n: int

    @property
    def day(self) -> date:
        return date(1970, 1, 1) + timedelta(days=self.local // DAY)

    @property
    def record(self) -> dict[str, Any]:
        at, clock = (EPOCH + timedelta(microseconds=number) for number in (self.micros, self.local))
        times = {"ts": at.isoformat().replace("+00:00", "Z"), "nt": clock.replace(tzinfo=None).isoformat()}
        return {"key": self.key, **times, "d": self.day.isoformat(), "n": self.n}


def changes(zone: str, year: int = 2026) -> list[int]:
    """The instants at which the clocks of the zone change."""
    hours = [datetime(year, 1, 1, tzinfo=UTC) + timedelta(minutes=30 * step) for step in range(2 * 24 * 365)]
    offsets = [(hour, hour.astimezone(ZoneInfo(zone)).utcoffset()) for hour in hours]
    return [round((b[0] - EPOCH).total_seconds()) * SECOND for a, b in pairwise(offsets) if a[1] != b[1]]


def set_back(zone: str) -> int:
    """The instant at which an hour, or half of one, begins for the second time."""
    return next(at for at in changes(zone) if offset(zone, at) < offset(zone, at - 1))


def offset(zone: str, micros: int) -> timedelta:
    return (EPOCH + timedelta(microseconds=micros)).astimezone(ZoneInfo(zone)).utcoffset() or timedelta()


def events(zone: str, seed: int) -> list[Event]:
    """In the order of their time: around each change, and at the midnights before and after it; four keys each."""
    chance, found = random.Random(seed), []
    for change in changes(zone):
        standard = (
            round((datetime(2026, 1, 1, tzinfo=ZoneInfo(zone)).utcoffset() or timedelta()).total_seconds()) * SECOND
        )
        midnight = change - (change + standard) % DAY
        times = {change + sign * near for near in NEAR for sign in (1, -1)} | {midnight, midnight - 1, midnight + DAY}
        found += [(at, at + standard) for at in times]
    return [Event(chance.randrange(4), at, local, n) for n, (at, local) in enumerate(sorted(found))]


@contextmanager
def clocks_of(spark: SparkSession, session: str, process: str) -> Iterator[SparkSession]:
    """A session in one zone, in a process, Python and JVM, that is in another."""
    jvm = spark._jvm
    assert jvm is not None
    zones, before, was = jvm.java.util.TimeZone, jvm.java.util.TimeZone.getDefault(), os.environ.get("TZ")
    made = spark.newSession()
    settings = session_settings(
        master="local[2]", parallelism=2, local_lake=True, tables=1, unique=(), opaque=(), memory=None, zone=session
    )
    made.conf.set("spark.sql.session.timeZone", session)
    for setting in settings:
        if setting.name == EXCLUDED_RULES:
            made.conf.set(setting.name, setting.value)
    zones.setDefault(zones.getTimeZone(process))
    os.environ["TZ"] = process
    time.tzset()
    try:
        yield made
    finally:
        zones.setDefault(before)
        os.environ.pop("TZ")
        if was is not None:
            os.environ["TZ"] = was
        time.tzset()


class Lake:
    def __init__(self, spark: SparkSession, plan: Plan, broker: Any, topic: str) -> None:
        self.spark, self.plan, self._broker, self._topic = spark, plan, broker, topic
        self.sent: list[Event] = []

    def land(self, found: list[Event]) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self._broker.bootstrap})
        for event in found:
            producer.produce(self._topic, json.dumps(event.record), partition=0)
        assert producer.flush(30) == 0
        self.sent += found
        run_well(self.spark, self.plan)

    def numbers(self, table: str) -> Counter[int]:
        return Counter(row["n"] for row in rows(self.plan, table))


def micros(value: datetime | None) -> int | None:
    if value is None:
        return None
    return (value.replace(tzinfo=value.tzinfo or UTC) - EPOCH) // timedelta(microseconds=1)


def stays(found: list[Event], of: str) -> Counter[int]:
    """The first of a key, unless one that stays is near."""
    kept: dict[int, list[int]] = defaultdict(list)
    numbers: Counter[int] = Counter()
    for event in found:
        at = (event.local // DAY * DAY) if of == "day" else getattr(event, of)
        within = 3 * DAY if of == "day" else WITHIN
        if all(abs(at - one) > within for one in kept[event.key]):
            kept[event.key].append(at)
            numbers[event.n] += 1
    return numbers


def windows(found: list[Event], of: str, every: int) -> Counter[tuple[int, int, int]]:
    """Start, key, rows."""
    counted = Counter((getattr(event, of) // every * every, event.key) for event in found)
    return Counter((start, key, number) for (start, key), number in counted.items())


def gold(plan: Plan, table: str) -> Counter[tuple[Any, Any, int]]:
    return Counter((micros(row["window_start"]), row["key"], row["n"]) for row in rows(plan, table))


def tables(topic: str) -> dict[str, Any]:
    base = {"from": {"kafka": topic, "max_per_trigger": 1000}, "decode": {"json": "value", "schema": SCHEMA}}

    def aggregate(of: str, every: str, **more: Any) -> dict[str, Any]:
        made = {"keys": ["key"], "window": {"time": of, "every": every}, "metrics": {"n": "count(*)"}, **more}
        return {"from": {"table": PLAIN}, "aggregate": made}

    def merged(**merge: Any) -> dict[str, Any]:
        return {**base, "write": {"merge": merge}}

    final = {"emit": "final", "watermark": "30 min"}
    return {
        PLAIN: base,
        ONCE: {**base, "dedupe": {"keys": ["key"], "within": "10 min", "time": "ts"}},
        LOCAL: {**base, "dedupe": {"keys": ["key"], "within": "10 min", "time": "nt"}},
        DAYS_ONCE: {**base, "dedupe": {"keys": ["key"], "within": "3 days", "time": "d"}},
        "silver.by_time": {**base, "dedupe": {"keys": ["ts", "nt", "d"]}},
        "silver.scd1": merged(keys=["ts"], sequence="n"),
        "silver.local_keys": merged(keys=["nt", "d"], sequence="n"),
        "silver.scd2": merged(keys=["key"], sequence="ts", history="scd2"),
        "gold.hours": aggregate("ts", "15 minutes"),
        "gold.days": aggregate("ts", "1 day"),
        "gold.local": aggregate("nt", "15 minutes"),
        "gold.final": aggregate("ts", "15 minutes", **final),
        "gold.local_final": aggregate("nt", "15 minutes", **final),
    }


ZONES = [
    ("Europe/Berlin", "Europe/Berlin"),
    ("America/New_York", "UTC"),
    ("Australia/Lord_Howe", "America/New_York"),
    ("UTC", "Australia/Lord_Howe"),
]
"""Of the session, and of the process."""


@pytest.mark.deep
@pytest.mark.parametrize(("session", "process"), ZONES)
def test_the_numbers_are_those_of_instants(
    spark: SparkSession, broker: Any, topic: Any, project: Any, session: str, process: str
) -> None:
    name, seed = topic(partitions=1), random.randrange(10**6)
    print(f"seed {seed}")
    plan = project(tables(name))
    zone = session if session != "UTC" else process
    found, last = events(zone, seed), set_back(zone)
    # A batch must lie within the hour that comes twice: only then are its bounds there.
    twice = [e for e in found if last <= e.micros < last + HOUR and e.micros % MINUTE == 0]
    before, after = [e for e in found if e.micros < last], [e for e in found if e.micros >= last and e not in twice]
    parts = [before, twice, [replace(e, n=e.n + 10_000) for e in twice], after]
    with clocks_of(spark, session, process) as zoned:
        lake = Lake(zoned, plan, broker, name)
        for part in parts:
            lake.land(part)
    assert lake.numbers(PLAIN) == Counter(e.n for e in lake.sent)
    for table, of in ((ONCE, "micros"), (LOCAL, "local"), (DAYS_ONCE, "day")):
        assert lake.numbers(table) == stays(lake.sent, of), table
    for table, of, every in (
        ("gold.hours", "micros", EVERY),
        ("gold.days", "micros", DAY),
        ("gold.local", "local", EVERY),
    ):
        assert gold(plan, table) == windows(lake.sent, of, every), table
    for table, of in (("gold.final", "micros"), ("gold.local_final", "local")):
        check_closed(plan, table, of, parts)
    assert lake.numbers("silver.by_time") == Counter({e.micros: e.n for e in reversed(lake.sent)}.values())
    newest = {e.micros: e.n for e in lake.sent}
    assert Counter((micros(r["ts"]), r["n"]) for r in rows(plan, "silver.scd1")) == Counter(newest.items())
    last_of = {e.local: e.n for e in lake.sent}
    assert Counter((micros(r["nt"]), r["n"]) for r in rows(plan, "silver.local_keys")) == Counter(last_of.items())
    check_history(plan, lake.sent)


def check_closed(plan: Plan, table: str, of: str, parts: list[list[Event]]) -> None:
    """A batch per part: the windows that each closed, with the rows that were there then, and the late rows."""
    ended: Counter[tuple[int, int, int]] = Counter()
    known: list[Event] = []
    late, closed = 0, None
    for part in parts:
        known += part
        if closed is not None:
            late += sum(getattr(e, of) // EVERY * EVERY + EVERY <= closed for e in part)
        mark = max(getattr(e, of) for e in known) - DELAY
        for start, key, number in windows(known, of, EVERY):
            if (closed is None or start + EVERY > closed) and start + EVERY <= mark:
                ended[start, key, number] += 1
        closed = mark
    assert gold(plan, table) == ended, table
    made = plan.table(table)
    assert made is not None
    assert Counter(r["error_reason"] for r in rows_at(f"{made.uri}__quarantine")) == Counter({"late": late})


def check_history(plan: Plan, sent: list[Event]) -> None:
    by_key: dict[int, set[int]] = defaultdict(set)
    for event in sent:
        by_key[event.key].add(event.micros)
    expected = Counter(
        (key, start, end)
        for key, times in by_key.items()
        for start, end in zip(sorted(times), [*sorted(times)[1:], None], strict=True)
    )
    assert expected == Counter(
        (r["key"], micros(r["valid_from"]), micros(r["valid_to"])) for r in rows(plan, "silver.scd2")
    )


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe"])
def test_a_batch_within_the_hour_that_comes_twice_finds_its_rows(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    """What dedupe and aggregates read of a table, by bounds that lie in that hour."""
    from penstock.plan.stages import AggregatePlan, DedupePlan
    from penstock.tables.aggregate import _bounds, aggregate_groups, groups_of_batch, rows_in_groups
    from penstock.tables.dedupe import drop_duplicates, with_row_numbers

    change, uri = set_back(zone), str(tmp_path / "t")
    twice = [change + near for near in (0, 1, 11 * MINUTE, 29 * MINUTE, 29 * MINUTE + 59 * SECOND)]
    other = [at - HOUR for at in twice] + [change + 2 * HOUR]
    with clocks_of(spark, zone, "America/New_York") as zoned:

        def frame(times: list[int]) -> DataFrame:
            made = zoned.createDataFrame([(at,) for at in times], "id BIGINT")
            kinds = "timestamp_micros(id) AS ts", "CAST(timestamp_micros(id) AS TIMESTAMP_NTZ) AS nt"
            return made.selectExpr("id", *kinds, "id AS n")

        frame(twice + other).coalesce(1).write.format("delta").save(uri)
        there = zoned.read.format("delta").load(uri)
        for time_column in ("ts", "nt"):
            batch = with_row_numbers(frame(twice)).persist()
            dedupe = DedupePlan(("id",), 60_000, time_column)
            assert drop_duplicates(batch, dedupe, there).count() == 0, time_column
            plan = aggregate_of(AggregatePlan, time_column)
            groups = groups_of_batch(batch, plan).persist()
            found = aggregate_groups(rows_in_groups(there, groups, plan, _bounds(groups, plan)), plan)
            wanted = aggregate_groups(there, plan).join(groups, ["window_start", "window_end"], "left_semi")
            assert multiset(found) == multiset(wanted), time_column
            assert sum(row["n"] for row in found.collect()) >= len(twice)


@pytest.mark.deep
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Australia/Lord_Howe"])
def test_dedupe_by_times_as_keys_finds_the_copies_in_the_hour_that_comes_twice(
    spark: SparkSession, tmp_path: Path, zone: str
) -> None:
    """Also those whose TIMESTAMP_NTZ is a cast TIMESTAMP, which Spark's optimizer would compare as a TIMESTAMP."""
    from penstock.plan.stages import DedupePlan
    from penstock.tables.dedupe import drop_duplicates, with_row_numbers

    change, uri = set_back("Europe/Berlin" if zone == "UTC" else zone), str(tmp_path / "t")
    times = [change + near for near in (0, 1, 11 * MINUTE, 29 * MINUTE)]
    with clocks_of(spark, zone, "America/New_York") as zoned:
        kinds = "timestamp_micros(id) AS ts", "CAST(timestamp_micros(id) AS TIMESTAMP_NTZ) AS nt"
        rows = zoned.createDataFrame([(at,) for at in times], "id BIGINT").selectExpr("id", *kinds)
        rows.coalesce(1).write.format("delta").save(uri)
        there = zoned.read.format("delta").load(uri)
        left = drop_duplicates(with_row_numbers(rows), DedupePlan(("ts", "nt"), None, None), there)
        assert left.count() == 0


def aggregate_of(kind: Any, time_column: str) -> Any:
    return kind(
        keys=(),
        metrics={"n": "count(*)"},
        emit="updates",
        time=time_column,
        every_ms=15 * 60_000,
        size_ms=15 * 60_000,
        watermark_ms=None,
    )


def multiset(found: DataFrame) -> Counter[tuple[Any, ...]]:
    asked = found.selectExpr("CAST(window_start AS STRING)", "date_format(window_start, 'XXX')", "n")
    return Counter(tuple(row) for row in asked.collect())


def test_a_table_partitioned_by_instants_is_refused_in_a_zone_whose_clocks_change(
    spark: SparkSession, broker: Any, topic: Any, project: Any
) -> None:
    """Delta writes the partition's instant as local text on the way: of an hour that comes twice one half would be the
    other."""
    name = topic(partitions=1)
    table = {
        "from": {"kafka": name},
        "decode": {"json": "value", "schema": SCHEMA},
        "write": {"partition_by": ["ts"]},
    }
    plan = project({PLAIN: table})
    with clocks_of(spark, "Europe/Berlin", "UTC") as zoned:
        heard = run(zoned, plan)
    error = heard.errors[PLAIN]
    assert isinstance(error, PenstockError)
    assert "partition_by" in str(error) and "Europe/Berlin" in str(error)
    Lake(spark, plan, broker, name).land(events("Europe/Berlin", 1)[:3])
