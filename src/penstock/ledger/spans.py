"""Sets of offsets as spans: exact, and small however many offsets they hold."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
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
            self._edges = _sweep(edges, array("q", (start, end)), lambda left, right: left or right)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        edges = self._edges
        for i in range(0, len(edges), 2):
            yield edges[i], edges[i + 1]

    def __len__(self) -> int:
        """Number of spans."""
        return len(self._edges) // 2

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spans) and self._edges == other._edges

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Spans({list(self)})"

    def __or__(self, other: Spans) -> Spans:
        return self._combine(other, lambda left, right: left or right)

    def __and__(self, other: Spans) -> Spans:
        return self._combine(other, lambda left, right: left and right)

    def __sub__(self, other: Spans) -> Spans:
        return self._combine(other, lambda left, right: left and not right)

    @property
    def size(self) -> int:
        """Number of offsets."""
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

    def _combine(self, other: Spans, keep: Callable[[bool, bool], bool]) -> Spans:
        result = Spans()
        result._edges = _sweep(self._edges, other._edges, keep)
        return result


def _sweep(left: array[int], right: array[int], keep: Callable[[bool, bool], bool]) -> array[int]:
    """Walk the edges of both from left to right and record where `keep(in left, in right)` changes."""
    edges = array("q")
    in_left = in_right = inside = False
    i = j = 0
    while i < len(left) or j < len(right):
        edge = left[i] if j >= len(right) or (i < len(left) and left[i] <= right[j]) else right[j]
        if i < len(left) and left[i] == edge:
            in_left, i = not in_left, i + 1
        if j < len(right) and right[j] == edge:
            in_right, j = not in_right, j + 1
        if keep(in_left, in_right) != inside:
            inside = not inside
            edges.append(edge)
    return edges


@dataclass
class GapAnswer:
    """The result for the gaps of one partition: offsets that a table lacks."""

    lost: Spans = field(default_factory=Spans)
    """The source has a record there."""
    empty: Spans = field(default_factory=Spans)
    """Gaps of the source itself: it holds this range and has no record there."""
    unverifiable: Spans = field(default_factory=Spans)
    reason: str | None = None
    """Why the offsets in `unverifiable` could not be checked."""
