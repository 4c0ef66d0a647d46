"""A real Kafka Connect worker with Debezium's connector for PostgreSQL, for development, examples and tests."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from penstock.dev.broker import Broker, properties_text, reasons
from penstock.dev.postgres import Postgres
from penstock.dev.process import LOOPBACK, Child, Server, free_port
from penstock.errors import SetupError
from penstock.spark.jars import connect_jars
from penstock.spark.java import find_java

# The settings of the Connect worker and of Debezium's connector.


STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
NAME = "postgres"
"""The name of the connector within its worker."""
_JSON = "org.apache.kafka.connect.json.JsonConverter"

_LOG4J = """\
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{{1}}: %m%n
rootLogger.level = WARN
rootLogger.appenderRef.file.ref = file
"""


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
    (folder / "log4j2.properties").write_text(_LOG4J.format(log=folder / "connect.log"))
    return paths


def jvm(java: Path, jars: Sequence[Path], folder: Path, heap: str) -> list[str]:
    """The command up to the class name."""
    return [
        str(java),
        f"-Xmx{heap}",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:TieredStopAtLevel=1",  # The start takes two thirds of the time, and little is sent.
        "-Djava.awt.headless=true",
        "-Dlog4j2.disableJmx=true",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "-cp",
        os.pathsep.join(map(str, jars)),
    ]


# A real Kafka Connect worker with Debezium's connector for PostgreSQL, for development, examples and tests.
#
#     with Connect(broker, postgres, tables=["public.customers"], topic_prefix="shop"):
#         ...                     # changes of the table are in the topic shop.public.customers
#
# The worker is standalone: its offsets are in a file, which a killed worker leaves behind for the next one. It ends
# with the Python process that started it, however that ends.


PATIENCE = 180.0
"""Seconds until a connector that does not run counts as failed. It takes 8 on an idle machine, a minute on a busy one.
"""


class Connect(Server):
    """Started by `start` or `with`. After `stop` or `kill` it continues from its offsets."""

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
        self._broker, self._postgres = broker, postgres
        self.schemas, self._heap = schemas, heap
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
        command = jvm(find_java().path, connect_jars(), self.folder, self._heap)
        files = write_files(self.folder, self._broker.bootstrap, self.rest, self._connector, self.schemas)
        child = self._launch([*command, STANDALONE, *map(str, files)], self.folder / "connect.out")
        try:
            self._wait_until_running(child)
        except BaseException:
            self.kill()
            raise
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

    def _wait_until_running(self, child: Child) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if (code := child.exit_code()) is not None:
                raise self._start_error(f"it ended with code {code}")
            try:
                status = self.status()
            except (OSError, urllib.error.URLError, ValueError):
                time.sleep(0.2)
                continue
            states = [status["connector"], *status["tasks"]]
            if failed := next((state for state in states if state["state"] == "FAILED"), None):
                raise self._start_error(str(failed.get("trace", "the connector failed")).split("\n\tat ")[0])
            if len(states) > 1 and all(state["state"] == "RUNNING" for state in states):
                return
            time.sleep(0.2)
        raise self._start_error(f"the connector did not run for {PATIENCE:.0f} s")

    def _start_error(self, reason: str) -> SetupError:
        log_text = "\n".join(
            path.read_text(errors="replace")
            for path in (self.folder / "connect.out", self.folder / "connect.log")
            if path.exists()
        )
        return SetupError(
            f"the Connect worker did not start: {reason}{reasons(log_text)}",
            hint="is the broker up, and PostgreSQL with wal_level=logical and a free replication slot?",
        )
