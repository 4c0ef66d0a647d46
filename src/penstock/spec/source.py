"""Where the rows of a table come from: the key says which kind of source it is."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationInfo

from penstock.spec.base_model import SourceFrom, did_you_mean, wrong
from penstock.spec.delta_source import ChangesFrom, DeltaFrom, TableFrom
from penstock.spec.files_source import FilesFrom
from penstock.spec.kafka_source import KafkaFrom
from penstock.spec.plugins import SOURCES, plugin_names, read_kind

_KINDS: dict[str, type[SourceFrom]] = {
    kind.kind: kind for kind in (KafkaFrom, TableFrom, DeltaFrom, FilesFrom, ChangesFrom)
}
_TABLE_NAME = re.compile(r"\w+\.\w+")
_SHAPES = (
    "write from: {kafka: topic}, {table: bronze.orders}, {changes: silver.customers}, {delta: /path} or "
    "{files: folder, format: json}"
)


def source_of(value: Any, info: ValidationInfo) -> SourceFrom:
    """Raises FindingsError."""
    if isinstance(value, SourceFrom):
        return value
    is_name = isinstance(value, str) and _TABLE_NAME.fullmatch(value) is not None
    shapes = f"write from: {{table: {value}}}" if is_name else _SHAPES
    rule, hint = "a table has one source", "make a table of each"
    source = read_kind(value, info, _KINDS, SOURCES, shapes=shapes, rule=rule, hint=hint)
    if source is not None:
        return source
    hints = [did_you_mean(str(key), [*_KINDS, *plugin_names(SOURCES)]) for key in value]
    suggestion = next((hint for hint in hints if hint.startswith("did you mean")), None)
    raise wrong("where do the rows come from?", suggestion or _SHAPES, at_key=True)
