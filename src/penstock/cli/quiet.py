"""A listener of tables that a command runs by the way: what they say is progress, what fails is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.protocol.write import Written
    from penstock.errors import PenstockError
    from penstock.runtime.listener import Outcome


class Quiet:
    def __init__(self, told: Callable[[str, str], None]) -> None:
        self._told = told
        self.errors: dict[str, PenstockError] = {}

    def said(self, table: str, message: str) -> None:
        if table:
            self._told(table, message)

    def batch(self, table: str, written: Written, seconds: float) -> None:
        self._told(table, f"batch {written.batch}")

    def failed(self, table: str, error: PenstockError) -> None:
        self.errors[table] = error

    def ended(self, table: str, outcome: Outcome) -> None:
        pass
