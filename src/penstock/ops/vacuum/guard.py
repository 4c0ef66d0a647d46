"""How far a vacuum may go: the one place that decides which files nobody needs any more.

Delta's VACUUM keeps the files of the newest version, and those that were removed at a time or later. So whoever still
needs older files is told as a time, and the earliest of them is the horizon. Two things that Delta does not say itself
(both run): it rounds hours, so that 0.4 is none at all; and it knows which files were removed only for as long as the
table's property says, 7 days: it would delete a file that was removed earlier, however many hours it is told to retain.

No Spark, no clock, no files: commands that delete anything ask here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from penstock.spec.quantity import duration_text

HOUR_MS = 3_600_000
MARGIN_MS = 10 * 60_000
"""Between the look that decides and Delta's own look at the clock."""


@dataclass(frozen=True)
class Need:
    """Somebody, or something, that needs files which are no longer in the newest version."""

    who: str
    what: str
    """`has read up to version 7 of 12`: goes on from `who`."""
    since_ms: int | None
    """Files that were removed then or later. None: nobody can tell, so no file may go."""
    version: int | None = None
    """Of a reader: the oldest version that it reads."""
    first: int | None = None
    """Of a reader: the first version whose removed files it reads all the same."""
    changes: bool = False
    """Of a reader: it reads the files of the change feed as well."""
    window: bool = False
    """A length of time that a person chose, rather than a place in the table."""

    def __str__(self) -> str:
        return f"{self.who} {self.what}"


@dataclass(frozen=True)
class Horizon:
    table: str
    asked_ms: int
    at_ms: int | None
    """Files that were removed before may go; None: none may."""
    needs: tuple[Need, ...]
    """Everybody's, the one that goes back furthest first."""
    why: str | None = None
    """Why none may."""
    still: bool = False
    """No batch is at work on the table, and none will be before this is over."""

    @property
    def limits(self) -> tuple[Need, ...]:
        """The needs because of which less may go than was asked for."""
        return tuple(need for need in self.needs if need.since_ms is None or need.since_ms < self.asked_ms)

    @property
    def all_may_go(self) -> bool:
        """Whatever is not in the newest version."""
        return self.still and self.at_ms is not None and self.at_ms >= self.asked_ms


def horizon(table: str, asked_ms: int, needs: Sequence[Need], known_since_ms: int, *, still: bool = False) -> Horizon:
    """`asked_ms`: what was removed before then was asked to go. `known_since_ms`: Delta knows no earlier removal."""
    ordered = tuple(sorted(needs, key=lambda need: -1 if need.since_ms is None else need.since_ms))
    made = Horizon(table, asked_ms, None, ordered, still=still)
    unclear = next((need for need in ordered if need.since_ms is None), None)
    if unclear is not None:
        return _none(made, str(unclear))
    forgets = f"Delta has forgotten what was removed before {time_text(known_since_ms)}"
    for need in ordered:
        assert need.since_ms is not None
        early = (
            need.since_ms + MARGIN_MS < known_since_ms if need.window else need.since_ms < known_since_ms + MARGIN_MS
        )
        if early:
            return _none(made, f"{need}, and {forgets}")
    if asked_ms + MARGIN_MS < known_since_ms:
        return _none(made, f"what was removed before {time_text(asked_ms)} may go, and {forgets}")
    at = min([asked_ms, *(need.since_ms for need in ordered if need.since_ms is not None)])
    return replace(made, at_ms=at)


def hours(now_ms: int, made: Horizon) -> int:
    """What VACUUM is told so that it goes no further than the horizon: whole hours, never fewer. None at all only where
    all may go, and nobody writes."""
    assert made.at_ms is not None
    if made.all_may_go:
        return 0
    return max(1, -((made.at_ms - MARGIN_MS - now_ms) // HOUR_MS))


def time_text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")


def span_text(ms: int) -> str:
    """Rounded, as people say it: `7d`, `2h10m`."""
    seconds = max(0, round(ms / 1000))
    for unit, least in ((3600, 2 * 86400), (60, 7200)):
        if seconds >= least:
            seconds = round(seconds / unit) * unit
            break
    return duration_text(seconds) if seconds else "0s"


def _none(made: Horizon, why: str) -> Horizon:
    return replace(made, at_ms=None, why=why)
