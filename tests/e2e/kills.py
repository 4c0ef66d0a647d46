"""Runners that are killed with SIGKILL, and checkpoints that are damaged behind them."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "penstock", "-C", str(folder), "run", *arguments]
    told = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    with (folder / "run.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=told)


def jvm_of(runner: subprocess.Popen[bytes]) -> int | None:
    """The JVM of Spark, not the one that is asked for its version before."""
    children = Path(f"/proc/{runner.pid}/task").glob("*/children")
    for pid in (pid for file in children for pid in file.read_text().split()):
        try:
            if "org.apache.spark.deploy.SparkSubmit" in Path(f"/proc/{pid}/cmdline").read_text():
                return int(pid)
        except OSError:
            continue
    return None


def kill_group(runner: subprocess.Popen[bytes]) -> None:
    os.killpg(runner.pid, signal.SIGKILL)


def kill_python(runner: subprocess.Popen[bytes]) -> None:
    os.kill(runner.pid, signal.SIGKILL)


def kill_jvm(runner: subprocess.Popen[bytes]) -> None:
    pid = jvm_of(runner)
    if pid is None:
        kill_group(runner)
        return
    os.kill(pid, signal.SIGKILL)
    try:
        code = runner.wait(60)
    except subprocess.TimeoutExpired:
        os.kill(runner.pid, signal.SIGABRT)  # its last words are where each thread stands
        code = runner.wait()
    assert code == 3, f"the runner hung or ended with {code} after its JVM was killed"


KINDS = {"group": kill_group, "python": kill_python, "jvm": kill_jvm}


def _newest(checkpoint: Path, kind: str) -> Path | None:
    found = [path for path in (checkpoint / kind).glob("*") if path.name.isdigit()]
    return max(found, key=lambda path: int(path.name), default=None)


def truncate_offsets(checkpoint: Path) -> None:
    newest = _newest(checkpoint, "offsets")
    if newest is not None:
        text = newest.read_bytes()
        newest.write_bytes(text[: random.randrange(len(text) or 1)])


DAMAGES: dict[str, Callable[[Path], None]] = {
    "checkpoint deleted": lambda folder: shutil.rmtree(folder, ignore_errors=True),
    "offsets deleted": lambda folder: shutil.rmtree(folder / "offsets", ignore_errors=True),
    "commits deleted": lambda folder: shutil.rmtree(folder / "commits", ignore_errors=True),
    "metadata deleted": lambda folder: (folder / "metadata").unlink(missing_ok=True),
    "last offsets truncated": truncate_offsets,
}


def damage(folder: Path, table: str, how: str) -> None:
    for checkpoint in (folder / "lake/_penstock/checkpoints" / table).glob("*"):
        DAMAGES[how](checkpoint)


def wait_for_end_of_jvm(folder: Path, table: str, patience: float = 30) -> None:
    """After Python was killed the JVM ends by itself; damage to files of a living process would be another test."""
    from penstock.storage.locks import holder, lock_path

    deadline = time.monotonic() + patience
    while holder(lock_path(str(folder / "lake/_penstock"), table, "run")) is not None:
        assert time.monotonic() < deadline, "the JVM outlived its Python"
        time.sleep(0.1)


def kill_again_and_again(
    folder: Path,
    tables: Sequence[str],
    kills: int,
    shortest: float,
    longest: float,
    only: str | None,
    after_each: Callable[[int, Counter[str]], None],
    alive: Callable[[subprocess.Popen[bytes]], None] | None = None,
) -> Counter[str]:
    """Runners that live for a while each; after every other one the checkpoint of a table is damaged. With `alive` that
    while begins when it returns, but for some that are killed as they start."""
    kinds = [KINDS[only]] if only else list(KINDS.values())
    counts: Counter[str] = Counter()
    for number in range(kills):
        runner = start(folder)
        if alive is not None and random.random() < 0.8:
            alive(runner)
        # Some kills hit the start, most of them a running stream.
        time.sleep(random.uniform(shortest, longest))
        how = random.choice(kinds)
        if runner.poll() is not None:
            counts["ended before"] += 1
            assert runner.returncode == 0, (folder / "run.log").read_text()[-3000:]
        else:
            try:
                how(runner)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{(folder / 'run.log').read_text()[-9000:]}") from None
            counts[how.__name__] += 1
        runner.wait()
        if random.random() < 0.5:
            table, what = random.choice(tables), random.choice(list(DAMAGES))
            wait_for_end_of_jvm(folder, table)
            damage(folder, table, what)
            counts[what] += 1
        after_each(number, counts)
    return counts


def run_to_the_end(folder: Path, patience: float = 1800) -> None:
    """`run --once`, and then `verify`."""
    last = start(folder, "--once")
    assert last.wait(patience) == 0, (folder / "run.log").read_text()[-3000:]
    verify = [sys.executable, "-m", "penstock", "-C", str(folder), "verify", "--json"]
    said = subprocess.run(verify, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr
