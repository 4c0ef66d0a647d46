"""A project whose batches can be made slow, and its runner, stopped or killed in a chosen phase."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.e2e.kills import jvm_of

TABLES = ("bronze.orders", "silver.orders")
LONG = 60
"""Seconds that a slow batch takes: more than any bound in these tests."""

_PROJECT = """\
name: stopping
lake: ./lake
kafka: {{bootstrap: '{bootstrap}'}}
spark: {{master: 'local[2]'}}
defaults: {{trigger: 1s}}
tables:
  bronze.orders:
    from: {{kafka: {topic}}}
  silver.orders:
    from: {{kafka: {topic}}}
    decode: {{json: value, schema: id BIGINT}}
    transform: transforms.py:slow
"""

_TRANSFORMS = f"""\
import time
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

HERE = Path({{folder!r}})


@F.udf("bigint")
def slowly(value):
    if (HERE / "slow").exists():
        (HERE / "busy").touch()
        time.sleep({LONG} if value % 100 == 0 else 0)
    return value


def slow(orders: DataFrame) -> DataFrame:
    if (HERE / "slow driver").exists():
        (HERE / "busy").touch()
        time.sleep({LONG})
    return orders.withColumn("id", slowly("id"))
"""


class Stopping:
    """The project, and how many records its topic has."""

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        self.folder, self._bootstrap, self._topic = folder, bootstrap, topic
        self.sent = 0
        (folder / "penstock.yml").write_text(_PROJECT.format(bootstrap=bootstrap, topic=topic))
        (folder / "transforms.py").write_text(_TRANSFORMS.format(folder=str(folder)))

    def send(self, count: int = 100) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for number in range(self.sent, self.sent + count):
            producer.produce(self._topic, value=json.dumps({"id": number}), partition=number % 2)
        assert producer.flush(20) == 0
        self.sent += count

    def slow(self, how: str = "slow") -> None:
        (self.folder / how).touch()

    def quick(self) -> None:
        for name in ("slow", "slow driver", "busy"):
            (self.folder / name).unlink(missing_ok=True)

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "penstock", "-C", str(self.folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=240)

    def states(self) -> dict[str, dict[str, Any]]:
        return {one["table"]: one for one in json.loads(self.call("status", "--json").stdout)["tables"]}

    def state(self, table: str) -> str | None:
        """What its runner said last."""
        try:
            found = (self.folder / f"lake/_penstock/state/{table}.json").read_text()
            return str(json.loads(found)["state"])
        except (OSError, ValueError):
            return None

    def finish(self) -> None:
        """`run --once` lands every row once, whatever happened before."""
        from tests.integration.run_plan import rows_at

        self.quick()
        done = self.call("run", "--once")
        assert done.returncode == 0, done.stdout + done.stderr
        bronze = Counter((row["partition"], row["offset"]) for row in rows_at(str(self.folder / "lake/bronze/orders")))
        assert bronze == Counter((number % 2, number // 2) for number in range(self.sent))
        silver = Counter(row["id"] for row in rows_at(str(self.folder / "lake/silver/orders")))
        assert silver == Counter(range(self.sent))


class Runner:
    """`penstock run` in a session of its own, so that whatever it leaves behind is found."""

    def __init__(self, project: Stopping, *arguments: str) -> None:
        self.project = project
        self._output = project.folder / "run.log"
        command = [sys.executable, "-m", "penstock", "-C", str(project.folder), "run", *arguments]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)

    @property
    def output(self) -> str:
        return self._output.read_text()

    def wait_for(self, what: Callable[[], object], *, patience: float = 240) -> None:
        deadline = time.monotonic() + patience
        while not what():
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, f"it did not happen\n{self.output}"
            time.sleep(0.02)

    def wait_for_jvm(self) -> None:
        self.wait_for(lambda: jvm_of(self.process) is not None)

    def wait_for_batch(self) -> None:
        self.wait_for((self.project.folder / "busy").exists)

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self, *, within: float) -> str:
        """What it said. It must be gone by then, with everything that it started."""
        began = time.monotonic()
        try:
            self.process.wait(timeout=within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs after {time.monotonic() - began:.0f} s\n{self.output}") from None
        deadline = time.monotonic() + 3  # workers see that their JVM is gone
        while (left := self.left()) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left, left
        return self.output

    def left(self) -> list[str]:
        """The processes of its session that still run."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
                if (
                    int(fields[3]) == self.process.pid
                    and fields[0] != "Z"
                    and int(stat.parent.name) != self.process.pid
                ):
                    found.append(stat.with_name("cmdline").read_text().replace("\0", " ")[:200])
            except (OSError, IndexError):
                continue
        return found

    def kill(self) -> None:
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                if int(stat.read_text().rpartition(")")[2].split()[3]) == self.process.pid:
                    os.kill(int(stat.parent.name), signal.SIGKILL)
            except (OSError, IndexError):
                continue
        self.process.wait()
