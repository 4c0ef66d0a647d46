"""Positions and what lies between two of them, in words: what Spark writes of a Delta table tells a person nothing."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.delta.version import parse
from penstock.engine.protocol import position


def at(places: Sequence[str]) -> str:
    """`orders-0 at 120, orders-1 at 98`; `version 7`: the first that is not read."""
    return "; ".join(map(_at, places))


def _at(text: str) -> str:
    try:
        return _place(text)
    except (KeyError, TypeError, ValueError):  # no position that Spark would write
        return text


def _place(text: str) -> str:
    if not _of_table(text):
        found = position.parse(text)
        return (
            ", ".join(f"{t}-{p} at {o}" for t in sorted(found) for p, o in sorted(found[t].items())) or "no partition"
        )
    place = parse(text)
    part = f", after file {place.index}" if place.index >= 0 else ""
    return f"{'the table as of ' if place.snapshot else ''}version {place.version}{part}"


def between(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    """What lies between two positions, per source; () if the first is not known."""
    try:
        return tuple(map(_between, before, after)) if len(before) == len(after) else ()
    except (KeyError, TypeError, ValueError):
        return ()


def _between(before: str, after: str) -> str:
    if not _of_table(after):
        return position.difference(before, after)
    first, last = parse(before), parse(after)
    if first == last:
        return "nothing"
    parts = []
    if first.snapshot:
        begin = f" from file {first.index + 1} on" if first.index >= 0 else ""
        end = f" up to file {last.index}" if last.snapshot else ""
        parts.append(f"the table as of version {first.version}{begin}{end}")
    start = first.version + 1 if first.snapshot else first.version
    if not last.snapshot and last.read_up_to >= start:
        named = f"version {start}" if last.read_up_to == start else f"versions {start} to {last.read_up_to}"
        part = "" if last.whole and (first.whole or first.snapshot) else ", not all of their files"
        parts.append(named + part)
    return ", ".join(parts) or "nothing"


def _of_table(text: str) -> bool:
    return "reservoirVersion" in text
