"""A real Kafka Connect worker with Debezium's connector for PostgreSQL, for development, examples and tests.

    with Connect(broker, postgres, tables=["public.customers"], topic_prefix="shop"):
        ...                     # changes of the table are in the topic shop.public.customers

The worker is standalone: its offsets are in a file, which a killed worker leaves behind for the next one. It ends
with the Python process that started it, however that ends.
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from penstock.dev.broker import Broker, jvm, properties_text, write_log_settings
from penstock.dev.postgres import Postgres
from penstock.dev.process import LOOPBACK, Server, free_port
from penstock.spark.jars import connect_jars

STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
NAME = "postgres"
"""The name of the connector within its worker."""
_JSON = "org.apache.kafka.connect.json.JsonConverter"


def connector(postgres: Postgres, database: str, tables: Sequence[str], topic_prefix: str) -> dict[str, str]:
    """Values are encoded as by Debezium's defaults; truncates are sent, which by default they are not."""
    name = re.sub(r"[^a-z0-9_]", "_", topic_prefix.lower())
    return {
        "name": NAME,
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": LOOPBACK,
        "database.port": str(postgres.port),
        "database.user": postgres.user,
        "database.dbname": database,
        "topic.prefix": topic_prefix,
        "table.include.list": ",".join(tables),
        "plugin.name": "pgoutput",
        "slot.name": f"penstock_{name}",
        "publication.name": f"penstock_{name}",
        "publication.autocreate.mode": "filtered",
        "skipped.operations": "none",
        "poll.interval.ms": "50",
    }


def write_files(
    folder: Path, bootstrap: str, port: int, connector: Mapping[str, str], schemas: bool
) -> tuple[Path, Path]:
    """Writes the files that are arguments of the worker and returns their paths; its log is connect.log beside them."""
    plugins = folder / "plugins"  # Empty: the plugins are on the class path already.
    plugins.mkdir(exist_ok=True)
    worker = {
        "bootstrap.servers": bootstrap,
        "listeners": f"http://{LOOPBACK}:{port}",
        "key.converter": _JSON,
        "key.converter.schemas.enable": str(schemas).lower(),
        "value.converter": _JSON,
        "value.converter.schemas.enable": str(schemas).lower(),
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "1000",
        "plugin.path": str(plugins),
        "plugin.discovery": "only_scan",
        "producer.max.request.size": str(64 * 1024 * 1024),
    }
    paths = folder / "worker.properties", folder / "connector.properties"
    for path, settings in zip(paths, (worker, connector), strict=True):
        path.write_text(properties_text(settings))
    write_log_settings(folder, "connect.log", "WARN")
    return paths


PATIENCE = 180.0
"""Seconds until a connector that does not run counts as failed. It takes 8 on an idle machine, a minute on a busy one.
"""


class Connect(Server):
    """Started by `start` or `with`. After `stop` or `kill` it continues from its offsets."""

    _title = "the Connect worker"
    _silence = "the connector did not run"
    _hint = "is the broker up, and PostgreSQL with wal_level=logical and a free replication slot?"
    _logs = ("connect.out", "connect.log")

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
        """`tables` as schema.table. `schemas`: whether each record carries its schema. `overrides` are settings of the
        connector. Missing topics are created, with one partition."""
        super().__init__("connect")
        self.tables, self.topic_prefix = tuple(tables), topic_prefix
        self.rest = 0
        self._broker, self.schemas, self._heap = broker, schemas, heap
        self._connector = {
            **connector(postgres, database or postgres.database, self.tables, topic_prefix),
            **(overrides or {}),
        }

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that receive the changes, one per table."""
        return tuple(f"{self.topic_prefix}.{table}" for table in self.tables)

    @property
    def slot(self) -> str:
        """The replication slot: PostgreSQL keeps its log from this slot's position until the slot is dropped."""
        return self._connector["slot.name"]

    def start(self) -> Self:
        """Returns when the connector and its task run; the first snapshot may still be in progress."""
        if self.running:
            return self
        for topic in self.topics:
            self._broker.create_topic(topic, 1)
        self.rest = free_port()
        # The start takes two thirds of the time, and little is sent.
        command = jvm(connect_jars(), self.folder, self._heap, "-XX:TieredStopAtLevel=1")
        files = write_files(self.folder, self._broker.bootstrap, self.rest, self._connector, self.schemas)
        child = self._launch([*command, STANDALONE, *map(str, files)], self.folder / "connect.out")
        self._wait_for_answer(child, self._runs, PATIENCE, 0.2)
        return self

    def stop(self) -> None:
        """Stops like an operator would: what was sent is recorded in the offsets."""
        self._end(20.0)

    def kill(self) -> None:
        """Ends like in a crash (SIGKILL): what was sent since the offsets were last written is sent again."""
        self._end(0.0)

    def status(self) -> dict[str, Any]:
        """The status of the connector as its worker reports it."""
        address = f"http://{LOOPBACK}:{self.rest}/connectors/{NAME}/status"
        with urllib.request.urlopen(address, timeout=5) as response:
            status: dict[str, Any] = json.load(response)
            return status

    def _runs(self) -> bool:
        """Whether the connector and its task run. Raises SetupError if one of them has failed."""
        try:
            status = self.status()
        except (OSError, urllib.error.URLError, ValueError):
            return False
        states = [status["connector"], *status["tasks"]]
        if failed := next((state for state in states if state["state"] == "FAILED"), None):
            raise self._start_error(str(failed.get("trace", "the connector failed")).split("\n\tat ")[0])
        return len(states) > 1 and all(state["state"] == "RUNNING" for state in states)
