"""Versions of a table from before somebody was forgotten: nothing reads them any more, nothing goes back to them."""

from __future__ import annotations

from penstock.engine.protocol.log import Commit, DeltaLog


def forgets(commit: Commit) -> bool:
    """Whether rows of somebody went with it."""
    return commit.entry is not None and commit.entry.kind == "forget" and commit.changes


def forgotten_since(log: DeltaLog) -> int | None:
    """The newest version in which somebody was forgotten; no version before it can be gone back to. None: nobody was,
    as far as the log goes back."""
    return next((commit.version for commit in log.backwards() if forgets(commit)), None)


def forgotten_after(log: DeltaLog, version: int) -> int | None:
    """The first version after this one in which somebody was forgotten."""
    return next((commit.version for commit in log.since(version) if forgets(commit)), None)
