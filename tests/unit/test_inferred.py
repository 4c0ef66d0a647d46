"""What `plan` shows of columns that files or records brought, without a JVM."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.operations.history import inferred_schemas
from penstock.plan.build import build_plan
from tests.unit.project_file import HEAD, load

TEXT = HEAD + "tables:\n  bronze.f: {from: {files: in, format: json}}\n  bronze.k: {from: {kafka: orders}}\n"
KEPT = {
    "columns": "id BIGINT, v STRING",
    "left_out": ["a b"],
    "schema": {"type": "struct", "fields": []},
    "inferred": {
        "files": 2,
        "first": "in/a.json",
        "records": 1234,
        "bytes": 99,
        "mixed": {"v": "object, number"},
        "remarks": ["in/b.json is odd"],
    },
}


def test_plan_shows_an_inferred_schema_and_where_it_comes_from(tmp_path: Path) -> None:
    plan = build_plan(load(tmp_path, TEXT))
    assert inferred_schemas(plan, plan.tables) == {}
    place = tmp_path / "lake/_penstock/schemas/bronze.f.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps(KEPT))
    assert list(inferred_schemas(plan, plan.tables)) == ["bronze.f"]
    shown = CliRunner().invoke(app, ["plan", "-C", str(tmp_path)]).output
    for words in ("id BIGINT, v STRING", "1,234 records", "v: JSON text of object, number", "in/b.json is odd", "a b"):
        assert words in shown
    document = json.loads(CliRunner().invoke(app, ["plan", "-C", str(tmp_path), "--json"]).stdout)
    assert [table.get("inferred") for table in document["tables"]] == [KEPT, None]
