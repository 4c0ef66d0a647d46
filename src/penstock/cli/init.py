"""`penstock init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import AsJson


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the project; made if it is not there.")],
    as_json: AsJson = False,
) -> None:
    """Write a small working project.

    It lands the topic orders in the table bronze.orders. Nothing that is there already is overwritten.
    """
    from penstock.cli.init_project import write_project

    written = write_project(folder)
    if as_json:
        from penstock.cli.console import print_json

        print_json({"folder": str(folder), "files": [str(path) for path in written]})
        return
    for path in written:
        typer.echo(f"wrote {path}")
    typer.echo("\nNext:")
    width = max(len(command) for command, _ in _next(folder))
    for step, why in _next(folder):
        typer.echo(f"  {step:<{width}}  # {why}")


def _next(folder: Path) -> list[tuple[str, str]]:
    enter = [] if folder.resolve() == Path.cwd() else [(f"cd {_shell(folder)}", "the other commands work here")]
    return [
        *enter,
        ("penstock kafka start", "a broker for development, or set KAFKA_BOOTSTRAP to yours"),
        ("penstock generate orders --count 1000", "events into the topic orders"),
        ("penstock run --once", "land what is there"),
        ("penstock status", "what was landed"),
        ("penstock verify", "the proof that each record is there exactly once"),
    ]


def _shell(folder: Path) -> str:
    import shlex

    return shlex.quote(str(folder))
