"""Whoever follows docs/runbook.md at three in the morning must not meet a command that does not exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from penstock.cli.main import app

RUNBOOK = Path(__file__).resolve().parents[2] / "docs" / "runbook.md"
TEXT = RUNBOOK.read_text()
BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(penstock [^`\n]+)`")


def commands() -> list[str]:
    typed = [line.removeprefix("$ ") for block in BLOCK.findall(TEXT) for line in block.splitlines()]
    typed = [line.partition("  #")[0].strip() for line in typed if line.startswith("penstock ")]
    return sorted({*typed, *INLINE.findall(TEXT)})


def parse(line: str) -> None:
    """As the command itself would, without running it."""
    words = shlex.split(line)
    command: Any = typer.main.get_command(app)
    context = command.make_context("penstock", words[1:])
    while isinstance(command, TyperGroup):
        _, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        context = found.make_context(found.name, rest, parent=context)
        command = found


@pytest.mark.parametrize("line", commands())
def test_every_command_of_the_runbook_exists_with_its_options(line: str) -> None:
    parse(line)


@pytest.mark.parametrize("line", ["penstock heal", "penstock run --twice", "penstock replay", "penstock dlq shew t"])
def test_a_command_that_does_not_exist_is_noticed(line: str) -> None:
    with pytest.raises(TyperException):
        parse(line)


def test_every_section_is_in_the_list_and_the_list_names_no_other() -> None:
    listed = re.findall(r"\]\(#([^)]+)\)", TEXT.split("\n## ", 1)[0])
    titles = re.findall(r"^## (.+)$", TEXT, re.MULTILINE)
    assert listed == [_anchor(title) for title in titles]
    assert len(titles) >= 25


def test_every_page_that_the_runbook_names_is_there() -> None:
    for page in re.findall(r"\]\(([a-z-]+\.md)(?:#[^)]*)?\)", TEXT):
        assert (RUNBOOK.parent / page).exists(), page


def _anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
