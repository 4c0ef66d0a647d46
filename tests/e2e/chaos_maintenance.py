"""Redrives, optimizes, vacuums without retention and heals, killed at random beside a runner that is killed at random,
while records arrive.

In every round the rule of the silver table asks for less, so that rows that were rejected may pass. A reader polls: a
record is never there twice. In the end a redrive is let through, twice, and a vacuum; then bronze, silver, its
quarantine and gold equal what plain Python makes of the records by the last rule.

    python -m tests.e2e.chaos_maintenance --kills 20 --seed 7
"""

from __future__ import annotations

import random

from tests.e2e.chaos_frame import Asked, command_line, set_up, write_project
from tests.e2e.chaos_replay import TOPIC, YML, Flow, check
from tests.e2e.chaos_rewind import POLLED
from tests.e2e.chaos_verbs import Verb, rounds
from tests.e2e.kills import run_to_the_end
from tests.e2e.producer_and_poller import Poller
from tests.e2e.tables import ask

REDRIVE = Verb(("dlq", "redrive", "silver.t"))
OPTIMIZE = Verb(("optimize", "--full"))
VACUUM = Verb(("vacuum", "--retain", "0s"))
HEAL = Verb(("checkpoints", "heal", "silver.t"))
MOST = 40


def chaos(asked: Asked) -> dict[str, object]:
    with set_up(asked, TOPIC, YML, rule=MOST) as bootstrap:

        def one_of_them(number: int) -> Verb:
            rule = MOST - MOST * (number + 1) // asked.kills
            write_project(asked.folder, YML, bootstrap=bootstrap, topic=TOPIC, rule=rule)
            return random.choice((REDRIVE, REDRIVE, REDRIVE, OPTIMIZE, VACUUM, VACUUM, HEAL))

        flow, poller = Flow(bootstrap, asked.rate, asked.partitions), Poller(asked.folder, POLLED)
        counts = rounds(asked, flow, poller, one_of_them, anew=True)
        run_to_the_end(asked.folder)
        for last in (REDRIVE, REDRIVE, OPTIMIZE, VACUUM):
            last.let_through(asked.folder)
        run_to_the_end(asked.folder)
        VACUUM.let_through(asked.folder)
        run_to_the_end(asked.folder)
        poller.stop()
        assert not poller.problems, poller.problems
        ((landed,),) = ask(asked.folder, "bronze.t", "SELECT count(*) FROM t")
        assert landed == flow.sent
        return {"bronze": landed, **check(asked.folder, flow, rule=0), "polls": poller.polls, **counts}


if __name__ == "__main__":
    command_line(__doc__, chaos, kills=20, rate=200, shortest=4.0, longest=30.0)
