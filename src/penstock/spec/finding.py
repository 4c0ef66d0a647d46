"""What is wrong with a value, as data: where in the document, the message, and what to write instead.

Models raise `Wrong` with as many findings as they can make; the loader turns the paths into lines and columns.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Finding:
    path: Path
    message: str
    hint: str | None = None
    at_key: bool = False
    """Point at the key itself rather than at its value."""

    def below(self, prefix: Path) -> Finding:
        return replace(self, path=(*prefix, *self.path))

    def __str__(self) -> str:
        where = ".".join(str(step) for step in self.path)
        head = f"{where}: {self.message}" if where else self.message
        return f"{head}\n  -> {self.hint}" if self.hint else head


class Wrong(ValueError):
    """One or many findings; a ValueError so that pydantic collects it with the others."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


def wrong(message: str, hint: str | None = None, *path: str | int, at_key: bool = False) -> Wrong:
    return Wrong([Finding(path, message, hint, at_key)])


class Referenced(str):
    """A value that came by reference (`${env:X}`). `written` is what the file says, and all that may be shown."""

    written: str

    def __new__(cls, value: str, written: str) -> Referenced:
        made = super().__new__(cls, value)
        made.written = written
        return made


def shown(value: object) -> str:
    """A value as an error may show it: quoted, short, and never what a reference stands for."""
    if isinstance(value, Referenced):
        return f"'{value.written}'"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if not isinstance(value, str):
        return str(value)
    flat = " ".join(value.split()) if "\n" in value else value
    return f"'{flat}'" if len(flat) <= 80 else f"'{flat[:77]}...'"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, whatever its case."""
    by_fold = {candidate.casefold(): candidate for candidate in known}
    found = difflib.get_close_matches(word.casefold(), list(by_fold), n=1, cutoff=0.6)
    return by_fold[found[0]] if found else None


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """A hint: the nearest known word, else all of them."""
    meant = nearest(word, known)
    return f"did you mean '{meant}'?" if meant else f"write one of: {', '.join(known)}"
