"""The same for changes: merged tables, the replicas that follow them and the audit of every change, killed at random.

Histories of many keys are sent all the while, out of order and some twice. In the end scd1 and scd2 equal what plain
Python makes of the topic, a replica equals its source at every version that it stopped at, and the audit table has
every change once. A reader polls meanwhile: no key twice, at any time.

    python -m tests.e2e.chaos_changes --kills 50 --seed 7
"""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.e2e.chaos_frame import Asked, command_line, live_through, set_up
from tests.e2e.check_changes import check
from tests.e2e.producer_and_poller import TURNS, Poller, Producing
from tests.e2e.tables import commits
from tests.integration.change_histories import Change

TOPIC = "changes"
TABLES = ("silver.c", "silver.h", "silver.copy", "silver.again", "silver.audit")
YML = """\
tables:
  silver.c:
    from: {{kafka: changes, max_per_trigger: {most}}}
    decode: {{json: value, schema: &schema "id BIGINT, part STRING, name STRING, city STRING, seq BIGINT, op STRING"}}
    write:
      merge: {{keys: [id, part], sequence: seq, delete_when: "op = 'd'", columns: {{except: [op]}}}}
      change_feed: true
  silver.h:
    from: {{kafka: changes, max_per_trigger: {most}}}
    decode: {{json: value, schema: *schema}}
    write:
      merge: {{keys: [id, part], sequence: seq, delete_when: "op = 'd'", columns: {{except: [op]}}, history: scd2}}
  silver.copy: {{from: {{changes: silver.c, max_files: 4}}, write: {{merge: {{}}, change_feed: true}}}}
  silver.again: {{from: {{changes: silver.copy, max_files: 3}}, write: {{merge: {{}}}}}}
  silver.audit: {{from: {{changes: silver.c, starting: {{version: 0}}, max_files: 3}}, audit: {{who: name}}}}
"""
BATCHES = 2
"""So many of every table a life lasts at least, but for those that are killed as they start."""
PATIENCE = 400.0
_ONE_ROW = "SELECT count(*), count(DISTINCT concat(id, '/', part)) FROM t WHERE NOT _deleted"
_ONE_CURRENT = f"{_ONE_ROW} AND is_current"
ONCE = {"silver.c": _ONE_ROW, "silver.copy": _ONE_ROW, "silver.again": _ONE_ROW, "silver.h": _ONE_CURRENT}


class Flow(Producing):
    """Inserts, updates, deletes and inserts again; a change may overtake others, or come again much later. It waits for
    a slow machine: `taken` says how many the tables can have read at most."""

    KEYS, HOT, HELD, AHEAD = 3000, 40, 300, 3000

    def __init__(
        self, bootstrap: str, rate: int, partitions: int, chance: random.Random, taken: Callable[[], int]
    ) -> None:
        super().__init__(bootstrap, max(TURNS, rate))  # at least one in every turn
        self._partitions, self._chance, self._taken = partitions, chance, taken
        self._clock: Counter[int] = Counter()
        self._held: list[Change] = []
        self._before: list[Change] = []

    def turn(self) -> None:
        while self.sent > self._taken() + self.AHEAD and not self._stop.wait(0.5):
            pass
        super().turn()

    def send_one(self) -> None:
        partition = self._chance.randrange(self._partitions)
        self._producer.produce(TOPIC, value=self._next().value(), partition=partition)

    def _made(self) -> Change:
        chance = self._chance
        one = chance.randrange(self.HOT if chance.random() < 0.3 else self.KEYS)
        self._clock[one] += chance.choice((1, 1, 1, 0))  # sometimes the sequence of the change before
        op = chance.choices(("u", "c", "d"), (6, 2, 2))[0]
        city = chance.choice((None, "Köln", "São"))
        return Change(one, f"p{one % 3}", f"name {self.sent}", city, self._clock[one], op)

    def _next(self) -> Change:
        if self._before and self._chance.random() < 0.1:
            return self._chance.choice(self._before)
        while len(self._held) < self.HELD:
            self._held.append(self._made())
            self.sent += 1
        place = self._chance.randrange(len(self._held))
        self._held[place], self._held[-1] = self._held[-1], self._held[place]
        self._before.append(self._held.pop())
        return self._before[-1]


def _taken(folder: Path, most: int) -> int:
    return commits(folder, TABLES[0]) * most


def chaos(asked: Asked, most: int = 300, batches: int = BATCHES) -> dict[str, object]:
    """`shortest` and `longest` begin when every table has written batches in this life. `most` changes make a batch."""
    folder = asked.folder

    def alive(runner: subprocess.Popen[bytes]) -> None:
        # The commit that makes a table is no batch yet.
        wanted = {table: max(1, commits(folder, table)) + batches for table in TABLES}
        deadline = time.monotonic() + PATIENCE
        while any(commits(folder, table) < count for table, count in wanted.items()):
            assert runner.poll() is None and time.monotonic() < deadline, (folder / "run.log").read_text()[-5000:]
            time.sleep(0.1)

    with set_up(asked, TOPIC, YML, most=most) as bootstrap:
        taken = partial(_taken, folder, most)
        flow = Flow(bootstrap, asked.rate, asked.partitions, random.Random(asked.seed), taken)
        lived = live_through(asked, TABLES, flow, Poller(folder, ONCE, pause=2.0), alive)
        return {**check(folder, bootstrap, TOPIC), **lived}


if __name__ == "__main__":
    command_line(__doc__, chaos, kills=50, rate=200, shortest=0.0, longest=12.0)
