"""The table's coordinates against what its ledger says was read: what lacks, what is doubled, what is strange."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.ops.verify.coordinates import Coordinates, Repeated
from penstock.ops.verify.expected import Expected, Key
from penstock.ops.verify.spans import Spans


@dataclass(frozen=True)
class Doubled:
    start: int
    end: int
    times: int
    """How often each of these offsets is in the table."""
    expected: int


@dataclass
class Difference:
    """One partition. All empty: the table holds exactly what it should."""

    rows: int = 0
    gaps: Spans = field(default_factory=Spans)
    """Should be there and are not. Not yet a loss: Kafka itself leaves offsets without a record."""
    short: list[Doubled] = field(default_factory=list)
    """Are there, but fewer times than they were read."""
    doubled: list[Doubled] = field(default_factory=list)
    unexpected: Spans = field(default_factory=Spans)
    """Are there, and no entry says that they were read."""


def compare(expected: Expected, found: Coordinates) -> dict[Key, Difference]:
    keys = sorted(set(expected.times) | set(found.present))
    return {
        key: _difference(
            expected.times.get(key, [Spans()]), found.present.get(key, Spans()), found.repeated.get(key, [])
        )
        for key in keys
    }


def _difference(wanted: list[Spans], present: Spans, repeated: list[Repeated]) -> Difference:
    extra = sum((one.end - one.start) * (one.times - 1) for one in repeated)
    return Difference(
        rows=present.size + extra,
        gaps=wanted[0] - present,
        short=_short(wanted, present, repeated),
        doubled=[doubled for one in repeated for doubled in _doubled(wanted, one)],
        unexpected=present - wanted[0],
    )


def _doubled(wanted: list[Spans], one: Repeated) -> list[Doubled]:
    found: list[Doubled] = []
    span = Spans([(one.start, one.end)])
    for times in range(1, min(one.times - 1, len(wanted)) + 1):
        exactly = span & wanted[times - 1]
        if times < len(wanted):
            exactly = exactly - wanted[times]
        found.extend(Doubled(start, end, one.times, times) for start, end in exactly)
    return found


def _short(wanted: list[Spans], present: Spans, repeated: list[Repeated]) -> list[Doubled]:
    found: list[Doubled] = []
    for times, level in enumerate(wanted[1:], start=2):
        enough = Spans((one.start, one.end) for one in sorted(repeated, key=lambda r: r.start) if one.times >= times)
        found.extend(Doubled(start, end, times - 1, times) for start, end in (level & present) - enough)
    return found
