"""The example projects, in a checkout or in an installed package."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from penstock.errors import SetupError, UsageError
from penstock.spec.finding import did_you_mean


@dataclass(frozen=True)
class Example:
    """A project and the events that feed it: topic -> kind of event."""

    name: str
    topics: dict[str, str]


EXAMPLES = {"orders": Example("orders", {"orders": "orders"})}


def find_example(name: str) -> Example:
    if name not in EXAMPLES:
        raise UsageError(f"there is no example '{name}'", hint=did_you_mean(name, list(EXAMPLES)))
    return EXAMPLES[name]


def copy_example(example: Example, folder: Path) -> Path:
    """A copy to run in: the example itself stays as it is."""
    inside = Path(str(files("penstock"))) / "examples" / example.name
    beside = Path(__file__).parents[3] / "examples" / example.name
    source = inside if inside.is_dir() else beside
    if not source.is_dir():
        raise SetupError(f"the example {example.name} is not in this installation", hint="install penstock again")
    target = folder / example.name
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("lake", ".penstock"))
    return target
