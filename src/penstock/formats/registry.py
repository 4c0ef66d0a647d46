"""The decode formats: opens the decoder of each by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from penstock.formats.csv import CsvDecoder, TextDecoder
from penstock.formats.json import DebeziumDecoder, JsonDecoder
from penstock.spec.plugins import FORMATS, plugin
from penstock.spec.stages import FormatRules

if TYPE_CHECKING:
    from penstock.formats.base import Decoder
    from penstock.plan.stages import DecodePlan


class FormatPlugin(Protocol):
    """What an entry point of `penstock.formats` provides."""

    rules: FormatRules

    def open(self, plan: DecodePlan, binary: str | None) -> Decoder:
        """`binary` is the column that holds payloads that are not UTF-8, if there is one."""


_BUILT_IN: dict[str, Callable[[DecodePlan, str | None], Decoder]] = {
    "json": JsonDecoder,
    "csv": CsvDecoder,
    "text": TextDecoder,
    "debezium": DebeziumDecoder,
}


def open_decoder(plan: DecodePlan, binary: str | None) -> Decoder:
    if plan.format in _BUILT_IN:
        return _BUILT_IN[plan.format](plan, binary)
    kind: FormatPlugin = plugin(FORMATS, plan.format)()
    return kind.open(plan, binary)
