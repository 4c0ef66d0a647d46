"""Sets of offsets as spans: exact, and small however many offsets they hold."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import islice


class Spans:
    """Offsets of one partition: sorted spans [start, end) that neither overlap nor touch.

    Kept as their edges in a flat array: a transactional topic has a span per transaction, millions of them.
    """

    __slots__ = ("_edges",)

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._edges = array("q")
        for start, end in spans:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """Cheap where `start` lies at or after the last span's start, which is how tables grow."""
        edges = self._edges
        if start >= end:
            return
        if not edges or start > edges[-1]:
            edges.extend((start, end))
        elif start >= edges[-2]:
            edges[-1] = max(edges[-1], end)
        else:
            self._edges = _sweep(edges, array("q", (start, end)), lambda one, other: one or other)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        edges = self._edges
        for i in range(0, len(edges), 2):
            yield edges[i], edges[i + 1]

    def __len__(self) -> int:
        """How many spans."""
        return len(self._edges) // 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spans) and self._edges == other._edges

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Spans({list(self)})"

    def __or__(self, other: Spans) -> Spans:
        return self._with(other, lambda one, two: one or two)

    def __and__(self, other: Spans) -> Spans:
        return self._with(other, lambda one, two: one and two)

    def __sub__(self, other: Spans) -> Spans:
        return self._with(other, lambda one, two: one and not two)

    @property
    def size(self) -> int:
        """How many offsets."""
        edges = self._edges
        return sum(edges[1::2]) - sum(edges[0::2])

    @property
    def start(self) -> int:
        return self._edges[0]

    @property
    def end(self) -> int:
        return self._edges[-1]

    def first(self, limit: int) -> list[tuple[int, int]]:
        return list(islice(self, limit))

    def _with(self, other: Spans, wanted: Callable[[bool, bool], bool]) -> Spans:
        found = Spans()
        found._edges = _sweep(self._edges, other._edges, wanted)
        return found


def _sweep(one: array[int], other: array[int], wanted: Callable[[bool, bool], bool]) -> array[int]:
    """Walks the edges of both from left to right and notes where `wanted(inside one, inside other)` changes."""
    found = array("q")
    in_one = in_other = on = False
    i = j = 0
    while i < len(one) or j < len(other):
        at = one[i] if j >= len(other) or (i < len(one) and one[i] <= other[j]) else other[j]
        if i < len(one) and one[i] == at:
            in_one, i = not in_one, i + 1
        if j < len(other) and other[j] == at:
            in_other, j = not in_other, j + 1
        if wanted(in_one, in_other) != on:
            on = not on
            found.append(at)
    return found
