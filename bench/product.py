"""Penstock as a user has it: a project folder and the command; nothing of it is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.process import ContenderFailed

COMMAND = [sys.executable, "-m", "penstock"]


@dataclass(frozen=True)
class Chosen:
    """What `penstock plan --json` says about a project: what contender a gets too, and where to look."""

    master: str
    conf: Mapping[str, str]
    kafka: Mapping[str, str]
    """Options of the Kafka reader, beyond where and what to read."""
    properties: Mapping[str, str]
    """Of the first table."""
    properties_of: Mapping[str, Mapping[str, str]]
    tables: Mapping[str, Path]
    checkpoints: Mapping[str, Path]


def write_project(
    folder: Path,
    bootstrap: str,
    tables: Mapping[str, str],
    per_batch: int | None = None,
    trigger: str | None = None,
    stages: Mapping[str, Any] | None = None,
) -> None:
    """`tables`: table name -> topic; `stages`: what each of them does with the records, if it does not land them."""
    source: dict[str, Any] = {"starting": "earliest"}
    if per_batch is not None:
        source["max_per_trigger"] = per_batch
    project: dict[str, Any] = {
        "name": "bench",
        "lake": "./lake",
        "kafka": {"bootstrap": bootstrap},
        "tables": {table: {"from": {"kafka": topic, **source}, **(stages or {})} for table, topic in tables.items()},
    }
    if trigger is not None:
        project["defaults"] = {"trigger": trigger}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "penstock.yml").write_text(yaml.safe_dump(project, sort_keys=False))


def penstock(folder: Path, *arguments: str) -> list[str]:
    return [*COMMAND, *arguments, "-C", str(folder)]


def read_plan(folder: Path) -> Chosen:
    answer = subprocess.run(penstock(folder, "plan", "--json"), capture_output=True, text=True, timeout=60)
    if answer.returncode != 0:
        raise ContenderFailed(f"`penstock plan` ended with code {answer.returncode}\n{answer.stderr}")
    return parse_plan(json.loads(answer.stdout))


def parse_plan(plan: Mapping[str, Any]) -> Chosen:
    tables: Sequence[Mapping[str, Any]] = plan["tables"]
    source = tables[0]["source"]
    client = {**source["cluster"]["options"], **source["options"]}
    return Chosen(
        master=plan["master"],
        conf=plan["conf"],
        kafka={f"kafka.{name}": value for name, value in client.items()},
        properties=tables[0]["properties"],
        properties_of={table["name"]: table["properties"] for table in tables},
        tables={table["name"]: Path(table["uri"]) for table in tables},
        checkpoints={table["name"]: Path(table["checkpoints"]) for table in tables},
    )
