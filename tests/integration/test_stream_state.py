"""What Spark's own streaming operators give, landed once: the same as a batch query over what they have closed."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.run_plan import checkpoint, commits, rows, whole_chain
from tests.integration.stream_tables import GOLD, Site, multiset

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def site(spark: SparkSession, project: Any, tmp_path: Path) -> Site:
    return Site(spark, project, tmp_path)


def windows(plan: Any) -> Counter[tuple[int, str, int]]:
    """Minute of the window's start, kind, how many."""
    found = rows(plan, GOLD)
    return Counter(((row["window"]["start"] - START) // timedelta(minutes=1), row["kind"], row["n"]) for row in found)


def batch_windows(site: Site, closed: int) -> Counter[tuple[int, str, int]]:
    """The same by a batch query, of windows that end up to that minute after the first one began."""
    minute = timedelta(minutes=1)
    found = Counter(
        ((datetime.fromtimestamp(row.at / 1e6, UTC) - START) // (5 * minute) * 5, row.kind)
        for row in site.all().selectExpr("kind", "unix_micros(ts) AS at").collect()
    )
    first = min(begin for begin, _ in found)
    return Counter((begin, kind, n) for (begin, kind), n in found.items() if begin - first + 5 <= closed)


def test_windows_with_a_watermark_are_those_of_a_batch_query_once_they_are_closed(site: Site) -> None:
    plan = site.plan("windows")
    site.add((1, "a", 1), (2, "b", 2), (3, "a", 7))
    site.add((4, "a", 3), (5, "b", 12))
    site.run(plan)
    site.add((6, "a", 31))  # the watermark moves to minute 21
    site.run(plan)
    assert windows(plan) == batch_windows(site, 20)
    assert windows(plan).total() == 4
    site.add((7, "b", 60))
    site.run(plan)
    assert windows(plan) == batch_windows(site, 50)
    entries = whole_chain(plan, GOLD)
    assert entries[0].batch == 0 and entries[1].batch == 1
    assert (checkpoint(plan, name=GOLD) / "state").is_dir()


@pytest.mark.deep
def test_the_whole_result_anew_in_every_batch(site: Site) -> None:
    plan = site.plan("kinds", output="complete")
    expected = {"a": (2, 3), "b": (1, 2)}
    site.add((1, "a", 1), (2, "b", 1))
    site.add((3, "a", 1))
    site.run(plan)
    assert {row["kind"]: (row["n"], row["last"]) for row in rows(plan, GOLD)} == expected
    site.add((9, "b", 1))
    site.run(plan)
    assert {row["kind"]: (row["n"], row["last"]) for row in rows(plan, GOLD)} == expected | {"b": (2, 9)}
    before = len(commits(plan, GOLD))
    site.run(plan)
    assert len(commits(plan, GOLD)) == before, "nothing new, nothing written"


@pytest.mark.deep
def test_duplicates_within_the_watermark_are_left_out(site: Site) -> None:
    plan = site.plan("once")
    site.add((1, "a", 1), (1, "a", 1), (2, "a", 2))
    site.add((2, "a", 2), (3, "a", 5))
    site.run(plan)
    site.add((3, "a", 5), (4, "a", 6))
    site.run(plan)
    assert Counter(row["id"] for row in rows(plan, GOLD)) == Counter([1, 2, 3, 4])


@pytest.mark.deep
def test_two_streams_are_joined_each_with_its_position(site: Site) -> None:
    plan = site.two("joined")
    site.add((1, "click", 1), (2, "click", 2))
    site.add((1, "view", 3), to="views")
    site.run(plan)
    assert multiset(plan) == Counter([(1, "click", "view")])
    site.add((2, "view", 4), (9, "view", 4), to="views")
    site.add((9, "click", 5))
    site.run(plan)
    assert multiset(plan) == Counter([(1, "click", "view"), (2, "click", "view"), (9, "click", "view")])
    last = whole_chain(plan, GOLD)[-1]
    assert len(last.after) == 2
    assert last.subscription["order"] == ["clicks", "views"] or last.subscription["order"] == ["input", "views"]


@pytest.mark.deep
def test_positions_follow_the_order_in_which_the_function_reads(site: Site) -> None:
    plan = site.two("swapped")
    site.add((1, "a", 1))
    site.add((2, "b", 1), (3, "b", 1), to="views")
    site.run(plan)
    site.add((4, "b", 1), to="views")
    site.run(plan)
    assert Counter(row["id"] for row in rows(plan, GOLD)) == Counter([1, 2, 3, 4])
    assert whole_chain(plan, GOLD)[-1].subscription["order"] == ["views", "input"]


@pytest.mark.deep
def test_a_start_at_a_version_reads_from_there(site: Site) -> None:
    site.add((1, "a", 1))
    site.add((2, "a", 1))
    plan = site.plan("kept", starting={"version": 2})
    site.run(plan)
    site.add((3, "a", 1))
    site.run(plan)
    assert Counter(row["id"] for row in rows(plan, GOLD)) == Counter([2, 3])


@pytest.mark.deep
def test_status_history_and_verify_know_several_streams(site: Site) -> None:
    from penstock.operations.history import history
    from penstock.operations.status import status
    from penstock.storage.stores import LocalStore
    from penstock.verify.table import verify

    plan = site.two("joined")
    site.add((1, "click", 1))
    site.add((1, "view", 1), to="views")
    site.run(plan)
    (shown,) = status(plan, plan.tables, LocalStore())
    assert (shown.rows, shown.lag) == (1, 0)
    assert [place.topic for place in shown.partition_lags] == [site.places["clicks"], site.places["views"]]
    assert sum(line.rows for line in history(plan.tables[0], LocalStore())) == 1
    (report,) = verify(plan.tables, LocalStore())
    assert (report.verdict, report.rows) == ("complete", 1)
