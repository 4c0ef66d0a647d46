from __future__ import annotations

from pathlib import Path

import pytest

import penstock
from penstock.errors import SpecError
from penstock.spec.load import check_project, load_project
from tests.unit.project_file import HEAD, check, load, one, place, problems, table


def test_the_smallest_project_is_loaded(tmp_path: Path) -> None:
    project = load(tmp_path, table("from: {kafka: orders}"))
    assert project.name == "shop"
    assert project.root == tmp_path
    assert project.tables["bronze.orders"].source.kafka.names == ("orders",)


def test_a_table_remembers_the_file_and_line_of_its_definition(tmp_path: Path) -> None:
    project = load(tmp_path, table("from: {kafka: orders}"))
    assert project.tables["bronze.orders"].origin == f"{tmp_path / 'penstock.yml'}:5"


def test_all_problems_are_reported_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """\
        nmae: shop
        lake: ./lake
        kafka: {bootstrap: nowhere}
        tables:
          bronze.orders:
            from: {kafka: orders, cluster: eu}
            trigger: 30 parsecs
          bronze.Orders:
            from: {kafka: "a b"}
        """,
    )
    assert [place(problem) for problem in found] == [(1, 1), (1, 1), (3, 20), (6, 36), (7, 14), (8, 3), (9, 19)]
    assert all(problem.hint for problem in found)


def test_load_raises_one_error_with_every_problem(tmp_path: Path) -> None:
    (tmp_path / "penstock.yml").write_text("name: shop\nlake: ./lake\ntabels: {}\n")
    with pytest.raises(SpecError) as caught:
        load_project(tmp_path)
    assert caught.value.exit_code == 2
    assert len(caught.value.problems) == 2
    assert f"{tmp_path / 'penstock.yml'}:3:1: unknown key 'tabels'" in str(caught.value)
    assert "did you mean 'tables'?" in str(caught.value)


def test_a_folder_without_a_project_says_how_to_make_one(tmp_path: Path) -> None:
    problem = one(list(check_project(tmp_path).problems))
    assert "no penstock.yml" in problem.message
    assert "penstock init" in (problem.hint or "")


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    assert "there is no folder" in one(list(check_project(tmp_path / "nowhere").problems)).message


def test_a_file_with_the_other_ending_is_told_apart_from_none(tmp_path: Path) -> None:
    (tmp_path / "penstock.yaml").write_text("name: shop")
    assert "rename it" in (one(list(check_project(tmp_path).problems)).hint or "")


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n"])
def test_an_empty_file_is_said_to_be_empty(text: str, tmp_path: Path) -> None:
    assert "empty" in one(problems(tmp_path, text)).message


@pytest.mark.parametrize("text", ["just words", "- a\n- b\n", "12"])
def test_a_file_that_is_not_a_mapping_is_one_problem(text: str, tmp_path: Path) -> None:
    assert "not what belongs here" in one(problems(tmp_path, text)).message


def test_bytes_that_are_not_utf8_have_their_place(tmp_path: Path) -> None:
    (tmp_path / "penstock.yml").write_bytes(b"name: shop\nlake: l\xe4ke\n")
    problem = one(list(check_project(tmp_path).problems))
    assert place(problem) == (2, 8)
    assert "UTF-8" in problem.message


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "penstock.yml").write_bytes(b"\xef\xbb\xbf" + table("from: {kafka: orders}").encode())
    assert check_project(tmp_path).project is not None


def test_a_folder_in_place_of_the_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "penstock.yml").mkdir()
    assert "cannot be read" in one(list(check_project(tmp_path).problems)).message


def test_a_missing_key_is_reported_where_it_belongs_with_an_example(tmp_path: Path) -> None:
    problem = one(problems(tmp_path, table("payload: string")))
    assert place(problem) == (5, 3)
    assert "'from' is missing" in problem.message
    assert problem.hint == "write from: {kafka: orders}"


def test_a_key_without_a_value_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    project = load(
        tmp_path, HEAD + "spark:\ndefaults:\n  # trigger: 30s\ntables: {bronze.orders: {from: {kafka: orders}}}\n"
    )
    assert project.spark.master == "local[*]"


def test_a_number_where_text_belongs_asks_for_quotes(tmp_path: Path) -> None:
    problem = one(problems(tmp_path, table("from: {kafka: orders}").replace("name: shop", "name: 12")))
    assert place(problem) == (1, 7)
    assert problem.hint == "put it in quotes: '12'"


def test_a_key_of_a_later_version_is_not_called_unknown(tmp_path: Path) -> None:
    problem = one(problems(tmp_path, table("from: {kafka: orders}") + "alerts: {a: b}\n"))
    assert "not in this version" in problem.message


@pytest.mark.parametrize("key", ["root", "source", "origin"])
def test_what_only_python_can_give_is_unknown_in_a_file(key: str, tmp_path: Path) -> None:
    text = table("from: {kafka: orders}") + ("root: /\n" if key == "root" else f"    {key}: {{kafka: x}}\n")
    assert f"unknown key '{key}'" in one(problems(tmp_path, text)).message


def test_a_value_by_reference_is_typed_like_a_literal_one(tmp_path: Path) -> None:
    project = load(tmp_path, table("from: {kafka: '${env:T}', max_per_trigger: '${env:N:-500}'}"), T="orders")
    source = project.tables["bronze.orders"].source
    assert (source.kafka.names, source.max_per_trigger) == (("orders",), 500)


def test_an_unset_variable_is_one_problem_and_the_rest_is_still_checked(tmp_path: Path) -> None:
    found = problems(tmp_path, table("from: {kafka: '${env:NOPE}'}\ntrigger: never"))
    assert [place(problem) for problem in found] == [(6, 19), (7, 14)]
    assert "NOPE is not set" in found[0].message


def test_a_wrong_value_that_came_by_reference_is_shown_as_written(tmp_path: Path) -> None:
    problem = one(problems(tmp_path, table("from: {kafka: '${env:T}'}"), T="no topic"))
    assert "${env:T}" in problem.message
    assert "no topic" not in str(problem)


def test_a_project_can_be_built_in_python(tmp_path: Path) -> None:
    project = penstock.Project(
        name="shop",
        lake="./lake",
        kafka={"bootstrap": "127.0.0.1:9092"},
        tables={
            "bronze.orders": penstock.Table(source={"kafka": "orders"}),
            "bronze.x": {"from": {"kafka": ["a", "b"]}},
        },
        root=tmp_path,
    )
    assert project.tables["bronze.x"].source.kafka.names == ("a", "b")
    assert project.tables["bronze.orders"].origin.startswith(f"{__file__}:")


def test_a_project_built_in_python_is_checked_in_the_same_way() -> None:
    with pytest.raises(ValueError, match="write earliest, latest"):
        penstock.Project(
            name="shop",
            lake="./lake",
            kafka={"bootstrap": "127.0.0.1:9092"},
            tables={"bronze.orders": {"from": {"kafka": "orders", "starting": "earlyest"}}},
        )


def test_a_project_is_frozen(tmp_path: Path) -> None:
    project = load(tmp_path, table("from: {kafka: orders}"))
    with pytest.raises(ValueError, match="frozen"):
        project.name = "other"  # type: ignore[misc]


def test_importing_penstock_loads_no_model() -> None:
    import subprocess
    import sys

    code = "import sys, penstock; print([m for m in ('pydantic', 'yaml', 'typer', 'pyspark') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_warnings_have_places_and_do_not_make_a_project_invalid(tmp_path: Path) -> None:
    checked = check(
        tmp_path,
        table("from: {kafka: orders, options: {isolation.level: read_uncommitted}}").replace(
            'kafka: {bootstrap: "127.0.0.1:9092"}',
            'kafka: {bootstrap: "h:1", options: {ssl.endpoint.identification.algorithm: ""}}',
        ),
    )
    assert checked.project is not None
    assert [place(warning) for warning in checked.warnings] == [(3, 76), (6, 54)]
