"""Debian's packages, where Penstock may install one: as root, on Debian or what descends from it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from penstock.errors import SetupError


def may_install() -> bool:
    return os.geteuid() == 0 and Path("/etc/debian_version").exists() and shutil.which("apt-get") is not None


def apt_get(*arguments: str, hint: str) -> None:
    """`apt-get update` or `apt-get install -y …`, quietly; SetupError with apt's reasons if it fails."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", "-q", *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if done.returncode == 0:
        return
    reasons = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W:"))][-3:]
    raise SetupError(
        f"apt-get {' '.join(arguments)} failed: {' '.join(reasons) or f'exit code {done.returncode}'}",
        hint=f"check the network and apt's sources, or {hint}",
    )
