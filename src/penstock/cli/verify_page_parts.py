"""What the parts of the page of `verify` have in common."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.cli.html import Html, Part, el, joined

Document = dict[str, Any]
SHOWN = 50
"""Differences, ranges and partitions of a table that are named on the page; the document has all."""
WORDS = {
    "complete": "complete",
    "behind": "behind",
    "partial": "partial",
    "wrong": "WRONG",
    "not created": "not created yet",
}
OUTCOMES = {
    "same": "holds",
    "differs": "DIFFERS",
    "stale": "stale",
    "unverifiable": "not proven",
    "not made": "not made",
}
_GOOD = {"complete": "good", "wrong": "bad", "same": "good", "differs": "bad", "not made": "none"}


def mark(word: str, kind: str) -> Html:
    return el("span", word, class_=f"mark {_GOOD.get(kind, 'doubt')}")


def number(value: int | None) -> Html:
    return el("td", "" if value is None else f"{value:,}", class_="number")


def pairs(pairs: Iterable[tuple[str, Part]]) -> Html:
    return el("dl", *(joined([el("dt", name), el("dd", value)]) for name, value in pairs))


def grid(names: Iterable[str], rows: Iterable[Html], numbers: Iterable[str] = ()) -> Html:
    """`numbers` are the columns that hold such."""
    right = set(numbers)
    head = el("thead", el("tr", *(el("th", name, class_="number" if name in right else None) for name in names)))
    return el("div", el("table", head, el("tbody", *rows)), class_="wide")
