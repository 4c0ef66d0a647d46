"""What a user sees of a transform that fails: their own file and line, and nothing of what Spark has to say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

TRANSFORMS = """\
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def unresolved(rows: DataFrame) -> DataFrame:
    return rows.select("_source", F.col("nope"))


def helper() -> None:
    raise KeyError("no such setting")


def raising(rows: DataFrame) -> DataFrame:
    helper()
    return rows


@F.udf("bigint")
def inverse(h):
    return 100 // h


def dividing(rows: DataFrame) -> DataFrame:
    return rows.withColumn("x", inverse("h"))


def native(rows: DataFrame) -> DataFrame:
    return rows.withColumn("x", F.lit(10) / F.col("h"))
"""
LINES = {"unresolved": 6, "raising": 10, "dividing": 20, "native": 28}
NEVER = ('{"ts"', "at org.apache", "Py4J", "py4j", "Traceback", "JVM stacktrace", '"level"', "WARN ", "_penstock_")


def test_a_failing_transform_shows_the_users_file_and_line_and_no_word_of_spark(tmp_path: Path) -> None:
    (tmp_path / "transforms.py").write_text(TRANSFORMS)
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "a.json").write_text("\n".join(json.dumps({"id": n, "h": n}) for n in range(4)))
    files = {"files": "landing", "format": "json", "schema": "id BIGINT, h BIGINT"}
    tables = {
        f"silver.{name}": {"from": files, "transform": f"transforms.py:{name}", "max_failed_records": 0}
        for name in LINES
    }
    tables["silver.aside"] = {"from": files, "transform": "transforms.py:dividing"}
    document = {"name": "e2e", "lake": "./lake", "spark": {"master": "local[2]"}, "tables": tables}
    (tmp_path / "penstock.yml").write_text(yaml.safe_dump(document, sort_keys=False))
    command = [sys.executable, "-m", "penstock", "-C", str(tmp_path), "run", "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400)
    shown = done.stdout + done.stderr
    assert done.returncode == 3, shown
    for word in NEVER:
        assert word not in shown, shown
    for name, line in LINES.items():
        assert f"transforms.py:{line}" in shown, (name, shown)
    assert "1 record set aside: transform_failed (" in shown and "ZeroDivisionError" in shown
    assert len(shown) < 8000, shown
    logs = "".join(file.read_text(errors="replace") for file in (tmp_path / ".penstock" / "logs").glob("*.log"))
    assert "no such setting" in logs and "Traceback" in logs, "the whole story is in the log"
