"""What the development broker runs with: its properties, its log, and its storage made ready."""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from penstock.dev.ports import LOOPBACK
from penstock.errors import SetupError

LARGEST_RECORD = 64 * 1024 * 1024

_LOG4J = """\
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c{{1}}: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = file
"""


def properties(port: int, controller_port: int, storage: Path, overrides: Mapping[str, str]) -> dict[str, str]:
    """server.properties of one node that is broker and controller, for this machine only."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"CLIENTS://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
        "advertised.listeners": f"CLIENTS://{LOOPBACK}:{port}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
        "log.dirs": str(storage),
        # A topic that appears because somebody mistyped its name hides the mistake.
        "auto.create.topics.enable": "false",
        "message.max.bytes": str(LARGEST_RECORD),
        "replica.fetch.max.bytes": str(LARGEST_RECORD),
        # Internal topics of one node: one copy, and not 50 partitions of files.
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # After a crash the controller refuses the broker until the session of the old one has ended: 9 s by default.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # By default a quarter of our heap.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        "num.io.threads": "4",
        **overrides,
    }


def write_files(folder: Path, settings: Mapping[str, str]) -> None:
    """server.properties and log4j2.properties; the log is broker.log beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "server.properties").write_text(properties_text(settings))
    (folder / "log4j2.properties").write_text(_LOG4J.format(log=_escaped(str(folder / "broker.log"))))


def properties_text(settings: Mapping[str, str]) -> str:
    """As Java reads it."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def jvm(java: Path, jars: tuple[Path, ...], folder: Path, heap: str) -> list[str]:
    """The command up to the class name."""
    return [
        str(java),
        f"-Xmx{heap}",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        "-Dlog4j2.disableJmx=true",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "-cp",
        os.pathsep.join(map(str, jars)),
    ]


def format_storage(command: list[str], folder: Path, storage: Path) -> None:
    """Make the storage ready, once: a formatted one is left as it is."""
    if (storage / "meta.properties").exists():
        return
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    if cluster.startswith("-"):  # The tool would read it as an option.
        cluster = "k" + cluster[1:]
    arguments = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(folder / "server.properties")]
    done = subprocess.run(
        [
            command[0],
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            *command[1:],
            *arguments,
        ],  # It only lives a second.
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    if done.returncode != 0:
        raise SetupError(
            f"the broker's storage {storage} could not be made ready:{reasons(done.stdout)}",
            hint="check the space left on that disk and the overrides given",
        )


def reasons(text: str) -> str:
    """The few lines of a log or a stack trace that say what was wrong, ready to follow a colon."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    telling = [line for line in lines if " ERROR " in line or " FATAL " in line or "Exception" in line]
    return "".join(f"\n  {line[:300]}" for line in (telling or lines)[-3:])


def cluster_id(storage: Path) -> str | None:
    try:
        lines = (storage / "meta.properties").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition("=")[2].strip() for line in lines if line.startswith("cluster.id=")), None)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")
