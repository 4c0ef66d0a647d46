"""A place in a query, shown as a compiler shows it."""

from __future__ import annotations

_WIDEST = 100
_BEFORE = 40


def pointed(text: str, start: int, stop: int | None = None) -> str:
    """The line around the place, and marks below it from `start` to `stop`, both inclusive."""
    start = max(0, min(start, len(text)))
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    line = text[begin : len(text) if end < 0 else end]
    number, column = text.count("\n", 0, start) + 1, start - begin
    length = min((start if stop is None else stop) - start + 1, len(line) - column)
    cut = max(0, column - _BEFORE) if len(line) > _WIDEST else 0
    shown = "".join(one if one.isprintable() else " " for one in line[cut : cut + _WIDEST])
    marks = "^" * max(1, min(length, _WIDEST - (column - cut)))
    lines = f"line {number}, column {column + 1}" if "\n" in text.strip() else f"column {column + 1}"
    return f"  {shown}\n  {' ' * (column - cut)}{marks} {lines}"
