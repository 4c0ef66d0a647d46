"""`penstock init`: the smallest project that does something, with the next keys as comments."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import AsJson
from penstock.errors import UsageError

_YML = """\
# A Penstock project. Every key is in Penstock's docs/project-file.md; `penstock validate` checks this file.
name: {name}

# Where the tables lie: a folder, or any URI that Hadoop reads (s3a://, abfss://, gs://, hdfs://).
lake: ./lake

kafka:
  # From the environment, with a default. ${{env:X}} without one is an error while X is not set.
  bootstrap: ${{env:KAFKA_BOOTSTRAP:-127.0.0.1:9092}}
  # security:
  #   protocol: SASL_SSL
  #   mechanism: SCRAM-SHA-512
  #   username: ${{env:KAFKA_USER}}
  #   password: ${{file:secrets/kafka}}     # or ${{env:KAFKA_PASSWORD}}; never printed

defaults:
  trigger: 30s                           # also available-now, once, or {{sla: 1h}}

tables:
  bronze.orders:                         # the folder lake/bronze/orders
    from:
      kafka: orders                      # also [orders, refunds], or {{pattern: "orders-.*"}}
      starting: earliest                 # also latest, {{timestamp: 2026-01-01T00:00:00Z}}, {{offsets: ...}}

# maintenance: {{optimize: 1 hour, vacuum: {{retain: 7 days}}}}     # the runner looks after the files
"""

_README = """\
# {name}

A Penstock project: the topic `orders` lands in the Delta table `bronze.orders`, each record exactly once.

    penstock validate                         # is penstock.yml right?
    penstock plan                             # what will run do, and why?
    penstock kafka start                      # a broker for development (or set KAFKA_BOOTSTRAP to yours)
    penstock generate orders --count 1000     # events into it
    penstock run --once                       # land what is there; without --once until stopped
    penstock status                           # what was landed
    penstock verify                           # proof: every record once
"""

_GITIGNORE = """\
# Data, logs and secrets are not part of the project.
lake/
.penstock/
secrets/
spark-warehouse/
metastore_db/
derby.log
"""


def write_project(folder: Path) -> list[Path]:
    """Writes the files and returns them. Raises UsageError, and writes nothing, if one of them exists already."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", folder.absolute().resolve().name).strip("-._")[:100] or "project"
    contents = {
        folder / "penstock.yml": _YML.format(name=name),
        folder / "README.md": _README.format(name=name),
        folder / ".gitignore": _GITIGNORE,
    }
    existing = [str(path) for path in contents if path.exists() or path.is_symlink()]
    if existing:
        raise UsageError(
            f"these files are there already, and nothing was written: {', '.join(existing)}",
            hint="name another folder, or move them away",
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, content in contents.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(content)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written to: {error.strerror}", hint="name a folder that you may write to"
        ) from None
    return list(contents)


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the project; made if it is not there.")],
    as_json: AsJson = False,
) -> None:
    """Write a small working project.

    It lands the topic orders in the table bronze.orders. Nothing that is there already is overwritten.
    """
    from penstock.cli.console import print_json, visible

    paths = write_project(folder)
    if as_json:
        print_json({"folder": str(folder), "files": [str(path) for path in paths]})
        return
    for path in paths:
        typer.echo(f"wrote {visible(str(path))}")
    typer.echo("\nNext:")
    steps = _next_steps(folder)
    width = max(len(step) for step, _ in steps)
    for step, why in steps:
        typer.echo(f"  {visible(step):<{width}}  # {why}")


def _next_steps(folder: Path) -> list[tuple[str, str]]:
    enter = (f"cd {shlex.quote(str(folder))}", "the other commands work here")
    return [
        *([] if folder.resolve() == Path.cwd() else [enter]),
        ("penstock kafka start", "a broker for development, or set KAFKA_BOOTSTRAP to yours"),
        ("penstock generate orders --count 1000", "events into the topic orders"),
        ("penstock run --once", "land what is there"),
        ("penstock status", "what was landed"),
        ("penstock verify", "the proof that each record is there exactly once"),
    ]
