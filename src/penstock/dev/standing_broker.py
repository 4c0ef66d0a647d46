"""The development broker of `penstock kafka`: one per user, detached, recorded in a file between commands."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from penstock.dev.broker import Broker, NewTopicRequest, create_topic
from penstock.dev.process import LOOPBACK, end_process, identity
from penstock.errors import SetupError, UsageError

DEFAULT_PORT = 9092


@dataclass(frozen=True)
class RunningBroker:
    """A running broker, as recorded in the file."""

    pid: int
    identity: str
    """With the pid, tells this process from a later one that got the same pid."""
    port: int
    data: str
    started: float
    """Seconds since 1970."""

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.port}"


@dataclass(frozen=True)
class StartedBroker:
    broker: RunningBroker
    was_running: bool
    """It ran already before this call."""
    created_topics: tuple[str, ...]
    """Topics that were created; the other requested ones existed already."""


def state_folder() -> Path:
    """kafka in the user's state folder: $XDG_STATE_HOME/penstock, else ~/.local/state/penstock."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state").absolute() / "penstock" / "kafka"


def default_data() -> Path:
    return state_folder() / "data"


def running() -> RunningBroker | None:
    """The broker that is recorded in the file, if that same process still runs."""
    try:
        recorded = RunningBroker(**json.loads(_record_file().read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return recorded if identity(recorded.pid) == recorded.identity else None


def start(
    port: int | None = None, data: Path | None = None, topics: Sequence[NewTopicRequest] = (), heap: str = "512m"
) -> StartedBroker:
    """Starts the broker, or returns the running one. If that has another port or other data, it is an error."""
    with _command_lock():
        running_broker = running()
        if running_broker is not None:
            _refuse_other_settings(running_broker, port, data)
            return StartedBroker(running_broker, True, _create_topics(running_broker, topics))
        broker = Broker(port=DEFAULT_PORT if port is None else port, data_dir=data or default_data(), heap=heap).start()
        pid = broker.pid
        process_identity = identity(pid) if pid else None
        if pid is None or process_identity is None:
            raise SetupError("the Kafka broker ended as soon as it had started", hint=f"its log is {broker.log}")
        started_broker = RunningBroker(pid, process_identity, broker.port, str(broker.data_dir), time.time())
        _write_record(started_broker)
        broker.detach()
        return StartedBroker(started_broker, False, _create_topics(started_broker, topics))


def stop() -> RunningBroker | None:
    """Ends the broker and nothing else. None if none runs. Its data stays."""
    with _command_lock():
        running_broker = running()
        if running_broker is not None:
            end_process(running_broker.pid, running_broker.identity)
        _record_file().unlink(missing_ok=True)
        return running_broker


def _create_topics(broker: RunningBroker, topics: Sequence[NewTopicRequest]) -> tuple[str, ...]:
    return tuple(topic.name for topic in topics if create_topic(broker.bootstrap, topic.name, topic.partitions))


def _refuse_other_settings(running_broker: RunningBroker, port: int | None, data: Path | None) -> None:
    other_port = port not in (None, 0, running_broker.port)
    other_data = data is not None and data.absolute() != Path(running_broker.data)
    if other_port or other_data:
        raise UsageError(
            f"the broker already runs, on port {running_broker.port} with its data in {running_broker.data}",
            hint="penstock kafka stop, then start it as you want it",
        )


def _record_file() -> Path:
    return state_folder() / "broker.json"


def _write_record(broker: RunningBroker) -> None:
    temporary = _record_file().with_suffix(".new")
    temporary.write_text(json.dumps(asdict(broker), indent=2))
    temporary.replace(_record_file())


@contextmanager
def _command_lock() -> Iterator[None]:
    folder = _record_file().parent
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
