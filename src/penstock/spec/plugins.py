"""Kinds of sources, decode formats and sinks by the keys that name them: Penstock's own, and those that other packages
provide by entry points."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from pydantic import ValidationError, ValidationInfo

from penstock.errors import SetupError
from penstock.spec.base_model import FindingsError, SpecModel, quote_value, wrong

Model = TypeVar("Model", bound=SpecModel)

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


def read_kind(
    value: Any,
    info: ValidationInfo,
    builtin: Mapping[str, type[Model]],
    group: str,
    *,
    shapes: str,
    rule: str,
    hint: str,
) -> Model | None:
    """The model of a mapping, by the key that names its kind; None if no key does. `shapes` says what may be written,
    `rule` that there is only one kind, `hint` what to do with several. Raises FindingsError."""
    if not isinstance(value, dict):
        message = "there is nothing here" if value is None else f"{quote_value(value)} is not what belongs here"
        raise wrong(message, shapes, at_key=value is None)
    kinds = [key for key in builtin if key in value] or [key for key in plugin_names(group) if key in value]
    if not kinds:
        return None
    if len({builtin.get(kind, kind) for kind in kinds}) > 1:
        raise wrong(f"{rule}, not {' and '.join(kinds)}", hint, at_key=True)
    model: type[Model] = builtin[kinds[0]] if kinds[0] in builtin else plugin(group, kinds[0]).model
    try:
        return model.model_validate(value, context=info.context)
    except ValidationError as error:
        raise FindingsError(model.findings(error)) from None
