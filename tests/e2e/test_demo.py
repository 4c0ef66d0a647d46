"""`penstock demo` as a newcomer calls it: all of it, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.jars import cache_folder, fetch


def demo(cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PENSTOCK_CACHE": str(cache), "TMPDIR": str(cache / "tmp")}
    command = [sys.executable, "-m", "penstock", "demo", "--count", "5000", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.deep
def test_it_lands_proves_and_cleans_up_and_starts_quicker_the_next_time(tmp_path: Path) -> None:
    fetch()
    (tmp_path / "jars").symlink_to(cache_folder() / "jars")
    (tmp_path / "tmp").mkdir()

    first = demo(tmp_path)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "complete: 5,000 rows, every offset of orders 0..3 once" in first.stdout
    assert "silver.orders__quarantine: 50 records, one of each reason" in first.stdout
    assert "5,000 read = 4,900 written + 50 in quarantine + 50 duplicates" in first.stdout
    assert "gold.daily_sales  complete" in first.stdout
    assert "keeping the classes" in first.stdout + first.stderr
    archive = next((tmp_path / "classes").glob("*.jsa"))
    assert list((tmp_path / "classes").iterdir()) == [archive], "nothing half-written stays"

    # A damaged archive keeps a JVM from starting: it must not keep a user from starting.
    archive.chmod(0o644)
    os.truncate(archive, archive.stat().st_size // 2)
    kept = tmp_path / "kept"
    second = demo(tmp_path, "--keep", str(kept))
    assert second.returncode == 0, second.stdout + second.stderr
    assert not archive.exists()
    assert (kept / "orders" / "lake" / "bronze" / "orders" / "_delta_log").is_dir()
    left = [path.name for path in (tmp_path / "tmp").iterdir() if path.name.startswith("penstock")]
    assert left == []
