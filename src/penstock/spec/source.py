"""Where the rows of a table come from: the key says which kind of source it is."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError, ValidationInfo

from penstock.spec.base_model import FindingsError, SourceFrom, did_you_mean, quote_value, wrong
from penstock.spec.delta_source import ChangesFrom, DeltaFrom, TableFrom
from penstock.spec.files_source import FilesFrom
from penstock.spec.kafka_source import KafkaFrom
from penstock.spec.plugins import SOURCES, plugin, plugin_names

_KINDS: dict[str, type[SourceFrom]] = {
    kind.kind: kind for kind in (KafkaFrom, TableFrom, DeltaFrom, FilesFrom, ChangesFrom)
}
_TABLE_NAME = re.compile(r"\w+\.\w+")
_SHAPES = (
    "write from: {kafka: topic}, {table: bronze.orders}, {changes: silver.customers}, {delta: /path} or "
    "{files: folder, format: json}"
)


def source_of(value: Any, info: ValidationInfo) -> SourceFrom:
    """Raises Wrong."""
    if isinstance(value, SourceFrom):
        return value
    if not isinstance(value, dict):
        message = "there is nothing here" if value is None else f"{quote_value(value)} is not what belongs here"
        hint = f"write from: {{table: {value}}}" if isinstance(value, str) and _TABLE_NAME.fullmatch(value) else _SHAPES
        raise wrong(message, hint, at_key=value is None)
    kinds = [key for key in _KINDS if key in value] or [key for key in plugin_names(SOURCES) if key in value]
    if len(kinds) > 1:
        raise wrong(f"a table has one source, not {' and '.join(kinds)}", "make a table of each", at_key=True)
    if not kinds:
        raise _unknown_source(value)
    model: type[SourceFrom] = _KINDS[kinds[0]] if kinds[0] in _KINDS else plugin(SOURCES, kinds[0]).model
    try:
        return model.model_validate(value, context=info.context)
    except ValidationError as error:
        raise FindingsError(model.findings(error)) from None


def _unknown_source(value: dict[str, Any]) -> FindingsError:
    hints = [did_you_mean(str(key), [*_KINDS, *plugin_names(SOURCES)]) for key in value]
    suggestion = next((hint for hint in hints if hint.startswith("did you mean")), None)
    return wrong("where do the rows come from?", suggestion or _SHAPES, at_key=True)
