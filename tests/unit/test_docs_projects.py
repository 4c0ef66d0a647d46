from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.plan.build import build_plan
from tests.unit.project_file import HEAD, load

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", ["silver.md", "gold.md"])
def test_every_project_in_the_docs_is_valid(page: str, tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "orders.ddl").write_text(blocks(page, "sql")[0])
    (tmp_path / "transforms.py").write_text("\n".join(blocks(page, "python")))
    found = blocks(page, "yaml")
    assert len(found) > 2
    for text in found:
        plan = build_plan(load(tmp_path, HEAD + text))
        assert any(table.stages is not None for table in plan.tables)


def test_the_projects_about_changes_are_valid(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "customers.ddl").write_text(blocks("cdc.md", "sql")[0])
    found = blocks("cdc.md", "yaml")
    assert len(found) >= 2
    for text in found:
        build_plan(load(tmp_path, HEAD + text))


def test_pages_and_examples_that_are_linked_are_there() -> None:
    for page in [DOCS.parent / "README.md", *DOCS.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_sinks_in_the_docs_are_valid(tmp_path: Path) -> None:
    tables = """\
tables:
  gold.alerts: {from: {kafka: alerts}}
  silver.customers:
    from: {kafka: customers}
    decode: {json: value, schema: "id BIGINT, at TIMESTAMP"}
    write: {merge: {keys: [id], sequence: at}, change_feed: true}
"""
    secrets = dict.fromkeys(("DB_PASSWORD", "SEARCH_KEY", "REDIS_PASSWORD"), "x")
    (text,) = blocks("sinks.md", "yaml")
    plan = build_plan(load(tmp_path, HEAD + tables + text, **secrets))
    assert sum(table.sink is not None for table in plan.tables) == 5
