from __future__ import annotations

import pytest

from penstock.runtime.table_runner import until_next


@pytest.mark.parametrize(
    ("interval", "now", "wait"),
    [(30.0, 0.0, 29.0), (30.0, 20.0, 9.0), (30.0, 29.0, 30.0), (30.0, 29.5, 29.5), (0.2, 0.0, 0.15), (0.2, 0.16, 0.19)],
)
def test_a_look_comes_shortly_before_each_trigger(interval: float, now: float, wait: float) -> None:
    assert until_next(interval, now=now) == pytest.approx(wait)
