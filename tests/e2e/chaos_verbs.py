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

from tests.e2e.chaos_frame import Asked
from tests.e2e.kills import KINDS, start
from tests.e2e.producer_and_poller import Poller, Producing
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
            before = newest(folder)
            process = given.given(folder)
            live(asked, process, before)
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


def live(asked: Asked, process: subprocess.Popen[bytes], before: dict[Path, int]) -> None:
    """For a while: most of a command's life is the start of its JVM, so some live on until they have committed
    something. `before` is what the logs had when it was given."""
    if random.random() < 0.3:
        time.sleep(random.uniform(asked.shortest, asked.longest))
        return
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline and not _committed(asked.folder, before):
        time.sleep(0.05)
    time.sleep(random.uniform(0, asked.longest / 3))


def newest(folder: Path) -> dict[Path, int]:
    """The newest version of each table."""
    logs = (folder / "lake").glob("*/*/_delta_log")
    return {log: max(int(path.stem) for path in log.glob("*.json")) for log in logs if any(log.glob("*.json"))}


def _committed(folder: Path, before: dict[Path, int]) -> bool:
    """Something else than a batch."""
    for log, version in newest(folder).items():
        for number in range(before.get(log, -1) + 1, version + 1):
            text = (log / f"{number:020d}.json").read_text()
            if r"\"kind\":\"batch\"" not in text.replace(" ", ""):
                return True
    return False


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
