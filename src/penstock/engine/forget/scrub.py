"""Names that a table's log has in clear: the least and the greatest value of a file's columns, and what others wrote
into a commit. The text of a commit without them, everything else as it was: the ledger stays whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.engine.forget.needle import Needle

_BOUNDS = ("minValues", "maxValues")
_ACTIONS = ("add", "remove", "cdc")
_PREFIX = 32
"""Delta's statistics have the first characters of a text only."""


@dataclass(frozen=True)
class Sought:
    """Who is looked for in the log of one table."""

    needles: tuple[Needle, ...]
    names: tuple[str, ...]
    """The values themselves, for what statistics cut off."""
    columns: frozenset[str]
    """Those that hold names, with no fields below them: in these digits alone count too."""

    def in_bounds(self, column: str, value: Any) -> bool:
        if isinstance(value, dict):
            return any(self.in_bounds(column, inner) for inner in value.values())
        text = value if isinstance(value, str) else json.dumps(value)
        known = column.casefold() in self.columns
        if any(one.in_text(text) for one in self.needles if known or one.telling):
            return True
        return len(text) >= _PREFIX and any(name.startswith(text[:_PREFIX]) for name in self.names)


def statistics_hold(stats: str | None, sought: Sought) -> bool:
    """Of a file, as its `add` has them."""
    bounds = _parsed(stats)
    return any(
        sought.in_bounds(column, value) for kind in _BOUNDS for column, value in (bounds.get(kind) or {}).items()
    )


def without_bounds(stats: str) -> str:
    """Without any least and greatest values: a reader then looks into the file. To take out some of them only, numbers
    would have to be written anew, and might not be the same."""
    document = {name: value for name, value in _parsed(stats).items() if name not in _BOUNDS}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def scrubbed(text: str, sought: Sought) -> str | None:
    """The text of a commit, or of a compacted log, without the names; None if it has none."""
    changed = False
    lines = text.split("\n")  # not splitlines: JSON leaves U+2028 in a value as it is
    for index, line in enumerate(lines):
        made = _line(line, sought) if line else None
        if made is not None:
            lines[index], changed = made, True
    return "\n".join(lines) if changed else None


def names_left(text: str, sought: Sought) -> bool:
    """Whether a commit, a version's checksum or any JSON of the log holds a name."""
    return any(_holds(json.loads(line), line, sought) for line in text.split("\n") if line)


def _line(line: str, sought: Sought) -> str | None:
    action = json.loads(line)
    if not _holds(action, line, sought):
        return None
    for kind in _ACTIONS:
        about = action.get(kind)
        if about is not None and about.get("stats") and statistics_hold(about["stats"], sought):
            about["stats"] = without_bounds(about["stats"])
    made = json.dumps(action, separators=(",", ":"), ensure_ascii=False)
    for needle in sought.needles:
        if needle.telling:
            made = needle.masked(made)
    return made


def _holds(action: Any, line: str, sought: Sought) -> bool:
    if any(one.telling and one.in_text(line) for one in sought.needles):
        return True
    return any(statistics_hold(stats, sought) for stats in _statistics(action))


def _statistics(found: Any) -> Iterable[str]:
    """Wherever they stand: in an action, or among the files that a checksum lists."""
    if isinstance(found, dict):
        for name, value in found.items():
            if name == "stats" and isinstance(value, str):
                yield value
            else:
                yield from _statistics(value)
    elif isinstance(found, Sequence) and not isinstance(found, str):
        for one in found:
            yield from _statistics(one)


def _parsed(stats: str | None) -> dict[str, Any]:
    try:
        found = json.loads(stats or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
