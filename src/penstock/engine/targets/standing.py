"""How far a target has come, as it says itself, beside what the sink's ledger says.

The target's word is written with the rows; the ledger follows. So the target may be one batch ahead: the process died
in between. Anything else is another hand's work: a backup that was put back, a second runner, a table emptied.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.position import same
from penstock.errors import TableChanged

_AGAIN = "`penstock checkpoints reset {sink} --to earliest` sends all of the table again, --to version:N from there on"


@dataclass(frozen=True)
class Standing:
    ledger: str
    generation: int
    batch: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    changes: int
    """Sent by its last batch."""

    @property
    def key(self) -> tuple[int, int]:
        return (self.generation, self.batch)


def parse_standing(parts: Sequence[str]) -> Standing | None:
    """Ledger, generation, batch, before, after, changes; None if there are none."""
    if not parts or not parts[0]:
        return None
    ledger, generation, batch, before, after, changes = parts
    return Standing(ledger, int(generation), int(batch), _position(before), _position(after), int(changes))


def dump_position(position: tuple[str, ...]) -> str:
    return json.dumps(position, separators=(",", ":"))


def refuse_other(found: Standing | None, last: Entry, target: str) -> None:
    """At a start: raises TableChanged unless the target stands where the ledger ends, or one batch further."""
    sink = last.table
    if found is None:
        moved = not _same(last.before, last.after)
        if last.batch == 0 and (moved or last.counts.total == 0):  # nothing was sent, or a person chose where to begin
            return
        raise TableChanged(
            f"{target} does not know this sink, which has sent it {last.counts.total:,} changes or more: it was "
            "replaced or emptied",
            where=sink,
            hint=_AGAIN.format(sink=sink),
        )
    _refuse_other_ledger(found, last, target)
    ahead = _same(found.before, last.after)
    if found.generation == last.generation:
        if found.batch == last.batch and _same(found.after, last.after):
            return
        if found.batch == last.batch + 1 and ahead:
            return
    elif found.generation < last.generation and last.batch == 0:
        chosen = not _same(last.before, last.after)
        if chosen or ahead or _same(found.after, last.after):
            return
    raise TableChanged(
        f"{target} stands at batch {found.generation}.{found.batch}, and the sink's ledger ends with batch "
        f"{last.generation}.{last.batch}: one of them was put back to an older state, or another process writes there",
        where=sink,
        hint=_AGAIN.format(sink=sink),
    )


def already_there(found: Standing | None, entry: Entry, target: str) -> bool:
    """Before a batch: whether it is in the target. Raises TableChanged if the target is not where it begins."""
    if found is None:
        return False
    _refuse_other_ledger(found, entry, target)
    if found.key == entry.key and _same(found.before, entry.before):
        # With another end it was planned anew after its checkpoint was lost. Sent over what is there, every key that it
        # holds comes to its last state; if it has become shorter, the batches after it bring the rest again.
        return _same(found.after, entry.after)
    follows = found.key == (entry.generation, entry.batch - 1) and _same(found.after, entry.before)
    if follows or (found.generation < entry.generation and entry.batch == 1):
        return False
    raise TableChanged(
        f"{target} stands at batch {found.generation}.{found.batch}, so batch {entry.generation}.{entry.batch} was not "
        "sent: another process writes there",
        where=entry.table,
        hint="stop the other one; then start this sink again",
    )


def _refuse_other_ledger(found: Standing, entry: Entry, target: str) -> None:
    if found.ledger != entry.ledger:
        raise TableChanged(
            f"{target} belongs to another sink {entry.table}: that of another lake, or of this one before it was made "
            "anew",
            where=entry.table,
            hint="give one of them another name or another target; or, if the other one is gone, empty the target and "
            f"remove its line: DELETE FROM penstock_positions WHERE sink = '{entry.table}'",
        )


def _same(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return len(one) == len(other) and all(map(same, one, other))


def _position(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))
