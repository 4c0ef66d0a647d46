"""Servers as child processes that end when we do; and free loopback ports."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

# Loopback ports: a free one, whether one is taken, and by whom.


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


# A process that ends when we do, however we end; unless it is let go.
#
# A shell between us and the program reads from a pipe whose other end only we hold. When we die, by kill -9 too, the
# pipe closes and the shell kills the program. (prctl's parent-death signal would not serve: it is sent when the
# *thread* that started the program ends.)


# $1 is a folder to remove with the program, or nothing. The watcher is the background shell; the program takes the
# place of the outer one, so its pid is the one we know. A line in the pipe means: let go.
_WATCHED = """
exec 3<&0 </dev/null
remove=$1
shift
(
  read -r _ <&3 && exit 0
  kill -9 $$
  [ -z "$remove" ] || { sleep 1; rm -rf "$remove"; }
) &
exec "$@" 3<&-
"""


class Child:
    """A running program. It has a session of its own, so Ctrl-C in our terminal does not reach it."""

    def __init__(self, command: Sequence[str], *, output: Path, remove_after_us: Path | None = None) -> None:
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED, "sh", str(remove_after_us or ""), *command],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def exit_code(self) -> int | None:
        """None while it runs; negative if a signal ended it."""
        code = self._process.poll()
        if code is not None:
            self.let_go()
        return code

    def let_go(self) -> None:
        """From now on it outlives us."""
        pipe = self._process.stdin
        assert pipe is not None
        with suppress(OSError, ValueError):
            pipe.write(b"let go\n")
            pipe.flush()
        with suppress(OSError):
            pipe.close()

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self, patience: float = 20.0) -> None:
        """Ask it to end, and make it end after `patience` seconds. 0: at once, without a chance to tidy up."""
        if patience > 0:
            self._process.terminate()
            self._process.send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self.let_go()


def identity(pid: int) -> str | None:
    """When this process started: with its pid, a name that no later process has. None if it has ended."""
    try:
        about = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _identity_from_ps(pid)
    if about[0] == "Z":
        return None
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{about[19]}"


def end_process(pid: int, known: str, patience: float = 20.0) -> bool:
    """End a process that is not our child, if it is still the one that we knew. Whether it was."""
    for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 5.0)):
        if identity(pid) != known:
            return number == signal.SIGKILL
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)
        until = time.monotonic() + seconds
        while identity(pid) == known and time.monotonic() < until:
            time.sleep(0.05)
    return True


def _identity_from_ps(pid: int) -> str | None:
    done = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True)
    return done.stdout.strip() or None


# A server of ours: a program, and a folder that is its own.
#
# It ends with the Python process that started it, however that ends, and a temporary folder goes with it.


class Server(ABC):
    """Started by `start` or by entering it."""

    def __init__(self, name: str, folder: Path | str | None = None) -> None:
        """Without `folder` it has a temporary one, which is removed in the end."""
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix=f"penstock-{name}-") if folder is None else folder).absolute()
        self._child: Child | None = None
        if self._temporary:
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.exit_code() is None

    @abstractmethod
    def start(self) -> Self:
        """Returns when it answers. SetupError says why it does not."""

    @abstractmethod
    def stop(self) -> None: ...

    def restart(self) -> Self:
        self.stop()
        return self.start()

    def __enter__(self) -> Self:
        return self if self.running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        """What goes away need not close its files."""
        if self._temporary:
            self._end(0.0)
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self.stop()

    def _launch(self, command: Sequence[str], output: Path) -> Child:
        gone_with_us = self.folder if self._temporary else None
        self._child = Child(command, output=output, remove_after_us=gone_with_us)
        return self._child

    def _end(self, patience: float) -> None:
        """`patience` is that of `Child.end`: 0 is a crash."""
        child, self._child = self._child, None
        if child is not None:
            child.end(patience)
