"""The tests of aggregates and dedupe once more, in sessions whose clocks are set back and forth."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITES = ("aggregate", "aggregate_final", "dedupe", "stream_state", "verify_again", "silver")


@pytest.mark.deep
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe"])
def test_aggregates_and_dedupe_are_the_same_in_zones_with_daylight_saving(zone: str) -> None:
    files = [ROOT / f"tests/integration/test_{suite}.py" for suite in SUITES]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *map(str, files)],
        cwd=ROOT,
        env={**os.environ, "PENSTOCK_TEST_ZONE": zone},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
