"""CPU time and memory of a running process tree, from /proc."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_GROWS = 0.02


@dataclass(frozen=True)
class Usage:
    cpu: float
    """Seconds, of everything below the root, ended or alive; without the root itself."""
    rss: int
    """Bytes resident now, summed over the processes; memory that a child shares with its parent counts once."""


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    own: int
    reaped: int
    size: int
    """Bytes of address space."""
    pages: int


def _read(folder: Path) -> _Process | None:
    try:
        text = (folder / "stat").read_text()
    except OSError:  # ended between the listing and the read
        return None
    # The name may hold spaces and brackets: the fields begin after its last one.
    fields = text[text.rindex(")") + 2 :].split()
    return _Process(
        pid=int(folder.name),
        parent=int(fields[1]),
        own=int(fields[11]) + int(fields[12]),
        reaped=int(fields[13]) + int(fields[14]),
        size=int(fields[20]),
        pages=int(fields[21]),
    )


def usage_below(root: int) -> Usage:
    children: dict[int, list[_Process]] = defaultdict(list)
    top: _Process | None = None
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and (process := _read(folder)):
            children[process.parent].append(process)
            if process.pid == root:
                top = process
    ticks = top.reaped if top else 0
    pages = 0
    below = [(process, 0) for process in children[root]]
    while below:
        process, parents_size = below.pop()
        ticks += process.own + process.reaped
        # A JVM starts its children by vfork: until they have their own program they are the JVM's memory again. It may
        # have grown a little between the two looks.
        pages += process.pages if abs(process.size - parents_size) > parents_size * _GROWS else 0
        below += [(child, process.size) for child in children[process.pid]]
    return Usage(cpu=ticks / _TICK, rss=pages * _PAGE)
