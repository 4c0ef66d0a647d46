"""A process that ends when we do, however we end; unless it is let go.

A shell between us and the program reads from a pipe whose other end only we hold. When we die, by kill -9 too, the
pipe closes and the shell kills the program. (prctl's parent-death signal would not serve: it is sent when the *thread*
that started the program ends.)
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

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
