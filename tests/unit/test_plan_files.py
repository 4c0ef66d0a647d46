"""What a folder of files becomes in the plan."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from penstock.cli.plan import plan_view
from penstock.plan.build import build_plan, plan_document
from penstock.plan.model import Plan
from penstock.plan.sources import FilesSource
from penstock.spec.project import Project

FILES: dict[str, Any] = {"files": "landing/orders", "format": "json", "schema": "id BIGINT, name STRING"}


def plan_of(source: dict[str, Any], root: Path = Path("/shop"), **table: Any) -> Plan:
    tables = {
        "bronze.orders": {"from": source, **table},
        "silver.orders": {"from": {"table": "bronze.orders"}, "sql": "SELECT * FROM orders"},
    }
    return build_plan(Project(name="shop", lake="./lake", root=root, tables=tables))


def source_of(plan: Plan) -> FilesSource:
    source = plan.tables[0].source
    assert isinstance(source, FilesSource)
    return source


def test_a_folder_is_read_by_its_manifest(tmp_path: Path) -> None:
    source = source_of(plan_of(FILES, tmp_path))
    assert isinstance(source, FilesSource) and source.as_versions is source and source.as_delta is None
    assert (source.uri, source.max_files) == (f"{tmp_path}/lake/_penstock/files/bronze.orders", 1)
    assert (source.folder, source.root, source.most) == (f"{tmp_path}/landing/orders", str(tmp_path), 1000)
    assert source_of(plan_of({**FILES, "files": "s3a://bucket/in/"})).folder == "s3a://bucket/in"


def test_lines_are_decoded_and_can_be_rejected() -> None:
    table = plan_of(FILES).tables[0]
    assert table.stages is not None and table.stages.decode is not None
    assert (table.stages.decode.format, table.stages.decode.column) == ("json", "value")
    assert table.may_reject
    assert (table.input.coordinates, table.input.origin) == ("file", "file")


def test_rows_of_parquet_are_not_decoded_but_a_file_can_be_rejected() -> None:
    table = plan_of({"files": "in", "format": "parquet"}).tables[0]
    assert table.stages is not None and table.stages.decode is None
    assert table.may_reject


def test_who_reads_the_table_finds_the_coordinates_there() -> None:
    table = plan_of(FILES).tables[1]
    assert (table.input.coordinates, table.input.origin) == ("carried", "file")


def test_new_fields_that_become_columns_let_the_table_evolve() -> None:
    assert plan_of({**FILES, "new_fields": "add"}).tables[0].write.schema == "evolve"
    assert plan_of({**FILES, "new_fields": "rescue"}).tables[0].write.schema == "strict"


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"files": "elsewhere"}, True),
        ({"pattern": "*.json"}, True),
        ({"max_files": 5}, True),
        ({"starting": "latest"}, True),
        ({"schema": "id BIGINT"}, False),
        ({"new_fields": "rescue"}, False),
        ({"format": "csv"}, False),
        ({"format": "parquet"}, False),
    ],
)
def test_the_definition_is_what_decides_the_rows(change: dict[str, Any], same: bool) -> None:
    assert (plan_of(FILES).tables[0].definition == plan_of({**FILES, **change}).tables[0].definition) is same


def test_a_project_that_is_moved_is_the_same() -> None:
    assert plan_of(FILES).tables[0].definition == plan_of(FILES, Path("/elsewhere")).tables[0].definition


def test_the_plan_is_printed_and_is_a_document() -> None:
    source = {"files": "in", "format": "csv", "options": {"header": True, "sep": ";"}, "pattern": "*.csv"}
    plan = plan_of(source)
    json.dumps(plan_document(plan))
    console = Console(width=300, record=True, file=StringIO())
    console.print(plan_view(plan, ("bronze.orders",)))
    text = console.export_text()
    assert 'csv files in /shop/in, named *.csv, each with a header, escape ", sep ;' in text
    assert "inferred once, kept in /shop/lake/_penstock/schemas/bronze.orders.json" in text
    assert "become columns" in text
    assert "decode" not in text
