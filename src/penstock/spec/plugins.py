"""Plugins: kinds of sources, decode formats and sinks that other packages provide by entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from penstock.errors import SetupError

SOURCES, FORMATS, SINKS = "penstock.sources", "penstock.formats", "penstock.sinks"
"""The groups of entry points. The name of an entry point is the key that a user writes in `from`, `decode` or `to`."""


def plugin_names(group: str) -> list[str]:
    return sorted({entry.name for entry in entry_points(group=group)})


def plugin(group: str, name: str) -> Any:
    """Loads what the entry point names. Nothing of a package is loaded before a project names its kind."""
    entries: list[EntryPoint] = list(entry_points(group=group, name=name))
    if not entries:
        raise SetupError(
            f"there is no '{name}' among the installed {group}",
            hint="install the package that brings it, into the environment of penstock",
        )
    if len({entry.value for entry in entries}) > 1:
        entry_values = " and ".join(sorted({entry.value for entry in entries}))
        raise SetupError(f"'{name}' in {group} is brought by {entry_values}", hint="keep one of the packages installed")
    try:
        return entries[0].load()
    except Exception as error:
        raise SetupError(
            f"'{name}' in {group} cannot be loaded from {entries[0].value}: {type(error).__name__}: {error}",
            hint="repair or remove the package that brings it",
        ) from error
