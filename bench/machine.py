"""What the figures were taken on: enough to compare, nothing that names the machine."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

from penstock.engine.java import find_java

_PACKAGES = ("pyspark", "delta-spark", "deltalake", "confluent-kafka")


def machine() -> dict[str, str]:
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": _processor(),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.machine()}",
        "Java": str(find_java().version),
        "Python": platform.python_version(),
        **{package: version(package) for package in _PACKAGES},
    }


def load() -> float:
    """How busy the machine is already: figures from a shared one mean little."""
    return os.getloadavg()[0]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
