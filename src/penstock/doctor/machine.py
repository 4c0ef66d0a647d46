"""What this machine is: file systems, memory, disks, clock; and whether the lake's place lasts and has locks."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.doctor.check import CheckSubject, size, span

if TYPE_CHECKING:
    from penstock.doctor.check import Check

# What this machine is: its file systems, its memory, its disks. From /proc and os alone.


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
class MachineMemory:
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


def memory() -> MachineMemory | None:
    """What a process may have: of the machine, or of its container if that is less. None where /proc does not tell."""
    try:
        lines = (_PROC / "meminfo").read_text().splitlines()
        said = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        total, available = said["MemTotal"], said["MemAvailable"]
    except (OSError, ValueError, IndexError, KeyError):
        return None
    limit = _limit()
    if limit is None or limit >= total:
        return MachineMemory(total, available)
    return MachineMemory(limit, min(available, limit), limited=True)


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


# Room: on the disks for what comes, in memory for the JVM.


LEAST = 1024**3
SHARE = 0.05
_WEEK = 7
_BEYOND_HEAP = 1024**3
"""What a JVM of Spark's takes beside its heap: classes, compiled code, threads, buffers of the network."""
_UNITS = {"": 1024**2, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_HEAP = re.compile(r"\s*(\d+)\s*([bkmgt]?)b?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class DiskPlace:
    what: str
    """`the lake`, `temporary files` …"""
    path: str
    daily: int | None = None
    """Bytes that came in the last day; None: not known, or not kept."""


def disk_room(place: DiskPlace, disk: Disk | None) -> Check:
    about = CheckSubject("disk.room")
    where = f"{place.what} ({place.path})"
    if disk is None:
        return about.unknown(f"{where}: its disk cannot be looked at")
    left = disk.free / disk.total if disk.total else 0.0
    said = f"{where}: {size(disk.free)} free ({left:.0%})"
    said += f", {size(place.daily)} came in the last day" if place.daily is not None else ""
    fix = "make room, or move it to a larger disk; `penstock vacuum` deletes what compaction and merges replaced"
    if disk.free < LEAST or (place.daily and disk.free < place.daily):
        return about.red(said, fix)
    if left < SHARE:
        lasts = place.daily is not None and disk.free > _WEEK * place.daily
        return about.warn(said, fix) if lasts else about.red(said, fix)
    if place.daily and disk.free < _WEEK * place.daily:
        return about.warn(f"{said}: full in {span(86_400 * disk.free / place.daily)}", fix)
    if disk.files and disk.files_free is not None and disk.files_free < SHARE * disk.files:
        return about.warn(
            f"{said}, and room for {disk.files_free:,} more files", "compact tables with many small files"
        )
    return about.ok(said)


def driver_memory(conf: str, memory: MachineMemory | None) -> Check:
    """`conf` is spark.driver.memory: an upper limit, which a JVM reaches if it has reason to."""
    about = CheckSubject("memory.driver")
    heap = heap_bytes(conf)
    if memory is None:
        return about.unknown("how much memory this machine has cannot be told")
    if heap is None:
        return about.unknown(f"spark.driver.memory is '{conf}', which is not a size")
    whose = "the container may have" if memory.limited else "the machine has"
    said = f"spark.driver.memory is {size(heap)}, {whose} {size(memory.total)}"
    fits = max(1, int((memory.total - _BEYOND_HEAP) * 0.8 / 1024**3))
    fix = f"write spark: {{conf: {{spark.driver.memory: {fits}g}}}}, or give it more memory"
    if heap + _BEYOND_HEAP > memory.total:
        return about.red(f"{said}; a JVM takes about {size(_BEYOND_HEAP)} beside its heap", fix)
    if heap + _BEYOND_HEAP > 0.9 * memory.total:
        return about.warn(f"{said}; a JVM takes about {size(_BEYOND_HEAP)} beside its heap", fix)
    return about.ok(f"{said}, {size(memory.available)} of it free")


def heap_bytes(conf: str) -> int | None:
    """`4g`, as Spark reads it: without a unit it is MiB."""
    match = _HEAP.fullmatch(conf)
    return int(match[1]) * _UNITS[match[2].lower()] if match else None


# Clocks: nothing may have happened in the future.


ALLOWED = 5.0
"""Seconds by which two clocks may differ without a word."""
FAR = 300.0


@dataclass(frozen=True)
class Newest:
    """The newest record of a topic."""

    time_ms: int
    by_broker: bool


def skew(commits: Mapping[str, int | None], records: Mapping[str, Newest], now_ms: float, unknown: str | None) -> Check:
    """`commits` is the time of each table's newest commit, `records` of each topic's newest record; `unknown` says why
    there are none of the latter. A clock that is behind ours is not seen: its records look old."""
    about = CheckSubject("clock.skew")
    ahead = [
        ((time_ms - now_ms) / 1000, f"the newest commit of {table}", "the clock of this machine went back")
        for table, time_ms in commits.items()
        if time_ms is not None
    ]
    for topic, newest in records.items():
        whose = "the broker's clock" if newest.by_broker else "the clock of whoever wrote it"
        ahead.append(((newest.time_ms - now_ms) / 1000, f"the newest record of {topic}", f"{whose} is ahead"))
    if not ahead:
        return about.unknown(f"there is no commit and no record to compare with{': ' + unknown if unknown else ''}")
    seconds, what, means = max(ahead)
    said = f"{what} lies {span(seconds)} in the future: {means}, or this machine's clock is behind"
    fix = "set both clocks by NTP (`timedatectl set-ntp true`); times in the tables are only as good as these"
    if seconds > FAR:
        return about.red(said, fix)
    if seconds > ALLOWED:
        return about.warn(said, fix)
    known = f"{len(ahead)} commits and records looked at, the newest {span(max(0.0, -seconds))} old, none in the future"
    return about.ok(known if unknown is None else f"{known}; of records nothing is known: {unknown}")


# Where the lake lies: does the place last, and does it have locks?


_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
_IN_A_LAYER = ("overlay", "overlayfs", "aufs", "unionfs")
_SHARED = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "vboxsf", "lustre", "glusterfs", "afs", "gfs2")
_BY_A_PROGRAM = "fuse"
"""fuse.sshfs, fuse.s3fs, fuse.goofys …: buckets and machines that look like folders."""
_SWEPT = ("/tmp", "/var/tmp", "/dev/shm", "/run")
_MOVE = (
    "stop the tables, move the lake to a disk or a store that lasts, and write that place as lake: in penstock.yml: "
    "the ledger names no paths, so the tables go on there"
)


def durable(lake: str, mount: Mount | None, *, in_container: bool) -> Check:
    about = CheckSubject("lake.durable")
    if "://" in lake:
        return about.ok(f"{lake} is on a store of its own")
    if mount is None:
        return about.unknown(f"the file system of {lake} cannot be told on this machine")
    if mount.kind in _IN_MEMORY:
        return about.red(f"{lake} is on {mount.kind} ({mount.point}): it is gone when the machine stops", _MOVE)
    swept = next((one for one in _SWEPT if Path(lake).is_relative_to(one)), None)
    if swept is not None:
        return about.warn(f"{lake} is under {swept}, which machines empty at a start or after some days", _MOVE)
    if mount.kind in _IN_A_LAYER:
        inside = "the container's own layer" if in_container else f"an {mount.kind}"
        return about.warn(
            f"{lake} is in {inside} ({mount.kind} at {mount.point}): it is gone when the container is removed",
            "mount a volume there",
        )
    return about.ok(f"{lake} is on {mount.kind}, mounted at {mount.point}")


def locks(lake: str, mount: Mount | None) -> Iterator[Check]:
    """Only of a local lake: object stores need none."""
    about = CheckSubject("lake.locks")
    if "://" in lake:
        return
    if mount is None:
        yield about.unknown(f"the file system of {lake} cannot be told on this machine")
    elif mount.kind in _SHARED or mount.kind.split(".")[0] == _BY_A_PROGRAM:
        yield about.warn(
            f"{lake} is on {mount.kind} ({mount.point}): whether its locks hold between machines depends on how it is "
            "mounted",
            "run all tables of this lake on one machine; or put the lake on a disk of that machine, or on an object "
            "store, which needs no locks",
        )
    else:
        yield about.ok(f"{mount.kind} has POSIX locks")
