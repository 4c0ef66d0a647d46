"""`penstock kafka` as a user calls it. Its state is in a folder of the test's own; the jars are the user's."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.dev.process import identity
from tests.golden import golden, shape

Verb = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Verb]:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "COLUMNS": "200"}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "penstock", "kafka", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180)

    yield call
    call("stop")


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_it_is_started_once_shown_and_stopped(kafka: Verb) -> None:
    first = answer(kafka("start", "--port", "0", "--topic", "orders:3", "--json"))
    assert first["made"] == ["orders"]
    again = answer(kafka("start", "--topic", "orders:3", "--topic", "clicks", "--json"))
    assert (again["pid"], again["already"], again["made"]) == (first["pid"], True, ["clicks"])

    shown = answer(kafka("status", "--json"))
    assert shown["bootstrap"] == first["bootstrap"]
    assert [(t["name"], t["partitions"], t["records"]) for t in shown["topics"]] == [("clicks", 1, 0), ("orders", 3, 0)]

    other = kafka("start", "--port", "1")
    assert other.returncode == 2
    assert "already runs" in other.stderr and "penstock kafka stop" in other.stderr

    stopped = answer(kafka("stop", "--json"))
    assert identity(first["pid"]) is None
    assert kafka("status").returncode == 1
    for name, document in {"start": again, "status": shown, "stop": stopped}.items():
        golden(f"documents/kafka-{name}", shape(document))


def test_a_port_taken_names_the_port_and_the_option(kafka: Verb) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        done = kafka("start", "--port", str(port))
    assert done.returncode == 3
    assert f"port {port} on 127.0.0.1 is taken by process {os.getpid()}" in done.stderr
    assert "--port" in done.stderr
    assert "Traceback" not in done.stderr


def test_stop_leaves_a_process_alone_that_only_has_the_remembered_pid(kafka: Verb, tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        memory = tmp_path / "penstock" / "kafka" / "broker.json"
        memory.parent.mkdir(parents=True)
        remembered = {"pid": bystander.pid, "identity": "an earlier boot/1", "port": 9092, "data": "", "started": 0.0}
        memory.write_text(json.dumps(remembered))
        assert kafka("status").returncode == 1
        assert kafka("stop").returncode == 0
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
