"""What this machine is: its file systems, its memory, its disks. From /proc and os alone."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_CONTAINER = (Path("/.dockerenv"), Path("/run/.containerenv"))
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    point: str
    kind: str
    """`ext4`, `tmpfs`, `nfs4`, `overlay` …"""


@dataclass(frozen=True)
class Memory:
    total: int
    available: int
    limited: bool = False
    """By the container, not by the machine."""


@dataclass(frozen=True)
class Disk:
    """The file system under a place."""

    total: int
    free: int
    files_free: int | None = None
    """None: it has no limit of files."""
    files: int | None = None


def mounts(text: str | None = None) -> list[Mount]:
    """From /proc/self/mountinfo; [] where there is none."""
    if text is None:
        try:
            text = (_PROC / "self" / "mountinfo").read_text(errors="replace")
        except OSError:
            return []
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(), after.split()
        if len(fields) > 4 and kinds:
            point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4])
            found.append(Mount(point, kinds[0]))
    return found


def mount_of(path: str, known: list[Mount]) -> Mount | None:
    """The file system that a path lies on, links followed; None if that cannot be told. The last of those that cover it
    counts: it hides the others."""
    real = os.path.realpath(path)
    covering = [one for one in known if one.point == "/" or real == one.point or real.startswith(f"{one.point}/")]
    longest = max((len(one.point) for one in covering), default=0)
    return next((one for one in reversed(covering) if len(one.point) == longest), None)


def in_container() -> bool:
    return any(mark.exists() for mark in _CONTAINER) or "KUBERNETES_SERVICE_HOST" in os.environ


def memory() -> Memory | None:
    """What a process may have: of the machine, or of its container if that is less. None where /proc does not tell."""
    try:
        lines = (_PROC / "meminfo").read_text().splitlines()
        said = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        total, available = said["MemTotal"], said["MemAvailable"]
    except (OSError, ValueError, IndexError, KeyError):
        return None
    limit = _limit()
    if limit is None or limit >= total:
        return Memory(total, available)
    return Memory(limit, min(available, limit), limited=True)


def disk(path: str) -> Disk | None:
    """Of the nearest folder that exists; None if none can be looked at."""
    for folder in (Path(path), *Path(path).parents):
        try:
            usage = shutil.disk_usage(folder)
            found = os.statvfs(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        counted = found.f_files > 0
        return Disk(usage.total, usage.free, found.f_favail if counted else None, found.f_files if counted else None)
    return None


def device_of(path: str) -> int | None:
    """Tells whether two places share a disk."""
    for folder in (Path(path), *Path(path).parents):
        try:
            return folder.stat().st_dev
        except OSError:
            continue
    return None


def _limit() -> int | None:
    for file in _CGROUPS:
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdecimal() else None
    return None
