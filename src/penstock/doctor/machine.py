"""This machine: file systems, memory, disks, clock; and whether the location of the lake is durable and has locks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.doctor.check import CheckSubject, size, span

if TYPE_CHECKING:
    from penstock.doctor.check import Check

# This machine: its file systems, its memory, its disks. Read from /proc and os only.


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
    """The limit is that of the container, not of the machine."""


@dataclass(frozen=True)
class Disk:
    """The file system that holds a path."""

    total: int
    free: int
    files_free: int | None = None
    """None if the number of files has no limit."""
    files: int | None = None
    device: int | None = None
    """Two paths with the same number share a disk."""


def mounts(text: str | None = None) -> list[Mount]:
    """From /proc/self/mountinfo; [] where there is none."""
    if text is None:
        try:
            text = (_PROC / "self" / "mountinfo").read_text(errors="replace")
        except OSError:
            return []
    mount_list = []
    for line in text.splitlines():
        left_part, _, right_part = line.partition(" - ")
        fields, kinds = left_part.split(), right_part.split()
        if len(fields) > 4 and kinds:
            point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4])
            mount_list.append(Mount(point, kinds[0]))
    return mount_list


def mount_of(path: str, all_mounts: list[Mount]) -> Mount | None:
    """The file system that a path is on, links followed; None if unknown. Of several that cover it the last one counts:
    it hides the others."""
    real = os.path.realpath(path)
    covering = [
        mount for mount in all_mounts if mount.point == "/" or real == mount.point or real.startswith(f"{mount.point}/")
    ]
    longest_point = max((len(mount.point) for mount in covering), default=0)
    return next((mount for mount in reversed(covering) if len(mount.point) == longest_point), None)


def in_container() -> bool:
    return any(mark.exists() for mark in _CONTAINER) or "KUBERNETES_SERVICE_HOST" in os.environ


def memory() -> MachineMemory | None:
    """What a process may use: that of the machine, or of its container if that is less. None if /proc does not tell."""
    try:
        lines = (_PROC / "meminfo").read_text().splitlines()
        sizes = {name: int(value.split()[0]) * 1024 for name, _, value in (line.partition(":") for line in lines)}
        total, available = sizes["MemTotal"], sizes["MemAvailable"]
    except (OSError, ValueError, IndexError, KeyError):
        return None
    limit = _container_limit()
    if limit is None or limit >= total:
        return MachineMemory(total, available)
    return MachineMemory(limit, min(available, limit), limited=True)


def disk(path: str) -> Disk | None:
    """The disk of the nearest folder that exists; None if it cannot be read."""
    for folder in (Path(path), *Path(path).parents):
        try:
            usage, device = os.statvfs(folder), folder.stat().st_dev
        except FileNotFoundError:
            continue
        except OSError:
            return None
        total, free = usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize
        files_free, files = (usage.f_favail, usage.f_files) if usage.f_files > 0 else (None, None)
        return Disk(total, free, files_free, files, device)
    return None


def _container_limit() -> int | None:
    for file in _CGROUPS:
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdecimal() else None
    return None


# The checks of room: on the disks for new data, in memory for the JVM.


LEAST = 1024**3
SHARE = 0.05
_DAYS_OF_ROOM = 7
_OFF_HEAP = 1024**3
"""What a JVM of Spark needs besides its heap: classes, compiled code, threads, network buffers."""
_UNITS = {"": 1024**2, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_HEAP = re.compile(r"\s*(\d+)\s*([bkmgt]?)b?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class DiskPlace:
    label: str
    """`the lake`, `temporary files` …"""
    path: str
    daily: int | None = None
    """Bytes added in the last day; None if not known, or if the data is not kept."""


def disk_room(place: DiskPlace, disk: Disk | None) -> Check:
    check = CheckSubject("disk.room")
    place_text = f"{place.label} ({place.path})"
    if disk is None:
        return check.unknown(f"{place_text}: its disk cannot be looked at")
    free_share = disk.free / disk.total if disk.total else 0.0
    text = f"{place_text}: {size(disk.free)} free ({free_share:.0%})"
    text += f", {size(place.daily)} came in the last day" if place.daily is not None else ""
    fix = "make room, or move it to a larger disk; `penstock vacuum` deletes what compaction and merges replaced"
    if disk.free < LEAST or (place.daily and disk.free < place.daily):
        return check.red(text, fix)
    if free_share < SHARE:
        lasts_a_week = place.daily is not None and disk.free > _DAYS_OF_ROOM * place.daily
        return check.warn(text, fix) if lasts_a_week else check.red(text, fix)
    if place.daily and disk.free < _DAYS_OF_ROOM * place.daily:
        return check.warn(f"{text}: full in {span(86_400 * disk.free / place.daily)}", fix)
    if disk.files and disk.files_free is not None and disk.files_free < SHARE * disk.files:
        return check.warn(
            f"{text}, and room for {disk.files_free:,} more files", "compact tables with many small files"
        )
    return check.ok(text)


def driver_memory(conf: str, memory: MachineMemory | None) -> Check:
    """`conf` is spark.driver.memory: an upper limit, which a JVM reaches when it needs to."""
    check = CheckSubject("memory.driver")
    heap = heap_bytes(conf)
    if memory is None:
        return check.unknown("the memory of this machine cannot be determined")
    if heap is None:
        return check.unknown(f"spark.driver.memory is '{conf}', which is not a size")
    owner_text = "the container may have" if memory.limited else "the machine has"
    text = f"spark.driver.memory is {size(heap)}, {owner_text} {size(memory.total)}"
    fitting_gib = max(1, int((memory.total - _OFF_HEAP) * 0.8 / 1024**3))
    fix = f"write spark: {{conf: {{spark.driver.memory: {fitting_gib}g}}}}, or give it more memory"
    if heap + _OFF_HEAP > memory.total:
        return check.red(f"{text}; a JVM takes about {size(_OFF_HEAP)} beside its heap", fix)
    if heap + _OFF_HEAP > 0.9 * memory.total:
        return check.warn(f"{text}; a JVM takes about {size(_OFF_HEAP)} beside its heap", fix)
    return check.ok(f"{text}, {size(memory.available)} of it free")


def heap_bytes(conf: str) -> int | None:
    """`4g`, as Spark reads it: without a unit it is MiB."""
    match = _HEAP.fullmatch(conf)
    return int(match[1]) * _UNITS[match[2].lower()] if match else None


# The check of clocks: no commit or record may lie in the future.


ALLOWED = 5.0
"""Seconds by which two clocks may differ without a finding."""
FAR = 300.0


@dataclass(frozen=True)
class Newest:
    """The newest record of a topic."""

    time_ms: int
    by_broker: bool


def skew(commits: Mapping[str, int | None], records: Mapping[str, Newest], now_ms: float, unknown: str | None) -> Check:
    """`commits` has the time of each table's newest commit, `records` of each topic's newest record; `unknown` says why
    there are no records. A clock that is behind ours cannot be detected: its records look old."""
    check = CheckSubject("clock.skew")
    ahead = [
        ((time_ms - now_ms) / 1000, f"the newest commit of {table}", "the clock of this machine went back")
        for table, time_ms in commits.items()
        if time_ms is not None
    ]
    for topic, newest in records.items():
        clock_text = "the broker's clock" if newest.by_broker else "the clock of whoever wrote it"
        ahead.append(((newest.time_ms - now_ms) / 1000, f"the newest record of {topic}", f"{clock_text} is ahead"))
    if not ahead:
        return check.unknown(f"there is no commit and no record to compare with{': ' + unknown if unknown else ''}")
    seconds, item, cause = max(ahead)
    text = f"{item} lies {span(seconds)} in the future: {cause}, or this machine's clock is behind"
    fix = "set both clocks by NTP (`timedatectl set-ntp true`); times in the tables are only as good as these"
    if seconds > FAR:
        return check.red(text, fix)
    if seconds > ALLOWED:
        return check.warn(text, fix)
    fine_text = (
        f"{len(ahead)} commits and records looked at, the newest {span(max(0.0, -seconds))} old, none in the future"
    )
    return check.ok(fine_text if unknown is None else f"{fine_text}; of records nothing is known: {unknown}")


# The checks of the lake's location: is it durable, and does it have locks?


_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
_LAYERED = ("overlay", "overlayfs", "aufs", "unionfs")
_SHARED = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "vboxsf", "lustre", "glusterfs", "afs", "gfs2")
_FUSE = "fuse"
"""fuse.sshfs, fuse.s3fs, fuse.goofys …: buckets and machines that look like folders."""
_CLEANED_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/run")
_MOVE_FIX = (
    "stop the tables, move the lake to a disk or a store that lasts, and write that place as lake: in penstock.yml: "
    "the ledger names no paths, so the tables continue there"
)


def durable(lake: str, mount: Mount | None, *, in_container: bool) -> Check:
    check = CheckSubject("lake.durable")
    if "://" in lake:
        return check.ok(f"{lake} is on a store of its own")
    if mount is None:
        return check.unknown(f"the file system of {lake} cannot be determined on this machine")
    if mount.kind in _IN_MEMORY:
        return check.red(f"{lake} is on {mount.kind} ({mount.point}): it is lost when the machine stops", _MOVE_FIX)
    cleaned_folder = next((folder for folder in _CLEANED_FOLDERS if Path(lake).is_relative_to(folder)), None)
    if cleaned_folder is not None:
        return check.warn(
            f"{lake} is under {cleaned_folder}, which machines empty at a start or after some days", _MOVE_FIX
        )
    if mount.kind in _LAYERED:
        layer_text = "the container's own layer" if in_container else f"an {mount.kind}"
        return check.warn(
            f"{lake} is in {layer_text} ({mount.kind} at {mount.point}): it is lost when the container is removed",
            "mount a volume there",
        )
    return check.ok(f"{lake} is on {mount.kind}, mounted at {mount.point}")


def locks(lake: str, mount: Mount | None) -> Iterator[Check]:
    """Only for a local lake: object stores need no locks."""
    check = CheckSubject("lake.locks")
    if "://" in lake:
        return
    if mount is None:
        yield check.unknown(f"the file system of {lake} cannot be determined on this machine")
    elif mount.kind in _SHARED or mount.kind.split(".")[0] == _FUSE:
        yield check.warn(
            f"{lake} is on {mount.kind} ({mount.point}): whether its locks hold between machines depends on how it is "
            "mounted",
            "run all tables of this lake on one machine; or put the lake on a disk of that machine, or on an object "
            "store, which needs no locks",
        )
    else:
        yield check.ok(f"{mount.kind} has POSIX locks")
