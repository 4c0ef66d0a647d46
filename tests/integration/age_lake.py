"""Time that passes at once: a lake as it would be after some days, every clock of it turned back by so much."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMES = re.compile(
    r'(\\?"(?:timestamp|inCommitTimestamp|deletionTimestamp|modificationTime|time|batchTimestampMs)\\?":\s*)(\d{13})\b'
)


def age(spark: SparkSession, lake: str | Path, *, hours: float = 0, days: float = 0) -> None:
    """The same for a session, which forgets what it has cached of the tables."""
    turn_back(lake, hours + 24 * days)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def turn_back(lake: str | Path, hours: float) -> None:
    """Commits, removals and batches in every log and checkpoint, and the times of all files. Nobody is at work."""
    past = round(hours * 3_600_000)
    for folder, _, names in os.walk(lake):
        for name in names:
            path = Path(folder) / name
            if name.endswith(".crc"):  # of a text that is about to change
                path.unlink()
                continue
            at = path.stat().st_mtime_ns - past * 1_000_000
            if not name.endswith((".parquet", ".bin")):
                text = path.read_text(encoding="utf-8")
                path.write_text(_TIMES.sub(lambda found: f"{found[1]}{int(found[2]) - past}", text), encoding="utf-8")
            os.utime(path, ns=(at, at))
