"""Rewinds that are killed at random, beside a runner that is killed at random, while records arrive.

In every round bronze or silver goes back to a version that is chosen at random, with all that is made of it. A reader
polls: a record is never there twice. In the end a last rewind is let through; then bronze, silver, its quarantine and
gold equal what plain Python makes of the records.

    python -m tests.e2e.chaos_rewind --kills 20 --seed 7
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from penstock.ledger.delta_log import DeltaLog
from penstock.storage.stores import LocalStore
from tests.e2e.chaos_frame import Asked, command_line, set_up
from tests.e2e.chaos_replay import TOPIC, YML, Flow, check
from tests.e2e.chaos_verbs import Verb, rounds
from tests.e2e.kills import run_to_the_end
from tests.e2e.producer_and_poller import Poller
from tests.e2e.tables import ask, place

RULE = 4
POLLED = {
    "bronze.t": "SELECT count(*), count(DISTINCT concat(partition, '/', offset)) FROM t",
    "silver.t": "SELECT count(*), count(DISTINCT concat(_source['partition'], '/', _source['offset'])) FROM t",
}


def rewind(folder: Path, table: str) -> Verb:
    """To a version among its last hundred."""
    versions = DeltaLog(LocalStore(), str(place(folder, table)), table).versions()
    version = random.choice(versions[-100:-1] or versions)
    return Verb(("rewind", table, "--version", str(version), "--cascade"))


def chaos(asked: Asked) -> dict[str, object]:
    with set_up(asked, TOPIC, YML, rule=RULE) as bootstrap:
        flow, poller = Flow(bootstrap, asked.rate, asked.partitions), Poller(asked.folder, POLLED)
        counts = rounds(asked, flow, poller, lambda _: rewind(asked.folder, random.choice(("bronze.t", "silver.t"))))
        run_to_the_end(asked.folder)
        rewind(asked.folder, "bronze.t").let_through(asked.folder)
        run_to_the_end(asked.folder)
        poller.stop()
        assert not poller.problems, poller.problems
        counts += _said(asked.folder)
        ((landed,),) = ask(asked.folder, "bronze.t", "SELECT count(*) FROM t")
        assert landed == flow.sent
        return {"bronze": landed, **check(asked.folder, flow, RULE), "polls": poller.polls, **counts}


def _said(folder: Path) -> Counter[str]:
    """What the ledgers say that has happened to the tables: kills before the first commit leave no trace there."""
    found: Counter[str] = Counter()
    for table in ("bronze.t", "silver.t", "gold.t"):
        for commit in DeltaLog(LocalStore(), str(place(folder, table)), table).backwards():
            entry = commit.entry
            if entry is not None and entry.kind != "batch":
                owes = "".join(f", owes {name}" for name in entry.pending)
                found[f"{table}: {entry.kind}{owes}"] += 1
    return found


if __name__ == "__main__":
    command_line(__doc__, chaos, kills=20, rate=200, shortest=4.0, longest=30.0)
