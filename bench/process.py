"""One contender as a process group of its own: started, sampled, stopped, and never left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from bench.procfs import usage_below

_ROOT = Path(__file__).resolve().parents[1]


class ContenderFailed(Exception):
    """It ended badly, too late or without having landed anything; carries the end of what it printed."""


@dataclass(frozen=True)
class Ended:
    at: float
    cpu: float
    """Seconds of the whole process tree, exact."""


class Contestant:
    """A running contender. Use as a context manager: leaving it kills whatever is still alive.

    `started` is the wall clock just before the process was made; `sample` adds a point of (time, CPU, memory).
    Must be entered from the main thread: the reaper below dies with the thread that made it.
    """

    def __init__(self, argv: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._argv = list(argv)
        self._report = folder / "usage.json"
        self._output = folder / "output.log"
        self._environment = {**os.environ, **(environment or {})}
        self.samples: list[tuple[float, float]] = []
        self.peak_rss = 0
        self.started = 0.0

    def __enter__(self) -> Contestant:
        with self._output.open("wb") as output:
            self.started = time.time()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.reaper", str(self._report), *self._argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
                cwd=_ROOT,
            )
        self.samples.append((self.started, 0.0))
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self.alive:
            os.killpg(self.group, signal.SIGKILL)
        self._process.wait()

    @property
    def group(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def sample(self) -> None:
        usage = usage_below(self._process.pid)
        self.samples.append((time.time(), usage.cpu))
        self.peak_rss = max(self.peak_rss, usage.rss)

    def cpu_between(self, start: float, end: float) -> float:
        """CPU seconds used between two moments, by interpolation between the samples."""
        return self._cpu_at(end) - self._cpu_at(start)

    def _cpu_at(self, moment: float) -> float:
        index = bisect_left(self.samples, (moment, 0.0))
        if index == 0:
            return self.samples[0][1]
        if index == len(self.samples):
            return self.samples[-1][1]
        (before, low), (after, high) = self.samples[index - 1], self.samples[index]
        return low + (high - low) * (moment - before) / max(after - before, 1e-9)

    def stop(self, timeout: float) -> Ended:
        """Asks for a clean end by SIGTERM, as a scheduler would."""
        self._process.terminate()
        return self.ended(timeout)

    def ended(self, timeout: float) -> Ended:
        """Waits for the whole tree, then gives exit code, end and exact CPU seconds; raises on a bad end."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise ContenderFailed(f"still running {timeout:.0f} s after its end was due\n{self.tail()}") from None
        if not self._report.exists():
            raise ContenderFailed(f"was killed\n{self.tail()}")
        report = json.loads(self._report.read_text())
        if report["code"] != 0:
            raise ContenderFailed(f"ended with code {report['code']}\n{self.tail()}")
        return Ended(at=report["ended"], cpu=report["cpu"])

    def tail(self, lines: int = 25) -> str:
        return "\n".join(self._output.read_text(errors="replace").splitlines()[-lines:])
