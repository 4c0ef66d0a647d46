"""What the figures were taken on: enough to compare, nothing that names the machine."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

from penstock.spark.java import find_java

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


class Stolen:
    """How much CPU time the host of a virtual machine gave to others, from now on."""

    WORTH_A_NOTE = 0.02

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._before = self._ticks()

    def share(self) -> float:
        total, stolen = (now - before for now, before in zip(self._ticks(), self._before, strict=True))
        return stolen / total if total else 0.0

    def notes(self) -> list[str]:
        if (share := self.share()) < self.WORTH_A_NOTE:
            return []
        return [
            f"Meanwhile the host of this virtual machine gave {share:.0%} of its CPU time to others. A contender that "
            "waits for the CPU loses by that, one that waits for the broker hardly does."
        ]

    def _ticks(self) -> tuple[int, int]:
        ticks = [int(field) for field in self._stat.read_text().splitlines()[0].split()[1:9]]
        return sum(ticks), ticks[7]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"
