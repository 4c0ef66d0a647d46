"""What the tests that call the command share."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock.spark.jars import cache_folder, own_jar

_MANY = 20


@pytest.fixture(scope="session", autouse=True)
def _classes(request: pytest.FixtureRequest) -> None:
    """They start some forty JVMs: with the archive that a demo leaves, each start takes half the time."""
    tests = [item for item in request.session.items if "e2e" in item.path.parts]
    since = own_jar().stat().st_mtime
    there = any(file.stat().st_mtime > since for file in (cache_folder() / "classes").glob("*.jsa"))
    if len(tests) > _MANY and not there:
        command = [sys.executable, "-m", "penstock", "demo", "--count", "500"]
        subprocess.run(command, capture_output=True, timeout=400, check=False)
