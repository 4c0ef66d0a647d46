"""What the Connect worker and Debezium's connector run with."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.dev.broker_settings import properties_text
from penstock.dev.ports import LOOPBACK
from penstock.dev.postgres import Postgres

STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"
NAME = "postgres"
"""Of the connector, within its worker."""
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
    """Debezium's own defaults for the encoding of values; truncates are sent, which by default they are not."""
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
    """The files that the worker is called with; its log is connect.log beside them."""
    plugins = folder / "plugins"  # None: they are on the class path already.
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
    found = folder / "worker.properties", folder / "connector.properties"
    for path, settings in zip(found, (worker, connector), strict=True):
        path.write_text(properties_text(settings))
    (folder / "log4j2.properties").write_text(_LOG4J.format(log=folder / "connect.log"))
    return found


def jvm(java: Path, jars: Sequence[Path], folder: Path, heap: str) -> list[str]:
    """The command up to the class name."""
    return [
        str(java),
        f"-Xmx{heap}",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:TieredStopAtLevel=1",  # It starts in two thirds of the time, and sends little.
        "-Djava.awt.headless=true",
        "-Dlog4j2.disableJmx=true",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "-cp",
        os.pathsep.join(map(str, jars)),
    ]
