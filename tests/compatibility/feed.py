"""Records and files for the compatibility project: the same for the version that made the lake and for the next one."""

from __future__ import annotations

import json
import random
from pathlib import Path

from confluent_kafka import Producer

PARTITIONS = 4
EACH = 600
"""Records a round."""


def feed(bootstrap: str, folder: Path, round_: int) -> int:
    """Send one round of records and write one file of each format. Returns how many records were sent."""
    rng = random.Random(round_)
    producer = Producer({"bootstrap.servers": bootstrap})
    first = round_ * EACH
    for i in range(first, first + EACH):
        producer.produce("orders", _record(rng, i), partition=rng.randrange(PARTITIONS))
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("the broker did not take every record")
    for name in ("json", "csv"):
        (folder / "in" / name).mkdir(parents=True, exist_ok=True)
    extra = {"z": 1} if round_ > 1 else {}
    lines = [json.dumps({"id": i, "name": f"label {i}", **extra}) for i in range(round_ * 50, round_ * 50 + 50)]
    (folder / "in" / "json" / f"{round_}.json").write_text("\n".join(lines) + "\n")
    rows = [f"{i},label {i}" if i % 10 else f"{i}x,broken" for i in range(round_ * 50, round_ * 50 + 50)]
    (folder / "in" / "csv" / f"{round_}.csv").write_text("\n".join(["id,name", *rows]) + "\n")
    return EACH


def _record(rng: random.Random, i: int) -> str:
    if rng.random() < 0.02:
        return "{broken"
    day = 1 + (i // 40) % 28
    record = {
        "id": i if rng.random() > 0.02 else max(0, i - 5),
        "k": rng.randrange(90),
        "name": f"n{rng.randrange(10)}",
        "n": rng.randrange(-1, 50),
        "op": rng.choice("uuuudx"),
        "at": f"2026-{1 + i // 1120:02d}-{day:02d}T{rng.randrange(24):02d}:00:00Z",
    }
    if rng.random() < 0.3:
        record["a"] = {"b": 5}
    if rng.random() < 0.05:
        record[f"extra{rng.randrange(3)}"] = rng.randrange(9)
    return json.dumps(record)
