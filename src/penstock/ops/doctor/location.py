"""Where the lake lies: does the place last, and does it have locks?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from penstock.ops.doctor.check import About, Check
from penstock.ops.doctor.machine import Mount

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
    about = About("lake.durable")
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
    about = About("lake.locks")
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
