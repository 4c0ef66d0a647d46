"""`penstock demo NAME`, run as a newcomer does, and the lake that it leaves."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.e2e.batch_query import Lake

COUNT = 6_000
MALFORMED = DUPLICATES = COUNT // 100
"""So many of them are sent."""


def demonstrate(name: str, folder: Path, *, count: int = COUNT, proof: str = "complete") -> Lake:
    """Runs the demo, which must say that every table is complete, and leave nothing but the project."""
    command = [sys.executable, "-m", "penstock", "demo", name, "--count", str(count), "--keep", str(folder)]
    with tempfile.TemporaryDirectory() as temporary:
        Path(temporary).chmod(0o755)  # PostgreSQL does not run as root, but another user
        environment = {**os.environ, "TMPDIR": temporary}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        assert [path.name for path in Path(temporary).iterdir() if path.name.startswith("penstock")] == []
    proven = done.stdout.partition("prove it")[2]
    assert proof in proven and not any(word in proven for word in ("WRONG", "behind", "partial")), proven
    return Lake(folder / name)
