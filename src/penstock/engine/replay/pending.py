"""What a generation that was opened for a replay still owes. It stands in the ledger, so that whoever starts the table
next can finish it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.position import Offsets

_REPLAY, _SETTLE = "replay", "settle"


@dataclass(frozen=True)
class Replay:
    """Its end is the position at which the generation was opened."""

    since: int
    """The generation before it, which counts until the table is filled."""
    position: tuple[str, ...]
    """Where the table was then."""
    at: int | None = None
    """The version of the table upstream that is read; None: what the table had read of it."""


def document(replay: Replay) -> dict[str, Any]:
    return {_REPLAY: {"since": replay.since, "position": list(replay.position), "at": replay.at}}


def pending_replay(entry: Entry) -> Replay | None:
    """None if nothing is owed."""
    asked = entry.pending.get(_REPLAY)
    return None if asked is None else Replay(asked["since"], tuple(asked["position"]), asked.get("at"))


def settling(kept: str | None, held: Offsets | None) -> dict[str, Any]:
    """What a fill itself owes: its quarantine still has rejected rows from before. `kept` is a condition upon those
    that stay: of records from before `held`."""
    return {_SETTLE: {"kept": kept, "held": held}}


def held_of(entry: Entry) -> Offsets | None:
    """Of a fill: the first offsets that it read; None if those are where the table began."""
    held = entry.pending.get(_SETTLE, {}).get("held")
    return None if held is None else {topic: {int(p): o for p, o in parts.items()} for topic, parts in held.items()}


def owes_settling(entry: Entry) -> bool:
    return _SETTLE in entry.pending


def kept_of(entry: Entry) -> str | None:
    kept = entry.pending[_SETTLE]["kept"]
    return None if kept is None else str(kept)
