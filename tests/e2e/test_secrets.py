"""A canary password against a broker that asks for one: it lands the records, and is found nowhere afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.dev.broker import Broker
from penstock.dev.process import LOOPBACK, free_port

CANARY = "canary-7f3a9"
USER = "lander"
PROJECT = """\
name: secrets
lake: ./lake
kafka:
  bootstrap: {bootstrap}
  security: {{protocol: SASL_PLAINTEXT, mechanism: PLAIN, username: lander, password: "${{env:CANARY}}"}}
spark: {{master: "local[2]"}}
tables:
  bronze.orders: {{from: {{kafka: orders}}}}
"""


@pytest.fixture
def guarded() -> Iterator[tuple[Broker, str]]:
    """A broker with a second listener that wants a password."""
    port, second = free_port(), free_port()
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    plain = f"CLIENTS://{LOOPBACK}:{port},GUARDED://{LOOPBACK}:{second}"
    controller = free_port()
    overrides = {
        "listeners": f"{plain},CONTROLLER://{LOOPBACK}:{controller}",
        "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
        "advertised.listeners": plain,
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,GUARDED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.guarded.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.guarded.plain.sasl.jaas.config": f'{module} user_{USER}="{CANARY}";',
    }
    with Broker(port=port, overrides=overrides) as broker:
        broker.create_topic("orders", 2)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(50):
            producer.produce("orders", value=str(number))
        assert producer.flush(20) == 0
        yield broker, f"{LOOPBACK}:{second}"


def penstock(folder: Path, secret: str, *arguments: str) -> tuple[int, str, set[str]]:
    """Exit code, all that was printed, and every command line that was seen meanwhile."""
    command = [sys.executable, "-m", "penstock", "-C", str(folder), *arguments]
    environment = {**os.environ, "CANARY": secret}
    seen: set[str] = set()
    with (folder / "printed.txt").open("w+") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=printed, env=environment)
        while process.poll() is None:
            for file in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.add(file.read_text(errors="replace"))
                except OSError:
                    continue
            time.sleep(0.3)
        printed.seek(0)
        return process.returncode, printed.read(), seen


def test_a_password_lands_the_records_and_is_found_nowhere(guarded: tuple[Broker, str], tmp_path: Path) -> None:
    _, bootstrap = guarded
    (tmp_path / "penstock.yml").write_text(PROJECT.format(bootstrap=bootstrap))
    code, printed, seen = penstock(tmp_path, CANARY, "run", "--once")
    assert code == 0, printed
    code, shown, _ = penstock(tmp_path, CANARY, "verify")
    assert code == 0, shown
    assert "50 rows" in shown
    for verb in ("plan", "status", "history bronze.orders"):
        code, more, _ = penstock(tmp_path, CANARY, *verb.split(), "--json")
        assert code == 0, more
        shown += more
    marks = ("canary", "7f3a9")
    assert not [text for text in (printed, shown, *seen) if any(mark in text for mark in marks)]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_delta_log" in str(path) for path in files) and any(path.suffix == ".log" for path in files)
    assert not [path for path in files if any(mark.encode() in path.read_bytes() for mark in marks)]


@pytest.mark.deep
def test_a_wrong_password_is_a_clear_refusal_without_the_password(guarded: tuple[Broker, str], tmp_path: Path) -> None:
    _, bootstrap = guarded
    (tmp_path / "penstock.yml").write_text(PROJECT.format(bootstrap=bootstrap))
    code, printed, _ = penstock(tmp_path, "canary-wrong", "run", "--once")
    assert code == 3
    assert "security" in printed, printed
    assert "canary" not in printed and "Traceback" not in printed
