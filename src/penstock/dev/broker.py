"""A real Kafka broker on this machine, for development, demonstrations and tests.

    with Broker() as broker:                    # a free port, a temporary folder
        broker.create_topic("orders", 4)
        ...                                     # broker.bootstrap is "127.0.0.1:<port>"

It ends with the Python process that started it, however that ends; `detach` makes it stay (`penstock kafka start`).
"""

from __future__ import annotations

import base64
import logging
import os
import signal
import socket
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from penstock.dev.process import (
    LOOPBACK,
    Child,
    Server,
    TryAgain,
    free_port,
    is_taken,
    pid_on_port,
    reasons,
    wait_until,
)
from penstock.errors import BrokerAway, SetupError, UsageError
from penstock.kafka.client import Admin
from penstock.plan.sources import Cluster
from penstock.spark.jars import broker_jars
from penstock.spark.java import find_java

# Topics of the development broker: create, list, count.


TIMEOUT = 15.0


@dataclass(frozen=True)
class TopicCount:
    name: str
    partitions: int
    records: int
    """Offsets from the first to the next one, over all partitions: the most that a reader from the start would see."""


@dataclass(frozen=True)
class NewTopicRequest:
    name: str
    partitions: int


def parse_topic(text: str) -> NewTopicRequest:
    """`name` or `name:partitions`."""
    name, colon, number = text.partition(":")
    if not name or (colon and not (number.isdigit() and int(number) > 0)):
        raise UsageError(f"--topic {text}: that is not a topic", hint="write name or name:partitions, as in orders:4")
    return NewTopicRequest(name, int(number) if colon else 1)


def create_topic(bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> bool:
    """False if the topic exists already (it is left as it is). Returns when the broker's own metadata has the topic:
    the broker follows the controller, which answers a little earlier."""
    request = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    client = _client(bootstrap)  # Kept until the answer: a client that is garbage collected drops its requests.
    try:
        client.create_topics([request], request_timeout=TIMEOUT)[name].result(TIMEOUT + 5)
    except KafkaException as error:
        cause = error.args[0]
        if cause.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        if cause.code() in (KafkaError.TOPIC_EXCEPTION, KafkaError.INVALID_PARTITIONS, KafkaError.INVALID_CONFIG):
            raise UsageError(f"the topic {name} was refused: {cause.str()}") from None
        raise _away_error(bootstrap, cause.str()) from None
    wait_until(lambda: name in client.list_topics(timeout=TIMEOUT).topics, TIMEOUT, 0.02)
    return True


def count_topics(bootstrap: str) -> list[TopicCount]:
    """Every topic except Kafka's internal ones."""
    try:
        names = [name for name in _client(bootstrap).list_topics(timeout=TIMEOUT).topics if not name.startswith("__")]
    except KafkaException as error:
        raise _away_error(bootstrap, error.args[0].str()) from None
    admin = Admin(Cluster("development", bootstrap), timeout=TIMEOUT)
    topics = admin.describe(names)
    first_offsets, next_offsets = admin.earliest(topics), admin.latest(topics, committed=False)
    return [
        TopicCount(
            name,
            len(topic.partitions),
            sum(next_offsets[name][p] - first_offsets[name][p] for p in topic.partitions),
        )
        for name, topic in sorted(topics.items())
    ]


def answering_cluster(bootstrap: str, timeout: float) -> str | None:
    """The id of the cluster that answers there, once it has a broker that accepts clients."""
    try:
        answer = _client(bootstrap).list_topics(timeout=timeout)
    except KafkaException:
        return None
    return answer.cluster_id if answer.brokers else None


def _client(bootstrap: str) -> AdminClient:
    # librdkafka would write every refused connection to standard error while we wait for the broker.
    silent = logging.Logger("librdkafka", logging.CRITICAL + 1)
    properties: dict[str, Any] = {"bootstrap.servers": bootstrap, "logger": silent, "log_level": 0}
    return AdminClient(properties)


def _away_error(bootstrap: str, reason: str) -> BrokerAway:
    return BrokerAway(f"Kafka at {bootstrap} does not answer ({reason})", hint="penstock kafka status")


# The files of the development broker: its properties, its log settings, and its formatted storage.


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
rootLogger.level = {level}
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
        # A topic that is created because its name was mistyped would hide the mistake.
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
        # The default would be a quarter of our heap.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        "num.io.threads": "4",
        **overrides,
    }


def write_files(folder: Path, settings: Mapping[str, str]) -> None:
    """server.properties and log4j2.properties; the log is broker.log beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "server.properties").write_text(properties_text(settings))
    write_log_settings(folder, "broker.log", "INFO")


def write_log_settings(folder: Path, log: str, level: str) -> None:
    """log4j2.properties, for the command that `jvm` makes."""
    (folder / "log4j2.properties").write_text(_LOG4J.format(log=_escaped(str(folder / log)), level=level))


def properties_text(settings: Mapping[str, str]) -> str:
    """The text of a properties file as Java reads it."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in settings.items())


def jvm(jars: Sequence[Path], folder: Path, heap: str, *options: str) -> list[str]:
    """The command up to the class name."""
    return [
        str(find_java().path),
        f"-Xmx{heap}",
        "-XX:+ExitOnOutOfMemoryError",
        *options,
        "-Djava.awt.headless=true",
        "-Dlog4j2.disableJmx=true",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "-cp",
        os.pathsep.join(map(str, jars)),
    ]


def format_storage(command: list[str], folder: Path, storage: Path) -> None:
    """Formats the storage once: formatted storage is left as it is."""
    if (storage / "meta.properties").exists():
        return
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    if cluster.startswith("-"):  # The tool would read it as an option.
        cluster = "k" + cluster[1:]
    arguments = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(folder / "server.properties")]
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]  # It runs for a second only.
    result = subprocess.run(
        [command[0], *options, *command[1:], *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    if result.returncode != 0:
        raise SetupError(
            f"the broker's storage {storage} could not be made ready:{reasons(result.stdout)}",
            hint="check the space left on that disk and the overrides given",
        )


def cluster_id(storage: Path) -> str | None:
    try:
        lines = (storage / "meta.properties").read_text().splitlines()
    except OSError:
        return None
    return next((line.partition("=")[2].strip() for line in lines if line.startswith("cluster.id=")), None)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\")


PATIENCE = 120.0
"""Seconds until a broker that does not answer counts as failed. It takes 4 s on an idle machine, 30 s on a busy one."""


class Broker(Server):
    """Started by `start` or `with`. After `stop` or `kill` it can be started again: same port, same data."""

    _title = "the Kafka broker"
    _logs = ("broker.out", "broker.log")

    def __init__(
        self,
        *,
        port: int = 0,
        data_dir: Path | str | None = None,
        overrides: Mapping[str, str] | None = None,
        heap: str = "512m",
    ) -> None:
        """`port` 0 takes a free one; without `data_dir` the data is in a folder that is removed in the end."""
        super().__init__("kafka", data_dir)
        self.port = port
        self.heap = heap
        self._any_port = port == 0
        self._overrides = dict(overrides or {})
        self.data_dir = self.folder
        self._hint = "start it with a data folder to keep its log" if self._temporary else f"its log is {self.log}"

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    @property
    def log(self) -> Path:
        return self.data_dir / "broker.log"

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def start(self) -> Self:
        """Returns when the broker answers clients. Raises SetupError with the reason if it does not."""
        if self.running:
            return self
        for _ in range(3):
            if self.port == 0:
                self.port = free_port()
            elif is_taken(self.port):
                raise self._port_error()
            try:
                self._start_once()
                return self
            except TryAgain:
                # Another process bound a port between our check and the broker's start.
                if self._any_port:
                    self.port = 0
                elif is_taken(self.port):
                    raise self._port_error() from None
        raise self._start_error("its ports were taken again and again")

    def stop(self) -> None:
        """Stops like an operator would: the broker closes its files. The data stays."""
        self._end(20.0)

    def kill(self) -> None:
        """Ends like in a crash (SIGKILL). The data stays as it is at that moment."""
        self._end(0.0)

    def pause(self) -> None:
        """Until `resume`, the broker keeps its connections and answers nothing."""
        self._running_child().send(signal.SIGSTOP)

    def resume(self) -> None:
        self._running_child().send(signal.SIGCONT)

    def detach(self) -> None:
        """From now on the broker outlives this process."""
        self._running_child().detach()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> bool:
        """False if the topic exists already."""
        return create_topic(self.bootstrap, name, partitions, config)

    def _start_once(self) -> None:
        storage = self.data_dir / "log"
        command = jvm(broker_jars(), self.data_dir, self.heap)
        write_files(self.data_dir, properties(self.port, free_port(), storage, self._overrides))
        format_storage(command, self.data_dir, storage)
        self.log.unlink(missing_ok=True)
        output = self.data_dir / "broker.out"
        output.unlink(missing_ok=True)
        child = self._launch([*command, "kafka.Kafka", str(self.data_dir / "server.properties")], output)
        cluster = cluster_id(storage)
        # Compare the id: on a port that was lost to another broker, that broker would answer.
        self._wait_for_answer(
            child, lambda: self._listens() and answering_cluster(self.bootstrap, 5.0) == cluster, PATIENCE
        )

    def _ended_error(self, code: int) -> SetupError:
        if "Address already in use" in self._log_text():
            return TryAgain(f"port {self.port} was taken")
        return super()._ended_error(code)

    def _listens(self) -> bool:
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1.0):
                return True
        except OSError:
            return False

    def _running_child(self) -> Child:
        if self._child is None or self._child.exit_code() is not None:
            raise SetupError("the broker does not run", hint="start it first")
        return self._child

    def _port_error(self) -> SetupError:
        pid = pid_on_port(self.port)
        return SetupError(
            f"port {self.port} on {LOOPBACK} is taken" + (f" by process {pid}" if pid else ""),
            hint="end that process, or choose another port with --port (0 takes a free one)",
        )
