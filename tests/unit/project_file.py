"""A project file for a test: written, checked, and what was said about it."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

from penstock.errors import Problem
from penstock.spec.load import ProjectCheck, check_project
from penstock.spec.project import Project

HEAD = """\
name: shop
lake: ./lake
kafka: {bootstrap: "127.0.0.1:9092"}
"""

AWAY = HEAD.replace("9092", "1")
"""The same, with a broker that is not there."""


def check(folder: Path, text: str, **env: str) -> ProjectCheck:
    (folder / "penstock.yml").write_text(dedent(text), encoding="utf-8")
    return check_project(folder, env=env)


def problems(folder: Path, text: str, **env: str) -> list[Problem]:
    return list(check(folder, text, **env).problems)


def load(folder: Path, text: str, **env: str) -> Project:
    checked = check(folder, text, **env)
    assert checked.project is not None, "\n".join(map(str, checked.problems))
    return checked.project


def table(body: str) -> str:
    """A project with the table bronze.orders, whose definition is `body`: line 5 is its first."""
    indented = "".join(f"    {line}\n" for line in dedent(body).strip().splitlines())
    return f"{HEAD}tables:\n  bronze.orders:\n{indented}"


def one(found: list[Problem]) -> Problem:
    assert len(found) == 1, "\n".join(map(str, found))
    return found[0]


def place(problem: Problem) -> tuple[int, int]:
    return problem.line, problem.column
