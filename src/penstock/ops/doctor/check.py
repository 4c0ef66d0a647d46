"""What one check came to: what was found, why it matters, what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from penstock.ops.doctor.reasons import REASONS

Level = Literal["red", "warn", "unknown", "note", "ok"]
LEVELS: tuple[Level, ...] = ("red", "warn", "unknown", "note", "ok")
"""The worst first. Only red makes the answer no."""
PROJECT = "the project"
"""The subject of what is not about one table. With a space: no table can be called so."""


@dataclass(frozen=True)
class Check:
    id: str
    subject: str
    """A table or a sink by its name, or the project."""
    level: Level
    found: str
    """With the numbers that decided it; of `unknown`, why it could not be found out."""
    why: str
    fix: str = ""
    """A command, or a line of the project file; empty if there is nothing to do."""


@dataclass(frozen=True)
class About:
    """One check of one subject, before its outcome is known."""

    id: str
    subject: str = PROJECT

    def ok(self, found: str) -> Check:
        return self._check("ok", found, "")

    def note(self, found: str, fix: str = "") -> Check:
        return self._check("note", found, fix)

    def warn(self, found: str, fix: str) -> Check:
        return self._check("warn", found, fix)

    def red(self, found: str, fix: str) -> Check:
        return self._check("red", found, fix)

    def unknown(self, reason: str, fix: str = "") -> Check:
        """What cannot be found out is never taken for fine."""
        return self._check("unknown", reason, fix)

    def _check(self, level: Level, found: str, fix: str) -> Check:
        return Check(self.id, self.subject, level, found, REASONS[self.id], fix)


def healthy(checks: Iterable[Check]) -> bool:
    return all(check.level != "red" for check in checks)


def document(check: Check) -> dict[str, Any]:
    return asdict(check)
