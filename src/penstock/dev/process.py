"""Servers as child processes that end with this process; and free loopback ports."""

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
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.errors import SetupError

# Loopback ports: find a free one, check whether one is taken, and by which process.


LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A port that was free a moment ago. Another process may take it first: the caller must be ready for that."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        # Like Java does: connections that linger from an earlier broker do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
    return False


def pid_on_port(port: int) -> int | None:
    """The pid of the process that listens on this port, if the system and our permissions tell."""
    inodes = _listening_inodes(port)
    for descriptor in Path("/proc").glob("[0-9]*/fd/*") if inodes else ():
        with suppress(OSError):
            if str(descriptor.readlink()) in inodes:
                return int(descriptor.parts[2])
    return None


def _listening_inodes(port: int) -> set[str]:
    listening = "0A"
    inodes = set()
    for socket_table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with suppress(OSError):
            for line in Path(socket_table).read_text().splitlines()[1:]:
                _, local, _, state, *other_fields = line.split()
                if state == listening and int(local.rpartition(":")[2], 16) == port:
                    inodes.add(f"socket:[{other_fields[5]}]")
    return inodes


# A process that ends when we do, however we end; unless it is let go.
#
# A shell between us and the program reads from a pipe whose other end only we hold. When we die, even by kill -9, the
# pipe closes and the shell kills the program. (prctl's parent-death signal would not work: it is sent when the
# *thread* that started the program ends.)


# $1 is a folder to remove with the program, or empty. The watcher is the background shell; the program replaces the
# outer shell, so its pid is the one we know. A line in the pipe means: let go.
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
    """A running program. It has its own session, so Ctrl-C in our terminal does not reach it."""

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
            self.detach()
        return code

    def detach(self) -> None:
        """From now on the program outlives this process."""
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
        """Asks it to end, and kills it after `patience` seconds. 0 kills at once, without a chance to clean up."""
        if patience > 0:
            self._process.terminate()
            self._process.send_signal(signal.SIGCONT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self.detach()


def identity(pid: int) -> str | None:
    """The start time of the process: with its pid, it identifies the process for good. None if it has ended."""
    try:
        stat_fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _identity_from_ps(pid)
    if stat_fields[0] == "Z":
        return None
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{stat_fields[19]}"


def end_process(pid: int, known_identity: str, patience: float = 20.0) -> bool:
    """Ends a process that is not our child, if it still has the known identity; returns whether it had."""
    for number, seconds in ((signal.SIGTERM, patience), (signal.SIGKILL, 5.0)):
        if identity(pid) != known_identity:
            return number == signal.SIGKILL
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: identity(pid) != known_identity, seconds)
    return True


def wait_until(condition: Callable[[], bool], patience: float, pause: float = 0.05) -> bool:
    """Whether the condition comes true in time; it is tested every `pause` seconds."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
    return True


def _identity_from_ps(pid: int) -> str | None:
    result = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True)
    return result.stdout.strip() or None


# A server: a program with its own folder.
#
# It ends with the Python process that started it, however that ends, and a temporary folder is removed with it.


class TryAgain(SetupError):
    """The server did not start, and another attempt makes sense."""


class Server(ABC):
    """Started by `start` or `with`."""

    _title = "the server"
    _silence = "it did not answer"
    _hint = ""
    """What to check if it does not start."""
    _logs: Sequence[str] = ()
    """The files in its folder that tell why it did not start."""

    def __init__(self, name: str, folder: Path | str | None = None) -> None:
        """Without `folder` it uses a temporary one, which is removed in the end."""
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
        """Returns when the server answers. Raises SetupError with the reason if it does not."""

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
        """A server whose folder is removed need not close its files."""
        if self._temporary:
            self._end(0.0)
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self.stop()

    def _launch(self, command: Sequence[str], output: Path) -> Child:
        removed_folder = self.folder if self._temporary else None
        self._child = Child(command, output=output, remove_after_us=removed_folder)
        return self._child

    def _wait_for_answer(self, child: Child, answers: Callable[[], bool], patience: float, pause: float = 0.05) -> None:
        """Raises SetupError if it does not answer; it is ended then."""
        try:
            in_time = wait_until(lambda: child.exit_code() is not None or answers(), patience, pause)
            if (code := child.exit_code()) is not None:
                raise self._ended_error(code)
            if not in_time:
                raise self._start_error(f"{self._silence} for {patience:.0f} s")
        except BaseException:
            self._end(0.0)
            raise

    def _ended_error(self, code: int) -> SetupError:
        return self._start_error(f"it ended with code {code}")

    def _start_error(self, reason: str) -> SetupError:
        return SetupError(f"{self._title} did not start: {reason}{reasons(self._log_text())}", hint=self._hint)

    def _log_text(self) -> str:
        paths = [self.folder / name for name in self._logs]
        return "\n".join(path.read_text(errors="replace") for path in paths if path.exists())

    def _end(self, patience: float) -> None:
        """`patience` as in `Child.end`: 0 is like a crash."""
        child, self._child = self._child, None
        if child is not None:
            child.end(patience)


def reasons(text: str) -> str:
    """The few lines of a log or a stack trace that tell what was wrong, ready to follow a colon."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    error_lines = [line for line in lines if any(mark in line for mark in (" ERROR", "FATAL", "error:", "Exception"))]
    return "".join(f"\n  {line[:300]}" for line in (error_lines or lines)[-3:])
