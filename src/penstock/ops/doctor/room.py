"""Room: on the disks for what comes, in memory for the JVM."""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.ops.doctor.check import About, Check
from penstock.ops.doctor.machine import Disk, Memory
from penstock.ops.doctor.said import size, span

LEAST = 1024**3
SHARE = 0.05
_WEEK = 7
_BEYOND_HEAP = 1024**3
"""What a JVM of Spark's takes beside its heap: classes, compiled code, threads, buffers of the network."""
_UNITS = {"": 1024**2, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_HEAP = re.compile(r"\s*(\d+)\s*([bkmgt]?)b?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    what: str
    """`the lake`, `temporary files` …"""
    path: str
    daily: int | None = None
    """Bytes that came in the last day; None: not known, or not kept."""


def disk_room(place: Place, disk: Disk | None) -> Check:
    about = About("disk.room")
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


def driver_memory(conf: str, memory: Memory | None) -> Check:
    """`conf` is spark.driver.memory: an upper limit, which a JVM reaches if it has reason to."""
    about = About("memory.driver")
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
