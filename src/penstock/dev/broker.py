"""A real Kafka broker on this machine, for development, demonstrations and tests.

    with Broker() as broker:                    # a free port, a temporary folder
        broker.create_topic("orders", 4)
        ...                                     # broker.bootstrap is "127.0.0.1:<port>"

It ends with the Python process that started it, however that ends; `let_go` makes it stay (`penstock kafka start`).
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from penstock.dev import broker_settings as settings
from penstock.dev.child import Child
from penstock.dev.ports import LOOPBACK, free_port, holder, is_taken
from penstock.dev.server import Server
from penstock.dev.topics import answering_cluster, create_topic
from penstock.engine.jars import broker_jars
from penstock.engine.java import find_java
from penstock.errors import SetupError

PATIENCE = 120.0
"""Seconds until a broker that does not answer counts as failed. It takes 4 on an idle machine, 30 on a busy one."""


class Broker(Server):
    """Started by `start` or by entering it. After `stop` or `kill` it can be started again: same port, same data."""

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
        """Returns when it answers clients. SetupError says why it does not."""
        if self.running:
            return self
        for _ in range(3):
            if self.port == 0:
                self.port = free_port()
            elif is_taken(self.port):
                raise self._port_taken()
            try:
                self._start_once()
                return self
            except _LostPort:
                # Another process bound a port between our look and the broker's.
                if self._any_port:
                    self.port = 0
                elif is_taken(self.port):
                    raise self._port_taken() from None
        raise self._failed("its ports were taken again and again")

    def stop(self) -> None:
        """As an operator would: it closes its files. The data stays."""
        self._end(20.0)

    def kill(self) -> None:
        """As a crash would (SIGKILL). The data stays as it is at that moment."""
        self._end(0.0)

    def pause(self) -> None:
        """It keeps its connections and answers nothing, until `resume`."""
        self._running_child().send(signal.SIGSTOP)

    def resume(self) -> None:
        self._running_child().send(signal.SIGCONT)

    def let_go(self) -> None:
        """From now on it outlives this process."""
        self._running_child().let_go()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> bool:
        """False if there is one already."""
        return create_topic(self.bootstrap, name, partitions, config)

    def _start_once(self) -> None:
        storage = self.data_dir / "log"
        command = settings.jvm(find_java().path, broker_jars(), self.data_dir, self.heap)
        settings.write_files(self.data_dir, settings.properties(self.port, free_port(), storage, self._overrides))
        settings.format_storage(command, self.data_dir, storage)
        self.log.unlink(missing_ok=True)
        output = self.data_dir / "broker.out"
        output.unlink(missing_ok=True)
        child = self._launch([*command, "kafka.Kafka", str(self.data_dir / "server.properties")], output)
        try:
            self._wait(child, settings.cluster_id(storage))
        except BaseException:
            self._end(0.0)
            raise

    def _wait(self, child: Child, cluster: str | None) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            code = child.exit_code()
            if code is not None:
                if "Address already in use" in self._told():
                    raise _LostPort(f"port {self.port} was taken")
                raise self._failed(f"it ended with code {code}")
            # The id: on a port that was lost to another broker, that one would answer.
            if self._listens() and answering_cluster(self.bootstrap, 5.0) == cluster:
                return
            time.sleep(0.05)
        raise self._failed(f"it did not answer for {PATIENCE:.0f} s")

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

    def _told(self) -> str:
        texts = []
        for name in ("broker.out", "broker.log"):
            path = self.data_dir / name
            if path.exists():
                texts.append(path.read_text(errors="replace"))
        return "\n".join(texts)

    def _failed(self, reason: str) -> SetupError:
        return SetupError(
            f"the Kafka broker did not start: {reason}{settings.reasons(self._told())}",
            hint=f"its log is {self.log}" if not self._temporary else "start it with a data folder to keep its log",
        )

    def _port_taken(self) -> SetupError:
        pid = holder(self.port)
        return SetupError(
            f"port {self.port} on {LOOPBACK} is taken" + (f" by process {pid}" if pid else ""),
            hint="end that process, or choose another port with --port (0 takes a free one)",
        )


class _LostPort(SetupError):
    pass
