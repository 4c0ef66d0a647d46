import os
import sys
import time
from pathlib import Path

import pytest

from bench.machine import Stolen
from bench.process import ContenderFailed, Contestant

BUSY = "import time; t = time.process_time()\nwhile time.process_time() - t < 0.3: pass"


def _run(folder: Path, program: str) -> Contestant:
    return Contestant([sys.executable, "-c", program], folder)


def test_cpu_time_of_an_orphan_counts(tmp_path: Path) -> None:
    """As with a JVM that outlives the Python which started it."""
    program = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BUSY!r}])"
    with _run(tmp_path, program) as process:
        assert process.ended(30).cpu >= 0.3


def test_cpu_time_is_seen_while_it_runs(tmp_path: Path) -> None:
    with _run(tmp_path, BUSY + "\ntime.sleep(60)") as process:
        until = time.time() + 30
        while process.samples[-1][1] < 0.3 and time.time() < until:
            process.sample()
            time.sleep(0.05)
        assert process.cpu_between(process.started, time.time()) >= 0.3
        assert process.peak_rss > 1_000_000


def test_leaving_kills_the_whole_group(tmp_path: Path) -> None:
    child = (
        "import subprocess, sys\n"
        "subprocess.Popen(['sleep', '60'])\n"
        "open(sys.argv[1], 'w')\n"
        "subprocess.call(['sleep', '60'])"
    )
    ready = tmp_path / "ready"
    with Contestant([sys.executable, "-c", child, str(ready)], tmp_path) as process:
        until = time.time() + 30
        while not ready.exists() and time.time() < until:
            time.sleep(0.05)
        group = process.group
    with pytest.raises(ProcessLookupError):
        _wait_for_group_to_end(group)


def _wait_for_group_to_end(group: int) -> None:
    for _ in range(100):
        os.killpg(group, 0)
        time.sleep(0.1)


def test_a_bad_end_says_what_was_printed(tmp_path: Path) -> None:
    with _run(tmp_path, "raise SystemExit('no broker there')") as process, pytest.raises(ContenderFailed) as failure:
        process.ended(30)
    assert "ended with code 1" in str(failure.value)
    assert "no broker there" in str(failure.value)


def test_a_clean_stop_reaches_the_contender(tmp_path: Path) -> None:
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "open(sys.argv[1], 'w')\n"
        "time.sleep(60)"
    )
    ready = tmp_path / "ready"
    with Contestant([sys.executable, "-c", program, str(ready)], tmp_path) as process:
        until = time.time() + 30
        while not ready.exists() and time.time() < until:
            time.sleep(0.05)
        assert process.stop(30).at <= time.time()


def test_time_that_the_host_gave_to_others_is_noted(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    stolen = Stolen(stat)
    assert stolen.notes() == []
    stat.write_text("cpu  150 0 100 830 0 0 0 20 9 9\n")
    assert stolen.share() == 0.2
    assert "20% of its CPU time" in stolen.notes()[0]
