"""`kill -9` of a run that sets records aside: each record is in the table or in its quarantine, once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

from tests.e2e.tables import ask

pytestmark = pytest.mark.deep
COUNT, ROUNDS = 400, 6
TABLES: dict[str, dict[str, Any]] = {
    "silver.sql": {"sql": "SELECT *, 10 / h AS r FROM input"},
    "silver.merged": {"write": {"merge": {"keys": ["id"], "sequence": "id", "delete_when": "10 / h < 0"}}},
}


def held(folder: Path, name: str) -> Counter[int]:
    """Coordinates that a table or a quarantine holds, as offset * 2 + partition."""
    place = folder / "lake" / name.replace(".", "/")
    if not (place / "_delta_log").exists():
        return Counter()
    rows = ask(folder, name, "SELECT _source['offset'] * 2 + _source['partition'] FROM t")
    return Counter(number for (number,) in rows)


def test_killed_at_random_moments_every_record_is_in_the_table_or_in_quarantine_once(
    broker: Any, topic: Any, tmp_path: Path
) -> None:
    seed = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
    print(f"SEED={seed}")
    chance = random.Random(seed)
    name = topic(2)
    decode = {"json": "value", "schema": "id BIGINT, h BIGINT"}
    tables = {
        key: {"from": {"kafka": name, "max_per_trigger": 100}, "decode": decode, **more} for key, more in TABLES.items()
    }
    document = {"name": "e2e", "lake": "./lake", "kafka": {"bootstrap": broker.bootstrap}, "tables": tables}
    (tmp_path / "penstock.yml").write_text(yaml.safe_dump(document | {"spark": {"master": "local[2]"}}))
    poison = set(chance.sample(range(COUNT), 8))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(COUNT):
        value = json.dumps({"id": number, "h": 0 if number in poison else 1})
        producer.produce(name, value=value, partition=number % 2)
    assert producer.flush(20) == 0
    command = [sys.executable, "-m", "penstock", "-C", str(tmp_path), "run", "--once"]
    for _ in range(ROUNDS):
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        deadline = time.monotonic() + chance.uniform(8, 40)
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    last = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert last.returncode == 0, last.stdout + last.stderr
    for table in TABLES:
        assert held(tmp_path, f"{table}__quarantine") == Counter(poison), (seed, table)
        assert held(tmp_path, table) == Counter(set(range(COUNT)) - poison), (seed, table)
    checked = subprocess.run([*command[:-2], "verify"], capture_output=True, text=True, timeout=400)
    assert checked.returncode == 0, checked.stdout + checked.stderr
