"""Work that a ledger still owes: an unfinished replay or rewind, where the table began, and when a subject was last
forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.errors import Terminal

if TYPE_CHECKING:
    from penstock.ledger.delta_log import Commit, DeltaLog
    from penstock.ledger.entry import Entry
    from penstock.ledger.position import Offsets

# Where a table began to read. Every entry carries it; older ledgers have it only in their first one.


def start_position(log: DeltaLog, entry: Entry) -> tuple[str, ...]:
    if entry.began:
        return entry.began
    first: Entry | None = None
    for commit in log.backwards():
        if commit.entry is not None:
            first = commit.entry
    if first is None or first.kind != "genesis" or dict(first.subscription) != dict(entry.subscription):
        raise Terminal(
            "its start position is no longer in its log, or it read another source before: what it was made of is "
            "unknown",
            where=log.table,
            hint="start over: `penstock checkpoints reset` to a position of your choice",
        )
    return first.after


# What a generation that was opened for a replay still owes. It is in the ledger, so that whoever starts the table next
# can finish it.


_REPLAY, _SETTLE = "replay", "settle"


@dataclass(frozen=True)
class Replay:
    """It ends at the position at which the generation was opened."""

    since: int
    """The generation before it, which counts until the table is filled."""
    position: tuple[str, ...]
    """The table's position at that time."""
    at: int | None = None
    """The version of the upstream table to read; None: what the table had read of it."""


def replay_document(replay: Replay) -> dict[str, Any]:
    return {_REPLAY: {"since": replay.since, "position": list(replay.position), "at": replay.at}}


def pending_replay(entry: Entry) -> Replay | None:
    """None if no replay is pending."""
    pending = entry.pending.get(_REPLAY)
    return None if pending is None else Replay(pending["since"], tuple(pending["position"]), pending.get("at"))


def settle_document(kept_condition: str | None, first_offsets: Offsets | None) -> dict[str, Any]:
    """What a fill itself owes: its quarantine still has rejected rows from before. `kept_condition` selects those that
    stay: records from before `first_offsets`."""
    return {_SETTLE: {"kept": kept_condition, "held": first_offsets}}


def first_offsets_of(entry: Entry) -> Offsets | None:
    """For a fill: the first offsets that it read; None if those are where the table began."""
    offsets = entry.pending.get(_SETTLE, {}).get("held")
    return (
        None if offsets is None else {topic: {int(p): o for p, o in parts.items()} for topic, parts in offsets.items()}
    )


def owes_settling(entry: Entry) -> bool:
    return _SETTLE in entry.pending


def kept_condition_of(entry: Entry) -> str | None:
    condition = entry.pending[_SETTLE]["kept"]
    return None if condition is None else str(condition)


# What is owed because of a rewind. It is in the ledgers, so that whoever starts a table next can finish it.
#
# The table itself still has to restore its earlier rows. A table that reads it, and had not read beyond that version,
# is stopped before it and owes a jump: over the versions whose rows are gone, which a stream would read all the same.


_REWIND, _HALT, _UNTIL = "rewind", "halt", "until"


@dataclass(frozen=True)
class Rewind:
    version: int
    since: int
    """The generation before it, which counts until the table is restored."""
    position: tuple[str, ...]
    """The table's position at that time."""


@dataclass(frozen=True)
class Halt:
    """For a reader: it waits for the table that it reads to be rewound."""

    seen: int
    """The newest version of that table when the reader was stopped."""


@dataclass(frozen=True)
class Until:
    """For a reader: it reads up to one position, and continues at another."""

    at: str
    to: str
    base: int
    """The upstream version that the rows then count as made from."""


def rewind_document(rewind: Rewind) -> dict[str, Any]:
    return {_REWIND: {"version": rewind.version, "since": rewind.since, "position": list(rewind.position)}}


def pending_rewind(entry: Entry) -> Rewind | None:
    pending = entry.pending.get(_REWIND)
    return None if pending is None else Rewind(pending["version"], pending["since"], tuple(pending["position"]))


def halt_document(halt: Halt) -> dict[str, Any]:
    return {_HALT: {"seen": halt.seen}}


def pending_halt(entry: Entry) -> Halt | None:
    pending = entry.pending.get(_HALT)
    return None if pending is None else Halt(pending["seen"])


def until_document(until: Until) -> dict[str, Any]:
    return {_UNTIL: {"at": until.at, "to": until.to, "base": until.base}}


def pending_until(entry: Entry) -> Until | None:
    pending = entry.pending.get(_UNTIL)
    return None if pending is None else Until(pending["at"], pending["to"], pending["base"])


def owes_jump(entry: Entry) -> bool:
    return _HALT in entry.pending or _UNTIL in entry.pending


# Versions of a table from before a subject was forgotten: nothing reads them or goes back to them any more.


def removes_subject(commit: Commit) -> bool:
    """Whether the commit removed rows of a forgotten subject."""
    return commit.entry is not None and commit.entry.kind == "forget" and commit.changes


def forgotten_since(log: DeltaLog) -> int | None:
    """The newest version in which a subject was forgotten; no version before it can be restored. None: there is none,
    as far as the log reaches back."""
    return next((commit.version for commit in log.backwards() if removes_subject(commit)), None)


def forgotten_after(log: DeltaLog, version: int) -> int | None:
    """The first version after this one in which a subject was forgotten."""
    return next((commit.version for commit in log.since(version) if removes_subject(commit)), None)
