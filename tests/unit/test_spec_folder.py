"""A folder of files as a source, as written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.spec.files_source import FilesFrom
from tests.unit.project_file import HEAD, load, one, problems, table


def source(tmp_path: Path, written: str) -> FilesFrom:
    found = load(tmp_path, table(f"from: {written}")).tables["bronze.orders"].source
    assert isinstance(found, FilesFrom)
    return found


def test_a_folder_and_a_format_are_enough(tmp_path: Path) -> None:
    found = source(tmp_path, "{files: landing/orders, format: json}")
    assert (found.files, found.format, found.max_files, found.starting) == ("landing/orders", "json", 1000, "earliest")
    assert (found.pattern, found.schema_, found.on_new_fields) == (None, None, "add")


@pytest.mark.parametrize(
    ("pattern", "kind"),
    [
        ("*.json", "json"),
        ("a*.jsonl.gz", "json"),
        ("*.CSV", "csv"),
        ("*.tsv.bz2", "csv"),
        ("part-*.parquet", "parquet"),
    ],
)
def test_the_format_may_stand_in_the_pattern(pattern: str, kind: str, tmp_path: Path) -> None:
    assert source(tmp_path, f'{{files: in, pattern: "{pattern}", schema: id BIGINT}}').format == kind


def test_fields_beyond_a_given_schema_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    assert source(tmp_path, "{files: in, format: json, schema: id BIGINT}").on_new_fields == "ignore"
    assert source(tmp_path, "{files: in, format: json, schema: id BIGINT, new_fields: add}").on_new_fields == "add"
    assert source(tmp_path, "{files: in, format: csv}").on_new_fields == "ignore", "its fields have no names"
    assert source(tmp_path, '{files: in, format: csv, options: {header: "true"}}').on_new_fields == "add"


@pytest.mark.parametrize("written", ["true", '"true"', "True"])
def test_a_header_is_true_however_it_is_written(written: str, tmp_path: Path) -> None:
    assert source(tmp_path, f"{{files: in, format: csv, options: {{header: {written}}}}}").header


@pytest.mark.parametrize(
    ("written", "said", "hint"),
    [
        ("{files: in}", "'format' is missing", "write format: json"),
        ('{files: in, pattern: "*.dat"}', "'format' is missing", "write format: json"),
        ("{files: in, format: jsn}", "'jsn' is not a format", "did you mean 'json'?"),
        ("{files: in, format: avro}", "'avro' is not a format", "json, csv, parquet"),
        ('{files: "", format: json}', "'files' is empty", ""),
        ('{files: "in/*.json", format: json}', "is not a folder", "pattern:"),
        ("{files: s3://b/in, format: json}", "Hadoop does not read s3://", "s3a://"),
        ("{files: in, format: json, max_files: 0}", "too small", "1 or more"),
        ("{files: in, format: json, starting: now}", "'now' is not a start", "earliest, latest"),
        ("{files: in, format: json, new_fields: keep}", "'keep' is not a way", "add, rescue, ignore, fail"),
        ("{files: in, format: csv, new_fields: add}", "have no names", "header"),
        ("{files: in, format: csv, options: {multiLine: true}}", "several lines", "remove it"),
        ("{files: in, format: json, options: {multiLine: yes}}", "neither true nor false", "multiLine: true"),
        (
            "{files: in, format: csv, options: {headers: true}}",
            "'headers' is not an option of csv",
            "did you mean 'header'?",
        ),
        ("{files: in, format: csv, options: {header: maybe}}", "neither true nor false", ""),
        ("{files: in, format: csv, options: {quote: ab}}", "'ab' is not one character", ""),
        ("{files: in, format: parquet, options: {mergeSchema: true}}", "not an option of parquet", "remove it"),
        ("{files: in, format: json, schema: nowhere.ddl}", "there is no file 'nowhere.ddl'", ""),
        ("{files: in, format: json, schema: id BIGNT}", "BIGNT is not a type", "did you mean"),
        ("{files: in, format: json, schema: _source STRING}", "Penstock's own", "another name"),
        ("{files: in, format: csv, schema: a ARRAY<INT>}", "a field of a CSV file cannot be ARRAY<INT>", "STRING"),
        ("{files: in, format: parquet, schema: id BIGINT NOT NULL}", "NOT NULL is not checked", "expect:"),
        ("{files: in, format: json, where: id > 1}", "unknown key 'where'", ""),
        ("{files: in, kafka: orders, format: json}", "one source, not kafka and files", ""),
    ],
)
def test_what_cannot_be_is_refused(written: str, said: str, hint: str, tmp_path: Path) -> None:
    problem = one(problems(tmp_path, table(f"from: {written}")))
    assert said in problem.message
    assert hint in (problem.hint or "")
    assert problem.line == 6


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("decode: {json: value, schema: id BIGINT}", "json files are decoded by their format"),
        ("aggregate: {keys: [a], metrics: {n: count(*)}}", "not from a folder"),
        ("payload: binary", "for tables that land topics"),
        ("write: {schema: strict}", "new fields of the files would become columns"),
    ],
)
def test_what_does_not_go_with_files_is_refused(more: str, said: str, tmp_path: Path) -> None:
    problem = one(problems(tmp_path, table(f"from: {{files: in, format: json}}\n{more}")))
    assert said in problem.message
    assert problem.line == 7


def test_rows_of_parquet_files_can_be_decoded(tmp_path: Path) -> None:
    load(tmp_path, table("from: {files: in, format: parquet}\ndecode: {json: value, schema: id BIGINT}"))


def test_the_example_in_the_docs_is_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "files.md").read_text(encoding="utf-8")
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "orders.ddl").write_text("order_id BIGINT")
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(load(tmp_path, HEAD + example).tables) == 2
