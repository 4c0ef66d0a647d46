from __future__ import annotations

import pytest

from penstock.tables.transform import with_batch_time

NOW = "timestamp_millis(5000L)"


@pytest.mark.parametrize(
    ("written", "run"),
    [
        ("ts <= current_timestamp()", f"ts <= {NOW}"),
        ("ts <= CURRENT_TIMESTAMP", f"ts <= {NOW}"),
        ("ts <= now( )", f"ts <= {NOW}"),
        ("day = current_date", f"day = CAST({NOW} AS DATE)"),
        ("day = curdate()", f"day = CAST({NOW} AS DATE)"),
        ("ts < localtimestamp()", f"ts < CAST({NOW} AS TIMESTAMP_NTZ)"),
        ("s < unix_timestamp()", "s < 5L"),
        ("unix_timestamp(ts) > 3", "unix_timestamp(ts) > 3"),
        ("note = 'now() or current_date'", "note = 'now() or current_date'"),
        ("note = 'it\\'s now()' AND ts < now()", f"note = 'it\\'s now()' AND ts < {NOW}"),
        ("`current_date` IS NOT NULL", "`current_date` IS NOT NULL"),
        ("o.current_date IS NOT NULL", "o.current_date IS NOT NULL"),
        ("now > 3 AND known() > 2", "now > 3 AND known() > 2"),
        ("a > 1 -- since now()\n AND ts < now()", f"a > 1 -- since now()\n AND ts < {NOW}"),
        ("a /* now() */ > 1", "a /* now() */ > 1"),
    ],
)
def test_the_time_is_that_of_the_batch(written: str, run: str) -> None:
    assert with_batch_time(written, 5000) == run
