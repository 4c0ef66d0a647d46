"""The outcome as tables: on the terminal, as JSON, and as a section of docs/bench.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.contenders import CONTENDERS
from bench.outcome import Outcome, Sheet, Target

_STYLES = {"pass": "green", "MISSED": "bold red"}
_HEAD = """# Bench: Penstock against hand-written jobs

Written by `python -m bench --write-docs`; each section has the command that made it. Every contender is a process of
its own and is measured from outside: commits by the time of their log files, CPU by the operating system, for the whole
process tree. A rate counts only if the table holds every record of its topic exactly once, which is checked apart from
Penstock. Rates run from the start of the first batch to the last commit; figures are medians over the rounds.

| contender | what it is |
|---|---|
"""


def show(console: Console, outcome: Outcome, *, targets: bool) -> None:
    console.print(f"\n[bold]{outcome.scenario}[/bold]: {outcome.setting}", soft_wrap=True)
    for sheet in [*outcome.sheets, *([targets_sheet(outcome.targets)] if targets else [])]:
        table = Table(title=sheet.title, title_justify="left")
        for number, column in enumerate(sheet.columns):
            table.add_column(column, justify="left" if number == 0 else "right", overflow="fold", min_width=4)
        for row in sheet.rows:
            table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
        console.print(table)
    for note in outcome.notes:
        console.print(note)
    for problem in outcome.problems:
        console.print(problem, style="red", markup=False)


def targets_sheet(targets: Sequence[Target]) -> Sheet:
    return Sheet(
        "targets",
        ("target", "bound", "measured", "mark"),
        [
            [
                target.what,
                f"{target.relation} {target.bound:g}{target.unit}",
                "–" if target.value is None else f"{target.value:.2f}{target.unit}",
                "pass" if target.met else "MISSED",
            ]
            for target in targets
        ],
    )


def as_json(outcomes: Sequence[Outcome], command: str, machine: Mapping[str, str]) -> dict[str, Any]:
    return {
        "command": command,
        "machine": dict(machine),
        "scenarios": {
            outcome.scenario: {
                "setting": outcome.setting,
                "targets": [target.as_json() for target in outcome.targets],
                "figures": outcome.figures,
                "notes": list(outcome.notes),
                "problems": list(outcome.problems),
            }
            for outcome in outcomes
        },
    }


def write_docs(file: Path, outcomes: Sequence[Outcome], command: str, machine: Mapping[str, str], day: str) -> None:
    """Replaces the sections of these scenarios and leaves those of others, which have their own command and machine."""
    sections = _sections(file.read_text()) if file.exists() else {}
    for outcome in outcomes:
        sections[outcome.scenario] = _section(outcome, command, machine, day)
    legend = "".join(f"| {name} | {contender.what} |\n" for name, contender in CONTENDERS.items())
    file.parent.mkdir(exist_ok=True)
    file.write_text(_HEAD + legend + "".join(f"\n{section}" for section in sections.values()))


def _sections(text: str) -> dict[str, str]:
    found = re.finditer(r"^## (\w+)\n.*?(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return {match[1]: match[0].rstrip() + "\n" for match in found}


def _section(outcome: Outcome, command: str, machine: Mapping[str, str], day: str) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in machine.items())
    sheets = "\n".join(_markdown(sheet) for sheet in [*outcome.sheets, targets_sheet(outcome.targets)])
    notes = "".join(f"\n{note}\n" for note in outcome.notes)
    problems = "".join(f"\n- {problem.splitlines()[0]}" for problem in outcome.problems)
    return (
        f"## {outcome.scenario}\n\n{outcome.setting}\n\n{sheets}{notes}"
        + (f"\nProblems:\n{problems}\n" if problems else "")
        + f"\n`{command}`, {day}, on {facts}.\n"
    )


def _markdown(sheet: Sheet) -> str:
    lines = [sheet.columns, ["---"] * len(sheet.columns), *sheet.rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
