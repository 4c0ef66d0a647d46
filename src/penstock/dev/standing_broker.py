"""The development broker of `penstock kafka`: one per user, detached, remembered in a file between commands."""

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
    """A broker that runs, as the file remembers it."""

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
class Started:
    broker: RunningBroker
    already: bool
    """It ran before we were asked."""
    made: tuple[str, ...]
    """Topics that were created; the others asked for were there."""


def state_folder() -> Path:
    """kafka in the user's state folder: $XDG_STATE_HOME/penstock, else ~/.local/state/penstock."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state").absolute() / "penstock" / "kafka"


def default_data() -> Path:
    return state_folder() / "data"


def running() -> RunningBroker | None:
    """The broker that the file names, if that very process still runs."""
    try:
        remembered = RunningBroker(**json.loads(_memory().read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return remembered if identity(remembered.pid) == remembered.identity else None


def start(
    port: int | None = None, data: Path | None = None, topics: Sequence[NewTopicRequest] = (), heap: str = "512m"
) -> Started:
    """Start it, or find it running. A running one on another port or other data is an error, not a second one."""
    with _one_command_at_a_time():
        found = running()
        if found is not None:
            _refuse_other(found, port, data)
            return Started(found, True, _make(found, topics))
        broker = Broker(port=DEFAULT_PORT if port is None else port, data_dir=data or default_data(), heap=heap).start()
        pid = broker.pid
        known = identity(pid) if pid else None
        if pid is None or known is None:
            raise SetupError("the Kafka broker ended as soon as it had started", hint=f"its log is {broker.log}")
        standing = RunningBroker(pid, known, broker.port, str(broker.data_dir), time.time())
        _remember(standing)
        broker.let_go()
        return Started(standing, False, _make(standing, topics))


def stop() -> RunningBroker | None:
    """End it, and only it. None if none runs. Its data stays."""
    with _one_command_at_a_time():
        found = running()
        if found is not None:
            end_process(found.pid, found.identity)
        _memory().unlink(missing_ok=True)
        return found


def _make(broker: RunningBroker, topics: Sequence[NewTopicRequest]) -> tuple[str, ...]:
    return tuple(topic.name for topic in topics if create_topic(broker.bootstrap, topic.name, topic.partitions))


def _refuse_other(found: RunningBroker, port: int | None, data: Path | None) -> None:
    other_port = port not in (None, 0, found.port)
    other_data = data is not None and data.absolute() != Path(found.data)
    if other_port or other_data:
        raise UsageError(
            f"the broker already runs, on port {found.port} with its data in {found.data}",
            hint="penstock kafka stop, then start it as you want it",
        )


def _memory() -> Path:
    return state_folder() / "broker.json"


def _remember(broker: RunningBroker) -> None:
    temporary = _memory().with_suffix(".new")
    temporary.write_text(json.dumps(asdict(broker), indent=2))
    temporary.replace(_memory())


@contextmanager
def _one_command_at_a_time() -> Iterator[None]:
    folder = _memory().parent
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
