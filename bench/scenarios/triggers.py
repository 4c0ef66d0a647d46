"""Whether a table was served in every trigger, from the moments of its commits alone."""

from __future__ import annotations

from collections.abc import Sequence


def missed(commits: Sequence[float], start: float, end: float, interval: float) -> int:
    """Triggers between start and end that left no commit, while records kept coming.

    From the last commit before `start` to the first after `end` there must be one commit per interval. Only these two
    moments are rounded: a batch that takes long comes late, and the next one is in time again. Fixed windows would
    punish a batch that happens to end on the edge of one.
    """
    first = max((moment for moment in commits if moment <= start), default=start)
    last = min((moment for moment in commits if moment >= end), default=end)
    made = sum(first < moment <= last for moment in commits)
    return max(0, round((last - first) / interval) - made)
