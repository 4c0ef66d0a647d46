"""`penstock run` as a user calls it: how it ends, what it says, who may run beside it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

COMMAND = [sys.executable, "-m", "penstock"]


def write_project(folder: Path, bootstrap: str, tables: dict[str, str], trigger: str = "1s") -> Path:
    lines = "\n".join(f"  {name}: {{from: {{kafka: {topic}}}, trigger: {trigger}}}" for name, topic in tables.items())
    head = f"name: e2e\nlake: ./lake\nkafka: {{bootstrap: '{bootstrap}'}}\nspark: {{master: 'local[2]'}}\n"
    (folder / "penstock.yml").write_text(f"{head}tables:\n{lines}\n")
    return folder


def send(bootstrap: str, topic: str, count: int, partitions: int = 1) -> None:
    """In turn: left to itself, a client puts many records into one partition."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, value=str(number), partition=number % partitions)
    assert producer.flush(20) == 0


def penstock(folder: Path, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "-C", str(folder), *arguments], capture_output=True, text=True, timeout=240, **more
    )


@pytest.fixture
def running(broker: Any) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `run` and waits for a commit with rows, the first if it does not say; ends what a test left."""
    started: list[subprocess.Popen[str]] = []

    def start(folder: Path, commit: int = 1) -> subprocess.Popen[str]:
        command = [*COMMAND, "-C", str(folder), "run"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        started.append(process)
        awaited = folder / f"lake/bronze/orders/_delta_log/{commit:020}.json"
        deadline = time.monotonic() + 120
        while not awaited.exists():
            assert process.poll() is None, process.stdout and process.stdout.read()
            assert time.monotonic() < deadline, "no batch in two minutes"
            time.sleep(0.1)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_nobody_runs_beside_it_a_signal_ends_it_cleanly_and_the_next_one_goes_on(
    broker: Any, topic: Any, tmp_path: Path, running: Any
) -> None:
    name = topic(2)
    send(broker.bootstrap, name, 100)
    folder = write_project(tmp_path, broker.bootstrap, {"bronze.orders": name})
    first = running(folder)
    second = penstock(folder, "run", "--once")
    assert second.returncode == 3
    assert f"process {first.pid}" in second.stdout
    shown = json.loads(penstock(folder, "status", "--json").stdout)["tables"][0]
    assert shown["state"] == "running", "the state is that of the runner that has the table"
    ended_by(first, signal.SIGINT, folder)
    send(broker.bootstrap, name, 50)
    again = running(folder, commit=2)
    assert "rebuilt" not in ended_by(again, signal.SIGTERM, folder)
    found = json.loads(penstock(folder, "history", "bronze.orders", "--json").stdout)
    assert sum(commit["rows"] for commit in found["commits"]) == 150


def ended_by(process: subprocess.Popen[str], number: signal.Signals, folder: Path) -> str:
    """What a run said until it was ended, in the way that a user wants: the batch in flight finished, no noise."""
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert "stopped" in output
    assert "Traceback" not in output and "WARN" not in output
    checkpoint = folder / "lake/_penstock/checkpoints/bronze.orders/1"
    newest = {kind: max(int(p.name) for p in (checkpoint / kind).glob("[0-9]*")) for kind in ("offsets", "commits")}
    assert newest["offsets"] == newest["commits"], "the batch in flight was finished"
    return output


def test_one_failing_table_leaves_the_others_and_sets_the_exit_code(broker: Any, topic: Any, tmp_path: Path) -> None:
    good, bad = topic(1), topic(1)
    send(broker.bootstrap, good, 30)
    folder = write_project(tmp_path, broker.bootstrap, {"bronze.good": good, "bronze.bad": bad}, trigger="once")
    (folder / "lake/bronze/bad/_delta_log").mkdir(parents=True)
    (folder / "lake/bronze/bad/_delta_log/00000000000000000000.json").write_text(
        '{"commitInfo":{"timestamp":1,"operation":"CREATE TABLE"}}\n'
        '{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"schemaString":"{}",'
        '"partitionColumns":[],"configuration":{}}}\n{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'
    )
    done = penstock(folder, "run", "--json")
    tables = json.loads(done.stdout)["tables"]
    assert done.returncode == 3
    good = tables["bronze.good"]
    assert {key: good[key] for key in ("outcome", "batches", "rows", "fates", "error")} == {
        "outcome": "finished",
        "batches": 1,
        "rows": 30,
        "fates": {},
        "error": None,
    }
    assert good["processed_rows_per_second"] == pytest.approx(30 / good["last_batch_seconds"], rel=0.05)
    assert tables["bronze.bad"]["error"]["kind"] == "TableChanged"
    assert "checkpoints reset bronze.bad" in tables["bronze.bad"]["error"]["hint"]


def test_an_unknown_table_is_wrong_use(broker: Any, tmp_path: Path) -> None:
    folder = write_project(tmp_path, broker.bootstrap, {"bronze.orders": "x"})
    done = penstock(folder, "run", "bronze.ordres")
    assert done.returncode == 2
    assert "did you mean 'bronze.orders'?" in done.stderr


@pytest.mark.deep  # the refusal and the reset are also tested without the command
def test_a_lost_range_is_refused_until_a_person_resets_the_table(broker: Any, topic: Any, tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    name = topic(2)
    send(broker.bootstrap, name, 100, partitions=2)
    folder = write_project(tmp_path, broker.bootstrap, {"bronze.orders": name})
    assert penstock(folder, "run", "--once").returncode == 0
    send(broker.bootstrap, name, 100, partitions=2)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    position = json.loads(penstock(folder, "status", "--json").stdout)
    assert position
    for future in admin.delete_records([TopicPartition(name, 0, 80)]).values():
        future.result(timeout=20)
    refused = penstock(folder, "run", "--once")
    assert refused.returncode == 3
    assert "offsets were removed from Kafka before they were read" in refused.stdout
    assert f"{name}-0 [" in refused.stdout
    shown = penstock(folder, "checkpoints", "reset", "bronze.orders", "--to", "ledger", "--dry-run", "--json")
    assert shown.returncode == 0, shown.stderr
    planned = json.loads(shown.stdout)
    assert not planned["again"] and not planned["done"]
    lost = sum(r["end"] - r["start"] for r in planned["skipped"])
    assert lost == 30
    done = penstock(folder, "checkpoints", "reset", "bronze.orders", "--to", "ledger", "--yes")
    assert done.returncode == 0, done.stderr
    landed = penstock(folder, "run", "--once", "--json")
    assert landed.returncode == 0, landed.stderr
    assert json.loads(landed.stdout)["tables"]["bronze.orders"]["rows"] == 100 - lost
    verified = penstock(folder, "verify")
    assert verified.returncode == 0, verified.stdout
