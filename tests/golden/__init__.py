"""What is written to disk, or printed for programs, and must stay as it is: ledger entries, definition hashes, files
of checkpoints, columns of quarantines, and the shape of every `--json` document.

    PENSTOCK_GOLDEN=write pytest TEST

rewrites the files that a test compares; one that fails names itself. A change in one of them is a change that users and
their lakes notice.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.plan.quarantine import COMPANIONS

HERE = Path(__file__).parent
MAPS = ("conf", "keys", "lookups", "lost", "malformed", "now", "offsets", "orders", "reasons", "then")
"""Objects in documents whose keys are data: topics, partitions, columns, reasons. `orders` is a topic."""
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def golden(name: str, found: Any) -> None:
    """Compare with the file of that name."""
    file = HERE / f"{name}.json"
    text = json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    if os.environ.get("PENSTOCK_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0]
    hint = f"users notice this change; if it is meant: PENSTOCK_GOLDEN=write pytest '{test}'"
    assert json.loads(text) == json.loads(file.read_text()), hint


def answered(folder: Path, call: str) -> Any:
    """What the command prints with --json in a project."""
    done = CliRunner().invoke(app, ["-C", str(folder), *shlex.split(call), "--json"])
    assert done.stdout, done.output + str(done.exception)
    return json.loads(done.stdout)


def companions(folder: Path) -> dict[str, list[str]]:
    """Columns and types of the quarantines and tombstones in the lake of a project, in their order."""
    columns = {}
    for log in sorted((folder / "lake").rglob("_delta_log")):
        if log.parent.name.endswith(COMPANIONS):
            schema = json.loads(DeltaTable(str(log.parent)).schema().to_json())
            columns[log.parent.name] = _columns(schema)
    return columns


def _columns(struct: Any) -> list[str]:
    return [f"{field['name']} {_type(field['type'])}" for field in struct["fields"]]


def _type(kind: Any) -> str:
    """As SQL writes it."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        return f"array<{_type(kind['elementType'])}>"
    return f"struct<{', '.join(_columns(kind))}>"


def shape(*values: Any, maps: Collection[str] = MAPS) -> Any:
    """Keys and types of JSON values that stand at the same place, at every depth. A key that only some of them have
    ends with a question mark. Of the objects under the names in `maps` the keys are data: they become an asterisk."""
    objects = [value for value in values if isinstance(value, dict)]
    items = [item for value in values if isinstance(value, list) for item in value]
    types = sorted({_TYPES[type(value)] for value in values if not isinstance(value, dict | list)})
    shapes: list[Any] = ["|".join(types)] if types else []
    if any(isinstance(value, list) for value in values):
        shapes.append([shape(*items, maps=maps)] if items else [])
    if objects:
        shapes.append({})
        for key in {key: None for value in objects for key in value}:
            inner = [value[key] for value in objects if key in value]
            name = key if len(inner) == len(objects) else f"{key}?"
            if key in maps and all(isinstance(value, dict) for value in inner):
                inner = [{"*": item} for value in inner for item in value.values()] or [{}]
            shapes[-1][name] = shape(*inner, maps=maps)
    return shapes[0] if len(shapes) == 1 else {"one of": shapes}
