"""The batches that a checkpoint still holds, each with what it reads, what it pinned and what became of its rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.engine.protocol.checkpoint import Planned, read_planned
from penstock.engine.protocol.entry import Pins
from penstock.engine.protocol.fates import Fates, read_fates
from penstock.engine.protocol.pins import read_pins
from penstock.engine.store import Store
from penstock.ops.checkpoints.words import between


@dataclass(frozen=True)
class Batch:
    number: int
    time_ms: int | None
    """When it was planned; None if its file cannot be read."""
    read: tuple[str, ...]
    """Per source, in words; empty if the batch before it is not there to tell."""
    committed: bool
    pins: Pins | None = None
    fates: Fates = field(default_factory=dict)
    after: tuple[str, ...] = ()


def last_batches(store: Store, folder: str, most: int) -> list[Batch]:
    """The newest first."""
    planned = _numbers(store, f"{folder}/offsets")
    committed = set(_numbers(store, f"{folder}/commits"))
    found: list[Batch] = []
    earlier: Planned | None = None
    for number in planned[-most - 1 :]:
        now = read_planned(store, folder, number)
        before = earlier.after if earlier is not None and number - 1 in planned else ()
        found.append(
            Batch(
                number,
                now.time_ms if now is not None else None,
                between(before, now.after) if now is not None else (),
                number in committed,
                _pins(store, folder, number),
                _fates(store, folder, number),
                now.after if now is not None else (),
            )
        )
        earlier = now
    return found[::-1][:most]


def open_batches(store: Store, folder: str) -> list[int]:
    """Planned and not committed."""
    committed = set(_numbers(store, f"{folder}/commits"))
    last = max(committed, default=-1)
    return [number for number in _numbers(store, f"{folder}/offsets") if number > last]


def _pins(store: Store, folder: str, number: int) -> Pins | None:
    """None also for a file that Penstock would not write so."""
    try:
        pins = read_pins(store, folder, number)
    except TypeError:
        return None
    if pins is None or not isinstance(pins.definition, str) or not isinstance(pins.lookups, dict):
        return None
    now = pins.watermark.now if pins.watermark is not None else None
    return pins if now is None or isinstance(now, int) else None


def _fates(store: Store, folder: str, number: int) -> Fates:
    found = read_fates(store, folder, number)
    return {name: count for name, count in found.items() if isinstance(count, int)}


def _numbers(store: Store, folder: str) -> list[int]:
    return sorted(int(name) for name in store.names(folder) if name.isdigit())
