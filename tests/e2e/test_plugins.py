"""A source, a decode format and a sink that another package brings, by their entry points alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.tables import ask

PLUGIN = Path(__file__).parent.parent / "plugin"
PROJECT = """\
name: plugins
lake: ./lake
tables:
  bronze.orders:
    from: {journal: orders, folder: journals}
  silver.orders:
    from: {table: bronze.orders}
    decode: {pairs: value, schema: "id BIGINT, name STRING"}
    write: {change_feed: true}
sinks:
  copies:
    from: {changes: silver.orders}
    to: {folder: copies}
    keys: [id]
"""


def penstock(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, [str(PLUGIN), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "penstock", *arguments, "--project", str(project)]
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=300, check=False
    )


def document(project: Path, *arguments: str) -> Any:
    done = penstock(project, *arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def append(project: Path, partition: int, *lines: str) -> None:
    file = project / "journals" / "orders" / f"{partition}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as journal:
        journal.writelines(f"{line}\n" for line in lines)


def test_they_land_decode_and_send_exactly_once_and_are_verified(tmp_path: Path) -> None:
    (tmp_path / "penstock.yml").write_text(PROJECT, encoding="utf-8")
    (tmp_path / "copies").mkdir()
    append(tmp_path, 0, "id=1;name=Ann", "id=2;name=Bob")
    append(tmp_path, 1, "no pairs", "id=x;name=Cid")
    first = penstock(tmp_path, "run", "--once")
    assert first.returncode == 0, first.stdout + first.stderr
    append(tmp_path, 0, "id=3;name=Dot")
    append(tmp_path, 2, "id=4;name=Eve")  # a partition that is new
    second = penstock(tmp_path, "run", "--once")
    assert second.returncode == 0, second.stdout + second.stderr

    landed = ask(tmp_path, "bronze.orders", 'SELECT "partition", "offset", value FROM t ORDER BY 1, 2')
    assert landed == [
        (0, 0, "id=1;name=Ann"),
        (0, 1, "id=2;name=Bob"),
        (0, 2, "id=3;name=Dot"),
        (1, 0, "no pairs"),
        (1, 1, "id=x;name=Cid"),
        (2, 0, "id=4;name=Eve"),
    ]
    assert ask(tmp_path, "silver.orders", "SELECT id, name FROM t ORDER BY id") == [
        (1, "Ann"),
        (2, "Bob"),
        (3, "Dot"),
        (4, "Eve"),
    ]
    copies = {file.name: json.loads(file.read_text()) for file in (tmp_path / "copies").iterdir()}
    assert copies == {f"{id}.json": {"id": id, "name": name} for id, name in enumerate(("Ann", "Bob", "Dot", "Eve"), 1)}

    verified = {table["table"]: table for table in document(tmp_path, "verify", "--deep")["tables"]}
    assert {name: table["verdict"] for name, table in verified.items()} == {
        "bronze.orders": "complete",
        "silver.orders": "complete",
        "copies": "complete",
    }
    reasons = document(tmp_path, "dlq", "list")["tables"]
    assert "decode_failed" in json.dumps(reasons) and "wrong_type" in json.dumps(reasons)
    status = {table["table"]: table for table in document(tmp_path, "status")["tables"]}
    assert status["bronze.orders"]["lag"] == 0
    shown = penstock(tmp_path, "plan")
    for text in ("topic orders", str(tmp_path / "journals"), "pairs in value", f"folder {tmp_path / 'copies'}"):
        assert text in shown.stdout.replace("\n", " "), text
    assert penstock(tmp_path, "doctor").returncode in (0, 1)


def test_a_key_that_no_package_brings_is_refused_with_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "penstock.yml").write_text(PROJECT.replace("{journal:", "{jornal:"), encoding="utf-8")
    done = penstock(tmp_path, "validate")
    assert done.returncode == 2 and "journal" in done.stdout + done.stderr
