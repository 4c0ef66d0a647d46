"""What a hand-written contender is told to do: one JSON file, so that each runs as a process of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

FIELDS = {
    "order_id": "BIGINT",
    "customer_id": "STRING",
    "order_ts": "TIMESTAMP",
    "product": "STRING",
    "quantity": "INT",
    "amount": "DECIMAL(18,4)",
    "region": "STRING",
    "currency": "STRING",
    "note": "STRING",
}
"""Of the records that are decoded."""


@dataclass(frozen=True)
class JobFile:
    bootstrap: str
    topic: str
    per_batch: int
    table: str
    checkpoint: str
    marks: str
    sink: Literal["delta", "parquet"] = "delta"
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    kafka: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] | None = None
    """Delta properties of a table that is created first; None lets the sink create the table by its defaults."""
    decode: Literal["from_json", "get_json_object"] | None = None
    """None: the record as it came."""
    far_ahead: bool = False
    """For the jobs on librdkafka: fetch more at a time, and further ahead, than the client does by itself."""

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: str) -> JobFile:
        return cls(**json.loads(Path(file).read_text()))

    def mark(self, **marks: float) -> None:
        Path(self.marks).write_text(json.dumps(marks))


def now() -> float:
    return time.time()
