"""A command that is killed at random, round after round, beside a runner that is killed at random, while others send
and read. Of replays, rewinds, forgets, and of whatever else is done to tables at work."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deltalake.exceptions import TableNotFoundError

from penstock.engine.protocol.locks import holder
from tests.e2e.beside import Poller, Producing
from tests.e2e.chaos_frame import Asked
from tests.e2e.kills import KINDS, start
from tests.e2e.tables import ask

LOG = "verbs.log"
PATIENCE = 900.0


@dataclass(frozen=True)
class Verb:
    words: tuple[str, ...]
    told: str = ""
    """On standard input: a command line is in the list of processes."""

    def given(self, folder: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "penstock", "-C", str(folder), *self.words, "--yes"]
        with (folder / LOG).open("ab") as log:
            made = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)
        assert made.stdin is not None
        made.stdin.write(self.told.encode())
        made.stdin.close()
        return made

    def let_through(self, folder: Path) -> None:
        assert self.given(folder).wait(PATIENCE) == 0, (folder / LOG).read_text()[-3000:]


def rounds(
    asked: Asked, flow: Producing, poller: Poller, verb: Callable[[int], Verb], *, anew: bool = False
) -> Counter[str]:
    """What was killed, and how the commands ended that were not. `anew`: the verb of a round has changed the project,
    so the runner begins again before it. The runner is dead in the end, and all is sent."""
    folder, counts = asked.folder, Counter[str]()
    flow.start()
    poller.start()
    runner = start(folder)
    try:
        wait_for_rows(folder)
        for number in range(asked.kills):
            given = verb(number)
            if anew:
                end(runner, counts, "runner")
                runner = start(folder)
            process = given.given(folder)
            if random.random() < 0.3:
                time.sleep(random.uniform(asked.shortest, asked.longest))
            else:
                wait_for_work(folder, process)
                time.sleep(random.uniform(0, asked.longest / 3))
            if random.random() < 0.3:
                end(runner, counts, "runner")
            what = " ".join(word for word in given.words[:2] if word.isalpha())
            end(process, counts, what)
            if process.returncode >= 0:
                counts[f"{what}: ended with {process.returncode}"] += 1
            if runner.poll() is not None:
                runner = start(folder)
            time.sleep(random.uniform(0, asked.longest) / 2)
            told = f"round {number + 1}/{asked.kills}, {poller.polls} polls, {dict(counts)}"
            print(told, file=sys.stderr, flush=True)
            assert not poller.problems, poller.problems
    finally:
        flow.stop()
        os.killpg(runner.pid, signal.SIGKILL)
        runner.wait()
    return counts


def end(process: subprocess.Popen[bytes], counts: Counter[str], what: str) -> None:
    """With SIGKILL, of one kind or another; nothing happens if it has ended."""
    if process.poll() is None:
        kind = random.choice(("group", "python"))
        KINDS[kind](process)
        counts[f"{what}: killed, {kind}"] += 1
    process.wait()


def wait_for_work(folder: Path, process: subprocess.Popen[bytes]) -> None:
    """Until it has taken a table for itself: most of a command's life is the start of its JVM."""
    locks = folder / "lake/_penstock/locks"
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        if any(holder(str(path)) for kind in ("replay", "upkeep") for path in locks.glob(f"*.{kind}*")):
            return
        time.sleep(0.05)


def wait_for_rows(folder: Path, table: str = "silver.t") -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if ask(folder, table, "SELECT count(*) FROM t")[0][0]:
                return
        except TableNotFoundError:
            pass
        time.sleep(0.5)
    raise AssertionError((folder / "run.log").read_text()[-3000:])
