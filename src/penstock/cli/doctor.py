"""`penstock doctor`: findings in order of severity, grouped by check; those that are fine only on request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from penstock.cli.console import err, print_json, print_view, visible, visible_lines
from penstock.cli.options import AsJson, Directory, Tables, project_folder
from penstock.doctor.check import LEVELS

if TYPE_CHECKING:
    from rich.console import RenderableType

    from penstock.doctor.check import Check, Level

# What `doctor` prints. Names and reasons come from logs and brokers: they pass `visible` first.


SHOWN = 5
"""Subjects listed for one finding; `--json` has all."""
_STYLES: dict[Level, str] = {"red": "bold red", "warn": "yellow", "unknown": "magenta", "note": "cyan", "ok": "green"}
_WORDS: dict[Level, str] = {"red": "red", "warn": "warning", "unknown": "unknown", "note": "note", "ok": "fine"}


def doctor_view(project: str, checks: Sequence[Check], *, show_all: bool = False) -> RenderableType:
    levels = [level for level in LEVELS if level != "ok" or show_all]
    parts: list[RenderableType] = []
    for level in levels:
        level_checks = [check for check in checks if check.level == level]
        findings = (
            _unknown(level_checks)
            if level == "unknown"
            else [_finding(level, group) for group in _group_by_id(level_checks)]
        )
        for finding in findings:
            parts += [finding, Text("")]
    return Group(*parts, _conclusion(project, checks, show_all=show_all))


def _group_by_id(checks: Iterable[Check]) -> list[list[Check]]:
    """One group for each check: the same check of several tables is one finding."""
    groups: dict[str, list[Check]] = {}
    for check in checks:
        groups.setdefault(check.id, []).append(check)
    return list(groups.values())


def _finding(level: Level, group: Sequence[Check]) -> RenderableType:
    head = Text.assemble((f"{_WORDS[level]}  ", _STYLES[level]), (group[0].id, "bold"), (f": {group[0].why}", "dim"))
    fixes = [check.fix for check in group[:SHOWN] if check.fix]
    lines: list[RenderableType] = [head]
    for check in group[:SHOWN]:
        lines.append(_indent(2, Text.assemble((f"{visible(check.subject)}: ", "bold"), visible_lines(check.found))))
        if fixes.count(check.fix) == 1:
            lines.append(_indent(4, Text(f"-> {visible_lines(check.fix)}")))
    if len(group) > SHOWN:
        lines.append(_indent(2, Text(f"and {len(group) - SHOWN:,} more: `--json` has all", style="dim")))
    lines += [_indent(4, Text(f"-> {visible_lines(fix)}")) for fix in dict.fromkeys(fixes) if fixes.count(fix) > 1]
    return Group(*lines)


def _unknown(checks: Sequence[Check]) -> list[RenderableType]:
    """One finding for each reason: an unreachable broker hides the same checks of many tables."""
    reasons: dict[tuple[str, str], list[Check]] = {}
    for check in checks:
        reasons.setdefault((check.found, check.fix), []).append(check)
    findings: list[RenderableType] = []
    for (reason, fix), hidden_checks in reasons.items():
        ids, subjects = (
            list(dict.fromkeys(names)) for names in zip(*((c.id, c.subject) for c in hidden_checks), strict=True)
        )
        more = f" and {len(subjects) - SHOWN:,} more" if len(subjects) > SHOWN else ""
        lines: list[RenderableType] = [
            Text.assemble(("unknown  ", _STYLES["unknown"]), visible_lines(reason)),
            _indent(2, Text.assemble((f"{visible(', '.join(subjects[:SHOWN]))}{more}: ", "bold"), ", ".join(ids))),
        ]
        lines += [_indent(4, Text(f"-> {visible_lines(fix)}"))] if fix else []
        findings.append(Group(*lines))
    return findings


def _indent(columns: int, text: Text) -> Padding:
    return Padding(text, (0, 0, 0, columns), expand=False)


def _conclusion(project: str, checks: Sequence[Check], *, show_all: bool) -> Text:
    counts = [(level, sum(check.level == level for check in checks)) for level in LEVELS]
    summary = Text.assemble((f"{project}: ", "bold"))
    for index, (level, number) in enumerate((level, number) for level, number in counts if number):
        plural = "s" if number > 1 and level in ("warn", "note") else ""
        summary.append(", " if index else "").append(f"{number:,} {_WORDS[level]}{plural}", style=_STYLES[level])
    ok_count = dict(counts)["ok"]
    if ok_count and not show_all:
        summary.append(" (`penstock doctor --all` shows what is fine)", style="dim")
    return summary


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
    from penstock.doctor.check import check_json, is_healthy
    from penstock.doctor.examine import examine
    from penstock.plan.build import build_plan, select_tables
    from penstock.spec.load import load_project

    project = load_project(project_folder(directory))
    plan = build_plan(project)
    table_plans = select_tables(plan, tables or [])
    with err.status("looking") as status:
        checks = examine(project, plan, table_plans, lambda activity: status.update(Text(f"looking: {activity}")))
    healthy = is_healthy(checks)
    if as_json:
        counts = {level: sum(check.level == level for check in checks) for level in LEVELS}
        documents = [check_json(check) for check in checks]
        print_json({"project": plan.name, "healthy": healthy, "counts": counts, "checks": documents})
    else:
        print_view(doctor_view(plan.name, checks, show_all=show_all), piped=10_000)
    raise typer.Exit(0 if healthy else 1)
