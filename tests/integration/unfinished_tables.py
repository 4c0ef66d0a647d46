"""Tables whose creation was cut off: what is on the disk after each step of it, made from a whole one.

The steps are those that Delta takes: the folder of the table, the folder of its log, the commit
under a temporary name with its checksum, its name, the checksum's name, the checksum of the version.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

COMMIT = f"{0:020d}.json"


def _absent(folder: Path, commit: bytes) -> None:
    pass


def _folder(folder: Path, commit: bytes) -> None:
    folder.mkdir(parents=True)


def _log(folder: Path, commit: bytes) -> None:
    (folder / "_delta_log").mkdir(parents=True)


def _opened(folder: Path, commit: bytes) -> None:
    _temporary(folder, b"")


def _half(folder: Path, commit: bytes) -> None:
    _temporary(folder, commit[: len(commit) // 2])


def _written(folder: Path, commit: bytes) -> None:
    _temporary(folder, commit)


def _renamed(folder: Path, commit: bytes) -> None:
    """The checksum still has its temporary name."""
    _temporary(folder, commit)
    next((folder / "_delta_log").glob(".0*.json.*.tmp")).rename(folder / "_delta_log" / COMMIT)


def _committed(folder: Path, commit: bytes) -> None:
    """The checksum of the version is being written."""
    _log(folder, commit)
    (folder / "_delta_log" / COMMIT).write_bytes(commit)
    (folder / "_delta_log" / f".{0:020d}.crc.{uuid.uuid4()}.tmp").write_bytes(b'{"tableSi')


def _temporary(folder: Path, content: bytes) -> None:
    _log(folder, content)
    name = f".{COMMIT}.{uuid.uuid4()}.tmp"
    (folder / "_delta_log" / name).write_bytes(content)
    (folder / "_delta_log" / f".{name}.crc").write_bytes(b"crc\0\0\0\2\0")


STEPS: dict[str, Callable[[Path, bytes], None]] = {
    "nothing": _absent,
    "the folder": _folder,
    "its log": _log,
    "an empty commit under a temporary name": _opened,
    "half of it": _half,
    "all of it": _written,
    "under its name": _renamed,
    "half of the version's checksum": _committed,
}

DONE = ("under its name", "half of the version's checksum")
"""The table exists."""


def cut_off(folder: Path, step: str) -> None:
    """A table that was created whole, as it is after one step of that."""
    commit = (folder / "_delta_log" / COMMIT).read_bytes()
    shutil.rmtree(folder)
    STEPS[step](folder, commit)


CHECKPOINT = ("commits/0", "offsets/0", "metadata", "penstock.json")
"""Its files, in the order in which they are written under a temporary name."""


def cut_off_checkpoint(folder: Path, files: int) -> None:
    """A checkpoint that was made whole, when so many of its files were written."""
    temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex}.new")
    for name in CHECKPOINT[:files]:
        (temporary / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name, temporary / name)
    shutil.rmtree(folder)
