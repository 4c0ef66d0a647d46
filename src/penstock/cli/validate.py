"""`penstock validate`. Prints without rich: it may run on every save, and rich takes a tenth of a second to load."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from penstock.cli.options import AsJson, Directory, project_folder
from penstock.spec.quantity import counted

if TYPE_CHECKING:
    from penstock.errors import Problem
    from penstock.spec.load import ProjectCheck
    from penstock.spec.project import Project


def command(directory: Directory = None, as_json: AsJson = False) -> None:
    """Check the project file, and say all that is wrong.

    Neither Spark nor a broker is needed. The exit code is 2 if there are problems; warnings do not change it.
    """
    from penstock.spec.load import FILE, check_project

    folder = project_folder(directory)
    checked = check_project(folder)
    if as_json:
        from penstock.cli.console import print_json

        findings = {
            "problems": [asdict(problem) for problem in checked.problems],
            "warnings": [asdict(warning) for warning in checked.warnings],
        }
        print_json({"valid": checked.project is not None, **findings})
    else:
        _print_findings(str(folder / FILE), checked)
    if checked.project is None:
        raise typer.Exit(2)


def _print_findings(file: str, checked: ProjectCheck) -> None:
    for problem in checked.problems:
        _print_problem("error", typer.colors.RED, problem)
    for warning in checked.warnings:
        _print_problem("warning", typer.colors.YELLOW, warning)
    warnings_text = f", {counted(len(checked.warnings), 'warning')}" if checked.warnings else ""
    if checked.project is None:
        _conclude("✗", typer.colors.RED, f"{file}: {counted(len(checked.problems), 'problem')}{warnings_text}")
    else:
        _conclude("✓", typer.colors.GREEN, f"{file} is valid: {_contents(checked.project)}{warnings_text}")


def _print_problem(kind: str, colour: str, problem: Problem) -> None:
    location = _visible(f"{problem.file}:{problem.line}:{problem.column}:")
    message = _visible(problem.message)
    typer.echo(f"{typer.style(location, bold=True)} {typer.style(kind + ':', fg=colour)} {message}")
    if problem.hint:
        typer.echo(f"  -> {_visible(problem.hint)}")
    typer.echo()


def _conclude(sign: str, colour: str, text: str) -> None:
    try:
        sign.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        sign = "ok:" if sign == "✓" else "error:"
    typer.echo(f"{typer.style(sign, fg=colour, bold=True)} {_visible(text)}")


def _contents(project: Project) -> str:
    from penstock.spec.files_source import FilesFrom
    from penstock.spec.kafka_source import KafkaFrom

    sources = [table.source for table in project.tables.values()]
    kafka = [source for source in sources if isinstance(source, KafkaFrom)]
    topics = {(source.cluster, name) for source in kafka for name in source.kafka.names}
    patterns = [source for source in kafka if source.kafka.pattern is not None]
    parts = [counted(len(topics), "topic")] if topics else []
    parts += [counted(len(patterns), "pattern")] if patterns else []
    clusters = len({source.cluster for source in kafka})
    topics_text = f" from {' and '.join(parts)} of {counted(clusters, 'cluster')}" if kafka else ""
    folders = len([source for source in sources if isinstance(source, FilesFrom)])
    folders_text = f"{' and' if kafka else ' from'} {counted(folders, 'folder')}" if folders else ""
    sinks = f"; {counted(len(project.sinks), 'sink')}" if project.sinks else ""
    return f"{counted(len(sources), 'table')}{topics_text}{folders_text}{sinks}"


def _visible(text: str) -> str:
    if text.replace("\n", "").isprintable():
        return text
    from penstock.cli.console import visible_lines

    return visible_lines(text)
