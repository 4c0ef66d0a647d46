"""The frame of every chaos: a broker, a project, runners that are killed while others send and read, a last run. And
the command line that asks for it."""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.dev.broker import Broker
from tests.e2e.kills import KINDS, kill_again_and_again, run_to_the_end
from tests.e2e.producer_and_poller import Poller, Producing
from tests.e2e.tables import commits

PROJECT = """\
name: chaos
lake: ./lake
kafka: {{bootstrap: "{bootstrap}"}}
spark: {{master: "local[2]", conf: {{spark.driver.memory: 2g}}}}
defaults: {{trigger: 500ms}}
"""
"""How the project begins."""


@dataclass(frozen=True)
class Asked:
    """The chaos that somebody wants."""

    kills: int
    seed: int
    partitions: int
    rate: int
    """Records per second."""
    shortest: float
    """Seconds that a runner lives at least."""
    longest: float
    folder: Path
    """Of the project."""
    only: str | None = None
    """What is killed; None: each in turn at random."""


@contextmanager
def set_up(asked: Asked, topic: str, tables: str, **more: object) -> Iterator[str]:
    """The topic and the project are there, and chance begins with the seed. Gives the broker's address. `more` is what
    stands in the project's file besides that and the topic."""
    random.seed(asked.seed)
    with Broker() as broker:
        broker.create_topic(topic, asked.partitions)
        write_project(asked.folder, tables, bootstrap=broker.bootstrap, topic=topic, **more)
        yield broker.bootstrap


def write_project(folder: Path, tables: str, **given: object) -> None:
    (folder / "penstock.yml").write_text((PROJECT + tables).format(**given))


def live_through(
    asked: Asked,
    tables: Sequence[str],
    flow: Producing,
    poller: Poller,
    alive: Callable[[subprocess.Popen[bytes]], None] | None = None,
) -> dict[str, int]:
    """All lives and the last run, after which the tables have all that was sent. How often the reader looked, and what
    was killed and damaged. `alive` is that of `kill_again_and_again`."""

    def look_at_it(number: int, counts: Counter[str]) -> None:
        done = {table: commits(asked.folder, table) for table in tables}
        told = f"kill {number + 1}/{asked.kills}, {poller.polls} polls, {dict(counts)}, commits {done}"
        print(told, file=sys.stderr, flush=True)
        assert not poller.problems, poller.problems

    flow.start()
    poller.start()
    try:
        counts = kill_again_and_again(
            asked.folder, tables, asked.kills, asked.shortest, asked.longest, asked.only, look_at_it, alive
        )
    finally:
        flow.stop()
    run_to_the_end(asked.folder)
    poller.stop()
    assert not poller.problems, poller.problems
    return {"polls": poller.polls, **counts}


def command_line(
    about: str,
    chaos: Callable[[Asked], Mapping[str, object]],
    *,
    kills: int,
    rate: int,
    shortest: float,
    longest: float,
) -> None:
    """Chaos as a command; the numbers are its defaults."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--rate", type=int, default=rate, help="records per second")
    parser.add_argument("--shortest", type=float, default=shortest, help="seconds that a runner lives at least")
    parser.add_argument("--longest", type=float, default=longest, help="seconds that a runner lives at most")
    parser.add_argument("--only", choices=list(KINDS), help="what is killed; by default each in turn at random")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = chaos(Asked(**vars(chosen), folder=Path(folder)))
    print(json.dumps({"seed": chosen.seed, **found}, indent=2))
