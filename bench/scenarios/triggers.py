"""Whether a table was served in every trigger, from the moments of its commits alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def missed(commits: Sequence[float], start: float, end: float, interval: float) -> int:
    """Triggers between start and end that left no commit, while records kept coming.

    Commits of triggers that follow each other lie one interval apart, give or take how long a batch takes: so each gap,
    from the last commit before `start` to the first after `end`, is rounded to whole intervals. Counting commits in
    fixed windows would punish a batch that happens to end on the edge of one.
    """
    before = max((moment for moment in commits if moment <= start), default=start)
    after = min((moment for moment in commits if moment >= end), default=end)
    inside = [moment for moment in commits if start < moment < end]
    return sum(max(0, round((b - a) / interval) - 1) for a, b in pairwise([before, *inside, after]))
