"""Kill a running project again and again, and look at the table all the while.

A producer sends numbered records without pause; a reader polls the table; the runner is killed with SIGKILL at random
moments (the whole process group, Python alone, the JVM alone), and after some kills its checkpoint is damaged. At no
poll may the table hold a coordinate twice, and in the end it holds exactly what the broker has, once.

    python -m tests.e2e.chaos --kills 200 --seed 7
"""

from __future__ import annotations

from pathlib import Path

from tests.e2e.chaos_frame import Asked, command_line, live_through, set_up
from tests.e2e.producer_and_poller import Poller, Producing
from tests.e2e.tables import ask, commits

TABLE = "bronze.orders"
TOPIC = "chaos.orders-v1"
YML = """\
tables:
  bronze.orders:
    from: {{kafka: {topic}, max_per_trigger: 3000}}
"""
ONCE = {TABLE: "SELECT count(*), count(DISTINCT concat(topic, '/', partition, '/', \"offset\")) FROM t"}


class Flow(Producing):
    """Numbered records."""

    def __init__(self, bootstrap: str, rate: int, partitions: int) -> None:
        super().__init__(bootstrap, rate)
        self._partitions = partitions

    def send_one(self) -> None:
        value = f'{{"n":{self.sent},"pad":"{"x" * (self.sent % 200)}"}}'
        self._producer.produce(TOPIC, key=str(self.sent), value=value, partition=self.sent % self._partitions)
        self.sent += 1


class GrowthPoller(Poller):
    """From one poll to the next the table may only grow, too."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ONCE)
        self._rows = 0

    def judge(self, table: str, rows: int, distinct: int) -> None:
        super().judge(table, rows, distinct)
        if rows < self._rows:
            self.problems.append(f"poll {self.polls}: {self._rows} rows became {rows}")
        self._rows = rows


def chaos(asked: Asked) -> dict[str, object]:
    with set_up(asked, TOPIC, YML) as bootstrap:
        flow = Flow(bootstrap, asked.rate, asked.partitions)
        lived = live_through(asked, [TABLE], flow, GrowthPoller(asked.folder))
        ((rows, distinct),) = ask(asked.folder, TABLE, ONCE[TABLE])
        doubled = rows - distinct
        assert (rows, doubled) == (flow.sent, 0), f"{rows} rows, {doubled} doubled, {flow.sent} sent"
        return {"rows": rows, "doubled": doubled, "commits": commits(asked.folder, TABLE), **lived}


if __name__ == "__main__":
    command_line(__doc__, chaos, kills=200, rate=2000, shortest=1.0, longest=20.0)
