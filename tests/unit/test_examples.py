"""The examples as projects, and how `penstock demo` finds them: no broker, no JVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from penstock.cli.demo import command
from penstock.dev.examples import EXAMPLES, Example, copy_example, example_folder
from penstock.dev.generate import KINDS
from penstock.errors import UsageError
from penstock.plan.build import build_plan
from penstock.plan.sources import KafkaSource
from penstock.spec.load import check_project

app = Typer()
app.command()(command)
each = pytest.mark.parametrize("example", EXAMPLES.values(), ids=list(EXAMPLES))


@each
def test_its_project_is_right_and_reads_the_topics_that_are_fed(example: Example) -> None:
    checked = check_project(example_folder(example), env={})
    assert checked.project is not None and not checked.problems, checked.problems
    tables = build_plan(checked.project).tables
    read = {topic for table in tables if isinstance(table.source, KafkaSource) for topic in table.source.topics}
    assert read == ({"shop.public.customers"} if example.database else {*example.topics, *example.first_topics})
    assert {*example.topics.values(), *example.first_topics.values()} <= set(KINDS)


@each
def test_its_readme_names_its_tables_and_its_command(example: Example) -> None:
    folder = example_folder(example)
    readme = (folder / "README.md").read_text(encoding="utf-8")
    checked = check_project(folder, env={})
    assert checked.project is not None
    assert f"penstock -C examples/{example.name} run --once" in readme
    assert [name for name in checked.project.tables if name not in readme] == []


def test_every_folder_is_an_example() -> None:
    folder = example_folder(EXAMPLES["orders"]).parent
    assert {path.name for path in folder.iterdir() if path.is_dir()} == set(EXAMPLES)


def test_a_copy_has_no_lake(tmp_path: Path) -> None:
    copied = copy_example(EXAMPLES["fraud"], tmp_path)
    assert {path.name for path in copied.iterdir()} == {"penstock.yml", "README.md", "schemas", "transforms.py"}


def test_an_unknown_name_is_refused_with_the_one_that_was_meant() -> None:
    error = CliRunner().invoke(app, ["clickstraem"]).exception
    assert isinstance(error, UsageError)
    assert error.hint == "did you mean 'clickstream'?"


def test_a_folder_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    error = CliRunner().invoke(app, ["orders", "--keep", str(tmp_path)]).exception
    assert isinstance(error, UsageError) and "is there already" in error.message


def test_the_list_has_a_line_for_each() -> None:
    lines = CliRunner().invoke(app, ["--list"]).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(EXAMPLES)
