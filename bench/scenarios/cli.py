"""Scenario cli: how long a person waits for the commands that need no JVM."""

from __future__ import annotations

import statistics
import subprocess
import time

from bench.arena import Arena
from bench.outcome import Outcome, Sheet, Target
from bench.process import ContenderFailed
from bench.product import COMMAND, penstock

_BOUNDS = {"--help": 0.5, "validate": 0.5, "status": 1.0}


def cli(arena: Arena) -> Outcome:
    """On a project with one landed table and the broker up, so that `status` has everything to look at."""
    folder = arena.folder / "cli"
    project = folder / "project"
    arena.fill("cli", arena.sizes.start_records)
    problems = []
    try:
        arena.run("P", "cli", arena.sizes.start_records, "cli", folder=folder)
    except ContenderFailed as failure:
        problems.append(str(failure))
    commands = {
        "--help": [*COMMAND, "--help"],
        "validate": penstock(project, "validate"),
        "status": penstock(project, "status"),
    }
    measured: dict[str, list[float]] = {}
    for name, command in commands.items():
        walls = []
        for _ in range(arena.sizes.cli_repeats + 1):
            start = time.perf_counter()
            answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
            walls.append(time.perf_counter() - start)
            if answer.returncode != 0:
                problems.append(f"{name} ended with code {answer.returncode}\n{answer.stderr}")
                break
        else:
            measured[name] = walls[1:]  # the first fills the disk cache
    return Outcome(
        scenario="cli",
        setting=f"Wall time of the command, median of {arena.sizes.cli_repeats}, one table landed, broker up.",
        sheets=[
            Sheet(
                "cli: seconds until the answer",
                ("command", "median", "lowest", "highest"),
                [
                    [name, f"{statistics.median(walls):.2f}", f"{min(walls):.2f}", f"{max(walls):.2f}"]
                    for name, walls in measured.items()
                ],
            )
        ],
        targets=[
            Target(
                f"penstock {name}",
                "at most",
                bound,
                " s",
                statistics.median(measured[name]) if name in measured else None,
            )
            for name, bound in _BOUNDS.items()
        ],
        figures=measured,
        problems=problems,
    )
