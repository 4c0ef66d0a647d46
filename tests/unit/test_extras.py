"""Clients of single sinks and stores are extras: an error names the one that is missing."""

from __future__ import annotations

import sys

import pytest

from penstock.errors import SetupError, import_extra


@pytest.mark.parametrize(
    ("module", "extra"), [("redis", "redis"), ("httpx", "search"), ("obstore.store", "object-stores")]
)
def test_a_missing_client_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, module: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SetupError) as raised:
        import_extra(module, extra, "this sink")
    assert f"pip install 'penstock[{extra}]'" in (raised.value.hint or "")
