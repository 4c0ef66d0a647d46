"""The docs name every key of a project file, every value that a key can have, and every reason of a quarantine."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest

import penstock.spec
from penstock.ledger.entry import Entry, Kind
from penstock.plan.quarantine import REASONS
from penstock.spec.base_model import SpecModel
from penstock.spec.stages import ACTIONS

ROOT = Path(__file__).parents[2]
PAGES = {page.name: page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md"))}
DOCS = "\n".join(PAGES.values())
SOURCES = [
    path
    for kind in ("py", "java")
    for path in (ROOT / "src").rglob(f"*.{kind}")
    if path.name != "quarantine.py" or path.parent.name != "plan"
]
GIVEN = re.compile(r"""(?:\breason|\bFault|\brefuse|\bRefused)\(\s*(?:[\w.\[\]()]+,\s*)?"([a-z][a-z0-9_]+)",""")
"""How the sources give a reason to a row: reason("late", …), new Fault("no_value", …), Refused(key, "refused", …)."""
INTERNAL = {
    ("Columns", "only"),
    ("Decode", "plugin"),
    ("SubjectColumn", "column"),
    ("Project", "root"),
    ("Starting", "at"),
    ("Topics", "names"),
    ("Trigger", "kind"),
    ("Trigger", "seconds"),
    ("VersionStart", "at"),
}
"""What a parser fills in, and nobody writes."""


def models() -> list[type[SpecModel]]:
    for module in pkgutil.iter_modules(penstock.spec.__path__):
        importlib.import_module(f"penstock.spec.{module.name}")

    def below(kind: type[SpecModel]) -> Iterator[type[SpecModel]]:
        for found in kind.__subclasses__():
            yield found
            yield from below(found)

    return sorted(
        {kind for kind in below(SpecModel) if kind.__module__.startswith("penstock.")}, key=lambda k: k.__name__
    )


def keys() -> list[tuple[str, str]]:
    return [
        (model.__name__, field.alias or name)
        for model in models()
        for name, field in model.model_fields.items()
        if (model.__name__, name) not in INTERNAL
    ]


def literals(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from (value for value in get_args(annotation) if isinstance(value, str))
    for inner in get_args(annotation):
        yield from literals(inner)


def values() -> list[tuple[str, str, str]]:
    return [
        (model.__name__, field.alias or name, value)
        for model in models()
        for name, field in model.model_fields.items()
        if (model.__name__, name) not in INTERNAL
        for value in literals(field.annotation)
    ] + [("Expectation", "action", action) for action in ACTIONS]


@pytest.mark.parametrize(("model", "key"), keys())
def test_every_key_of_a_project_file_is_in_the_docs(model: str, key: str) -> None:
    described = rf"`[{{]?(?:[\w.]+\.)?{re.escape(key)}(?:`|: |\.)"
    commented = rf"^\s*{re.escape(key)}: .*# "
    written = re.compile(f"{described}|{commented}", re.M)
    assert written.search(DOCS), f"no page of docs names {key} of {model}"


@pytest.mark.parametrize(("model", "key", "value"), values())
def test_every_value_that_a_key_can_have_is_in_the_docs(model: str, key: str, value: str) -> None:
    written = re.compile(rf"`(?:[{{]?{re.escape(key)}: )?{re.escape(value)}[`:}}]|# .*\b{re.escape(value)}\b")
    assert written.search(DOCS), f"no page of docs names {key}: {value} of {model}"


def test_every_reason_that_a_row_can_get_is_in_the_catalog() -> None:
    given = {name for path in SOURCES for name in GIVEN.findall(path.read_text(encoding="utf-8"))}
    assert len(given) > 15, "the pattern no longer finds how reasons are given"
    assert given <= set(REASONS)


@pytest.mark.parametrize("name", REASONS)
def test_every_reason_of_the_catalog_is_given_somewhere(name: str) -> None:
    assert any(f'"{name}"' in path.read_text(encoding="utf-8") for path in SOURCES)


def test_the_page_about_rejected_rows_lists_exactly_the_reasons_of_the_catalog() -> None:
    _, _, table = PAGES["dlq.md"].partition("## Reasons")
    rows = re.findall(r"^\| `([a-z0-9_]+)` \| (.+?) \|$", table.partition("\n## ")[0], re.M)
    assert dict(rows) == REASONS


def test_the_ledger_is_described_whole() -> None:
    table = PAGES["exactly-once.md"].partition("## The ledger")[2].partition("\n## ")[0]
    for name in (field.name for field in fields(Entry)):
        assert re.search(rf"^\|.*`{name}`.*\|", table, re.M), name
    for kind in get_args(Kind):
        assert f"`{kind}`: " in table, kind


def test_every_page_is_linked_from_another() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in PAGES:
        others = [readme, *(text for other, text in PAGES.items() if other != name)]
        assert any(f"{name})" in text or f"{name}#" in text for text in others), f"docs/{name} is linked from nowhere"
