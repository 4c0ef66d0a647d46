"""What a runner tells whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from penstock.engine.protocol.write import Written
from penstock.errors import PenstockError

Outcome = Literal["finished", "stopped", "failed"]


class Listener(Protocol):
    def said(self, table: str, message: str) -> None:
        """Something happened that a person should know: created, healed, a foreign commit, a retry."""

    def batch(self, table: str, written: Written, seconds: float) -> None: ...

    def failed(self, table: str, error: PenstockError) -> None:
        """Without a table it is what ended all of them: the JVM."""

    def ended(self, table: str, outcome: Outcome) -> None: ...


@dataclass(frozen=True)
class Result:
    outcomes: dict[str, Outcome]
    errors: dict[str, PenstockError]
    unfinished: bool = False
    """A table did not end within the bound of a stop: its thread still waits for a JVM that is about to be killed."""

    @property
    def exit_code(self) -> int:
        return 3 if self.errors else 0
