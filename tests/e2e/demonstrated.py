"""`penstock demo NAME`, run as a newcomer does, and the lake that it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.batch_query import Lake

COUNT = 6_000
MALFORMED = DUPLICATES = COUNT // 100
"""So many of them are sent."""


def demonstrate(name: str, folder: Path) -> Lake:
    """Runs the demo, which must say that every table is complete, and leave nothing but the project."""
    temporary = folder / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "penstock", "demo", name, "--count", str(COUNT), "--keep", str(folder)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    proof = done.stdout.partition("prove it")[2]
    assert "complete" in proof and "NOT complete" not in proof and "unverifiable" not in proof, proof
    assert [path.name for path in temporary.iterdir() if path.name.startswith("penstock")] == []
    return Lake(folder / name)
