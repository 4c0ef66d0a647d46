"""A real Kafka Connect worker with Debezium's connector for PostgreSQL, for development, examples and tests.

    with Connect(broker, postgres, tables=["public.customers"], topic_prefix="shop"):
        ...                     # changes of the table are in the topic shop.public.customers

The worker stands alone: its offsets are in a file, which a killed worker leaves behind for the next one. It ends with
the Python process that started it, however that ends.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Self

from penstock.dev import connect_settings as settings
from penstock.dev.broker import Broker
from penstock.dev.broker_settings import reasons
from penstock.dev.child import Child
from penstock.dev.ports import LOOPBACK, free_port
from penstock.dev.postgres import Postgres
from penstock.dev.server import Server
from penstock.engine.jars import connect_jars
from penstock.engine.java import find_java
from penstock.errors import SetupError

PATIENCE = 180.0
"""Seconds until a connector that does not run counts as failed. It takes 8 on an idle machine, a minute on a busy one.
"""


class Connect(Server):
    """Started by `start` or by entering it. After `stop` or `kill` it goes on where its offsets are."""

    def __init__(
        self,
        broker: Broker,
        postgres: Postgres,
        *,
        tables: Sequence[str],
        topic_prefix: str,
        schemas: bool = False,
        database: str | None = None,
        overrides: Mapping[str, str] | None = None,
        heap: str = "256m",
    ) -> None:
        """`tables` as schema.table. `schemas`: whether each record says what its fields are. `overrides` are the
        connector's settings. Topics that are not there are made, with one partition."""
        super().__init__("connect")
        self.tables, self.topic_prefix = tuple(tables), topic_prefix
        self.rest = 0
        self._broker, self._postgres = broker, postgres
        self.schemas, self._heap = schemas, heap
        self._connector = {
            **settings.connector(postgres, database or postgres.database, self.tables, topic_prefix),
            **(overrides or {}),
        }

    @property
    def topics(self) -> tuple[str, ...]:
        """Where the changes of each table go."""
        return tuple(f"{self.topic_prefix}.{table}" for table in self.tables)

    @property
    def slot(self) -> str:
        """Of PostgreSQL: it keeps its log for us from where this slot stands, until somebody drops it."""
        return self._connector["slot.name"]

    def start(self) -> Self:
        """Returns when the connector and its task run; the first snapshot may still be on its way."""
        if self.running:
            return self
        for topic in self.topics:
            self._broker.create_topic(topic, 1)
        self.rest = free_port()
        command = settings.jvm(find_java().path, connect_jars(), self.folder, self._heap)
        files = settings.write_files(self.folder, self._broker.bootstrap, self.rest, self._connector, self.schemas)
        child = self._launch([*command, settings.STANDALONE, *map(str, files)], self.folder / "connect.out")
        try:
            self._wait(child)
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """As an operator would: what was sent is recorded in the offsets."""
        self._end(20.0)

    def kill(self) -> None:
        """As a crash would (SIGKILL): what was sent since the offsets were last written is sent again."""
        self._end(0.0)

    def status(self) -> dict[str, Any]:
        """What the worker says of its connector."""
        address = f"http://{LOOPBACK}:{self.rest}/connectors/{settings.NAME}/status"
        with urllib.request.urlopen(address, timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def _wait(self, child: Child) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if (code := child.exit_code()) is not None:
                raise self._failed(f"it ended with code {code}")
            try:
                found = self.status()
            except (OSError, urllib.error.URLError, ValueError):
                time.sleep(0.2)
                continue
            states = [found["connector"], *found["tasks"]]
            if failed := next((state for state in states if state["state"] == "FAILED"), None):
                raise self._failed(str(failed.get("trace", "the connector failed")).split("\n\tat ")[0])
            if len(states) > 1 and all(state["state"] == "RUNNING" for state in states):
                return
            time.sleep(0.2)
        raise self._failed(f"the connector did not run for {PATIENCE:.0f} s")

    def _failed(self, reason: str) -> SetupError:
        told = "\n".join(
            path.read_text(errors="replace")
            for path in (self.folder / "connect.out", self.folder / "connect.log")
            if path.exists()
        )
        return SetupError(
            f"the Connect worker did not start: {reason}{reasons(told)}",
            hint="is the broker up, and PostgreSQL with wal_level=logical and a free replication slot?",
        )
