"""`penstock doctor`: the worst first, what is alike together, what is fine only on request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from penstock.cli.options import AsJson, Directory, Tables, project_folder
from penstock.doctor.check import LEVELS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.doctor.check import Check, Level

# What `doctor` shows: the worst first, what is alike together, what is fine only on request.


SHOWN = 5
"""Subjects of one finding that are spelled out; `--json` has all."""
_STYLES: dict[Level, str] = {"red": "bold red", "warn": "yellow", "unknown": "magenta", "note": "cyan", "ok": "green"}
_WORDS: dict[Level, str] = {"red": "red", "warn": "warning", "unknown": "unknown", "note": "note", "ok": "fine"}


def doctor_view(project: str, checks: Sequence[Check], *, show_all: bool = False) -> RenderableType:
    shown = [level for level in LEVELS if level != "ok" or show_all]
    parts: list[RenderableType] = []
    for level in shown:
        these = [check for check in checks if check.level == level]
        made = _unknown(these) if level == "unknown" else [_finding(level, alike) for alike in _alike(these)]
        for one in made:
            parts += [one, Text("")]
    return Group(*parts, _conclusion(project, checks, show_all=show_all))


def _alike(checks: Iterable[Check]) -> list[list[Check]]:
    """The same check of several tables is one finding."""
    found: dict[str, list[Check]] = {}
    for check in checks:
        found.setdefault(check.id, []).append(check)
    return list(found.values())


def _finding(level: Level, alike: Sequence[Check]) -> RenderableType:
    head = Text.assemble((f"{_WORDS[level]}  ", _STYLES[level]), (alike[0].id, "bold"), (f": {alike[0].why}", "dim"))
    fixes = [check.fix for check in alike[:SHOWN] if check.fix]
    lines: list[RenderableType] = [head]
    for check in alike[:SHOWN]:
        lines.append(_indented(2, Text.assemble((f"{check.subject}: ", "bold"), _plain(check.found))))
        if fixes.count(check.fix) == 1:
            lines.append(_indented(4, Text(f"-> {_plain(check.fix)}")))
    if len(alike) > SHOWN:
        lines.append(_indented(2, Text(f"and {len(alike) - SHOWN:,} more: `--json` has all", style="dim")))
    lines += [_indented(4, Text(f"-> {_plain(fix)}")) for fix in dict.fromkeys(fixes) if fixes.count(fix) > 1]
    return Group(*lines)


def _unknown(checks: Sequence[Check]) -> list[RenderableType]:
    """By the reason: a broker that is away hides the same of many tables."""
    reasons: dict[tuple[str, str], list[Check]] = {}
    for check in checks:
        reasons.setdefault((check.found, check.fix), []).append(check)
    found: list[RenderableType] = []
    for (reason, fix), hidden in reasons.items():
        ids, subjects = (list(dict.fromkeys(names)) for names in zip(*((c.id, c.subject) for c in hidden), strict=True))
        more = f" and {len(subjects) - SHOWN:,} more" if len(subjects) > SHOWN else ""
        lines: list[RenderableType] = [
            Text.assemble(("unknown  ", _STYLES["unknown"]), _plain(reason)),
            _indented(2, Text.assemble((f"{', '.join(subjects[:SHOWN])}{more}: ", "bold"), ", ".join(ids))),
        ]
        lines += [_indented(4, Text(f"-> {_plain(fix)}"))] if fix else []
        found.append(Group(*lines))
    return found


def _indented(by: int, text: Text) -> Padding:
    return Padding(text, (0, 0, 0, by), expand=False)


def _conclusion(project: str, checks: Sequence[Check], *, show_all: bool) -> Text:
    counts = [(level, sum(check.level == level for check in checks)) for level in LEVELS]
    said = Text.assemble((f"{project}: ", "bold"))
    for index, (level, number) in enumerate((level, number) for level, number in counts if number):
        many = "s" if number > 1 and level in ("warn", "note") else ""
        said.append(", " if index else "").append(f"{number:,} {_WORDS[level]}{many}", style=_STYLES[level])
    fine = dict(counts)["ok"]
    if fine and not show_all:
        said.append(" (`penstock doctor --all` shows what is fine)", style="dim")
    return said


def _plain(text: str) -> str:
    """Names and reasons come from logs and brokers: none of them may steer a terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)


# `penstock doctor`.


def command(
    tables: Tables = None,
    show_all: Annotated[bool, typer.Option("--all", "-a", help="Also what is fine.")] = False,
    directory: Directory = None,
    as_json: AsJson = False,
) -> None:
    """Check what breaks in production, and say what to do: retention, pace, checkpoints, security, room, clocks.

    Every finding comes from evidence: the ledgers, the logs, the broker, the project file and this machine. No Spark is
    started and nothing is changed. A broker that is away is waited for a few seconds. What cannot be found out is said
    as unknown. Exit code 1 if anything is red.
    """
    from penstock.cli.console import err, out, print_json
    from penstock.doctor.check import LEVELS, document, healthy
    from penstock.doctor.examine import examine
    from penstock.plan.build import build_plan, choose
    from penstock.spec.load import load_project

    project = load_project(project_folder(directory))
    plan = build_plan(project)
    chosen = choose(plan, tables or [])
    with err.status("looking") as status:
        checks = examine(project, plan, chosen, lambda what: status.update(f"looking: {what}"))
    fine = healthy(checks)
    if as_json:
        counts = {level: sum(check.level == level for check in checks) for level in LEVELS}
        found = [document(check) for check in checks]
        print_json({"project": plan.name, "healthy": fine, "counts": counts, "checks": found})
    else:
        if not out.is_terminal:  # piped, there is no width to keep to: a finding stays on its line for grep
            out.width = 10_000
        out.print(doctor_view(plan.name, checks, show_all=show_all))
    raise typer.Exit(0 if fine else 1)
