"""Runners that were started before the project file was last changed: they may not know where tables hold names, and
would land again whom this command forgets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from penstock.engine.protocol.locks import holder, lock_path, owner
from penstock.plan.model import Plan, TablePlan
from penstock.spec.load import FILE


def outdated(plan: Plan, tables: Sequence[TablePlan]) -> dict[str, str]:
    """By table: who runs it, and since when. On an object store nobody can tell."""
    if not plan.local:
        return {}
    try:
        changed = datetime.fromtimestamp((Path(plan.root) / FILE).stat().st_mtime, tz=UTC)
    except OSError:  # a project that was made in Python
        return {}
    found = {}
    for table in tables:
        path = lock_path(plan.system, table.name, "run")
        process = holder(path)
        since = _time(owner(path).get("since")) if process is not None else None
        if since is not None and since < changed.replace(microsecond=0):
            found[table.name] = (
                f"process {process} has run it since {since:%Y-%m-%d %H:%M:%S}, and {FILE} was changed after that: "
                "it may not know of this subject. Start it again, then give this command again"
            )
    return found


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
