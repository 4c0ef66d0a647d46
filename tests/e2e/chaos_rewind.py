"""Rewinds that are killed at random, beside a runner that is killed at random, while records arrive.

In every round bronze or silver goes back to a version that is chosen at random, with all that is made of it. A reader
polls: a record is never there twice. In the end a last rewind is let through; then bronze, silver, its quarantine and
gold equal what plain Python makes of the records.

    python -m tests.e2e.chaos_rewind --kills 20 --seed 7
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from penstock.engine.protocol.log import DeltaLog
from penstock.engine.store import LocalStore
from tests.e2e.beside import Poller
from tests.e2e.chaos_frame import Asked, command_line, set_up
from tests.e2e.chaos_replay import PATIENCE, PROJECT, TOPIC, Flow, end, wait_for_rows
from tests.e2e.chaos_replay import check as check_layers
from tests.e2e.kills import run_to_the_end, start
from tests.e2e.tables import ask, place

RULE = 4
_POLLED = {
    "bronze.t": "SELECT count(*), count(DISTINCT concat(partition, '/', offset)) FROM t",
    "silver.t": "SELECT count(*), count(DISTINCT concat(_source['partition'], '/', _source['offset'])) FROM t",
}


def rewind(folder: Path, table: str) -> subprocess.Popen[bytes]:
    """To a version among its last hundred."""
    versions = DeltaLog(LocalStore(), str(place(folder, table)), table).versions()
    version = random.choice(versions[-100:-1] or versions)
    command = [sys.executable, "-m", "penstock", "-C", str(folder), "rewind", table]
    command += ["--version", str(version), "--cascade", "--yes"]
    with (folder / "rewind.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def chaos(asked: Asked) -> dict[str, object]:
    with set_up(asked, TOPIC, PROJECT, rule=RULE) as bootstrap:
        flow, poller = Flow(bootstrap, asked.rate, asked.partitions), Poller(asked.folder, _POLLED)
        counts: Counter[str] = Counter()
        flow.start()
        poller.start()
        runner = start(asked.folder)
        wait_for_rows(asked.folder)
        try:
            for number in range(asked.kills):
                going_back = rewind(asked.folder, random.choice(("bronze.t", "silver.t")))
                time.sleep(random.uniform(asked.shortest, asked.longest))
                if random.random() < 0.3:
                    end(runner, counts, "runner")
                end(going_back, counts, "rewind")
                counts[f"rewinds that ended with {going_back.returncode}"] += going_back.returncode >= 0
                if runner.poll() is not None:
                    runner = start(asked.folder)
                time.sleep(random.uniform(0, asked.longest))
                print(f"round {number + 1}/{asked.kills}, {poller.polls} polls, {dict(counts)}", file=sys.stderr)
                assert not poller.problems, poller.problems
        finally:
            flow.stop()
            os.killpg(runner.pid, signal.SIGKILL)
            runner.wait()
        run_to_the_end(asked.folder)
        last = rewind(asked.folder, "bronze.t")
        assert last.wait(PATIENCE) == 0, (asked.folder / "rewind.log").read_text()[-3000:]
        run_to_the_end(asked.folder)
        poller.stop()
        assert not poller.problems, poller.problems
        ((landed,),) = ask(asked.folder, "bronze.t", "SELECT count(*) FROM t")
        assert landed == flow.sent
        return {"bronze": landed, **check_layers(asked.folder, flow, RULE), "polls": poller.polls, **counts}


if __name__ == "__main__":
    command_line(__doc__, chaos, kills=20, rate=200, shortest=4.0, longest=30.0)
