"""Loopback ports: a free one, whether one is taken, and by whom."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A port that was free a moment ago. Another process may take it first: whoever binds it must be ready for that."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        # As Java binds: connections that linger from an earlier broker do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
    return False


def holder(port: int) -> int | None:
    """The pid that listens on this port, if this system and our rights tell."""
    inodes = _listening_inodes(port)
    for descriptor in Path("/proc").glob("[0-9]*/fd/*") if inodes else ():
        with suppress(OSError):
            if str(descriptor.readlink()) in inodes:
                return int(descriptor.parts[2])
    return None


def _listening_inodes(port: int) -> set[str]:
    listening = "0A"
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if state == listening and int(local.rpartition(":")[2], 16) == port:
                    found.add(f"socket:[{rest[5]}]")
    return found
