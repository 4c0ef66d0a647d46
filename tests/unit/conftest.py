"""Unit tests have no broker: none waits for one to answer."""

from __future__ import annotations

import pytest

from penstock.operations import heal
from penstock.verify import table as verify_table


@pytest.fixture(autouse=True)
def _do_not_wait_for_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (verify_table, heal):
        monkeypatch.setattr(module, "BROKER_TIMEOUT", 0.05)
