"""What a decode format from another package may promise of unknown fields, and what its decoder has to tell then."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import SetupError, Terminal
from penstock.formats.base import Decoded
from penstock.sources.files.lines import RefusingJson, WatchfulJson
from penstock.spec import stages
from penstock.spec.stages import Decode, FormatRules, format_rules


class Plugin:
    rules = FormatRules(names_fields=True)


class Pairs:
    def __init__(self, unknown: str | None) -> None:
        self._unknown = unknown

    def decode(self, records: Any) -> Decoded:
        return Decoded(records, (), "bad", "why", unknown=self._unknown)


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> type[Plugin]:
    class Installed(Plugin):
        pass

    monkeypatch.setattr(stages, "plugin", lambda group, name: Installed)
    monkeypatch.setattr(stages, "plugin_names", lambda group: ["pairs"])
    return Installed


def test_new_columns_are_refused_where_the_format_says_that_it_infers(pairs: Any) -> None:
    pairs.rules = FormatRules(names_fields=True, infers=True)
    with pytest.raises(SetupError, match=r"'pairs'.*infers") as raised:
        format_rules("pairs")
    assert raised.value.hint is not None and "infers" in raised.value.hint


def test_a_format_that_names_its_fields_may_stop_at_new_ones_but_not_add_them(pairs: Any) -> None:
    decode = {"pairs": "value", "schema": "id BIGINT"}
    assert Decode.model_validate({**decode, "new_fields": "fail"}).new_fields == "fail"
    with pytest.raises(ValueError, match="pairs") as raised:
        Decode.model_validate({**decode, "new_fields": "add"})
    assert "times and decimals" not in str(raised.value)


@pytest.mark.parametrize("decoder", [WatchfulJson, RefusingJson])
def test_unknown_fields_are_those_that_the_decoder_tells(decoder: Any) -> None:
    decoded = decoder(Pairs("first_unknown(value)")).decode(None)
    assert "first_unknown(value) IS NOT NULL" in decoded.is_bad and "__unknown" not in decoded.is_bad + decoded.reason


@pytest.mark.parametrize("decoder", [WatchfulJson, RefusingJson])
def test_a_decoder_that_does_not_tell_them_stops_the_table_with_what_is_missing(decoder: Any) -> None:
    with pytest.raises(Terminal, match="unknown") as raised:
        decoder(Pairs(None)).decode(None)
    assert raised.value.hint is not None and "Decoded.unknown" in raised.value.hint
