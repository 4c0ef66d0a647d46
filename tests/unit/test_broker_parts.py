"""What the development broker rests on: ports, processes that end with us, settings. No JVM."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pytest

from penstock.dev.broker import LARGEST_RECORD, Broker, NewTopicRequest, parse_topic, properties
from penstock.dev.process import (
    LOOPBACK,
    Child,
    Server,
    end_process,
    free_port,
    identity,
    is_taken,
    pid_on_port,
    reasons,
)
from penstock.errors import SetupError, UsageError


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind((LOOPBACK, 0))
        listener.listen()
        yield listener.getsockname()[1]


def comes_true(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def test_a_port_taken_is_an_error_that_names_port_process_and_option(taken: int, tmp_path: Path) -> None:
    with pytest.raises(SetupError) as caught:
        Broker(port=taken, data_dir=tmp_path).start()
    assert f"port {taken} on {LOOPBACK} is taken by process {os.getpid()}" in caught.value.message
    assert "--port" in str(caught.value.hint)


def test_a_free_port_is_free_and_nobody_holds_it() -> None:
    port = free_port()
    assert not is_taken(port)
    assert pid_on_port(port) is None


def test_the_broker_listens_on_loopback_only_and_overrides_win(tmp_path: Path) -> None:
    found = properties(9092, 9093, tmp_path, {"num.partitions": "7", "auto.create.topics.enable": "true"})
    assert found["listeners"] == "CLIENTS://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert found["num.partitions"] == "7"
    assert found["auto.create.topics.enable"] == "true"
    assert int(found["message.max.bytes"]) == LARGEST_RECORD > 30_000_000


def test_a_topic_is_a_name_and_perhaps_partitions() -> None:
    assert parse_topic("orders:4") == NewTopicRequest("orders", 4)
    assert parse_topic("web.click-stream") == NewTopicRequest("web.click-stream", 1)
    for wrong in ("orders:", "orders:0", "orders:many", ":4"):
        with pytest.raises(UsageError, match="is not a topic"):
            parse_topic(wrong)


def test_a_child_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    program = (
        "import os, signal; from pathlib import Path; from penstock.dev.process import Child;"
        f"folder = Path({str(folder)!r});"
        "child = Child(['sleep', '600'], output=folder / 'out', remove_after_us=folder);"
        "print(child.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL
    assert comes_true(lambda: identity(int(done.stdout)) is None)
    assert comes_true(lambda: not folder.exists())


def test_a_child_that_was_detach_outlives_its_owner(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from penstock.dev.process import Child, identity;"
        f"child = Child(['sleep', '600'], output=Path({str(tmp_path / 'out')!r}));"
        "child.detach(); print(child.pid, identity(child.pid))"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    pid, known = done.stdout.split()
    time.sleep(0.3)
    assert identity(int(pid)) == known
    assert end_process(int(pid), known)
    assert identity(int(pid)) is None


def test_a_process_that_only_has_the_same_pid_is_not_ended(tmp_path: Path) -> None:
    child = Child(["sleep", "600"], output=tmp_path / "out")
    try:
        assert not end_process(child.pid, "another boot/123")
        assert child.exit_code() is None
    finally:
        child.end(0)
    assert child.exit_code() == -signal.SIGKILL


def test_a_program_that_ends_by_itself_gives_its_exit_code(tmp_path: Path) -> None:
    child = Child(["sh", "-c", "echo told; exit 7"], output=tmp_path / "out")
    assert comes_true(lambda: child.exit_code() == 7)
    assert (tmp_path / "out").read_text() == "told\n"


class Sleeper(Server):
    """A server that is any program; it answers once its file is there."""

    _title, _hint, _logs = "the sleeper", "wake it", ("out", "missing.log")

    def __init__(self, *command: str, patience: float = 10.0) -> None:
        super().__init__("sleeper")
        self.command, self.patience = command, patience

    def start(self) -> Self:
        child = self._launch(self.command, self.folder / "out")
        self._wait_for_answer(child, lambda: (self.folder / "ready").exists(), self.patience, 0.01)
        return self

    def stop(self) -> None:
        self._end(0.0)


def test_a_server_that_ends_before_it_answers_says_why() -> None:
    with pytest.raises(SetupError) as caught:
        Sleeper("sh", "-c", "echo starting; echo 'x FATAL no room'; echo bye; exit 7").start()
    assert caught.value.message == "the sleeper did not start: it ended with code 7\n  x FATAL no room"
    assert caught.value.hint == "wake it"


def test_a_server_that_does_not_answer_in_time_is_ended() -> None:
    server = Sleeper("sh", "-c", "echo waiting; sleep 600", patience=0.2)
    with pytest.raises(SetupError, match="the sleeper did not start: it did not answer for 0 s\n  waiting"):
        server.start()
    assert not server.running


def test_a_server_that_answers_runs_until_its_block_ends() -> None:
    server = Sleeper()
    server.command = ("sh", "-c", f"sleep 0.1; touch {server.folder}/ready; exec sleep 600")
    with server:
        assert server.running
    assert not server.running
    assert not server.folder.exists()


def test_the_lines_that_tell_what_was_wrong_come_from_logs_and_stack_traces() -> None:
    kafka = "[x] INFO ok\n[x] ERROR Exiting (kafka.Kafka$)\njava.io.IOException: full\n\tat java.base/x\n"
    assert reasons(kafka) == "\n  [x] ERROR Exiting (kafka.Kafka$)\n  java.io.IOException: full"
    assert reasons("creating files\ninitdb: error: no space\nremoved\n") == "\n  initdb: error: no space"
    assert reasons("a\nb\n\nc\nd\n") == "\n  b\n  c\n  d"
