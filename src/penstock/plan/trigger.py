"""When a table takes its batches, and why then."""

from __future__ import annotations

from penstock.plan.model import Trigger
from penstock.plan.settings import YOURS
from penstock.spec import trigger as spec
from penstock.spec.quantity import duration_text

DEFAULT_SECONDS = 30.0
_SHARE_OF_SLA = 3


def trigger_plan(own: spec.Trigger | None, default: spec.Trigger | None) -> Trigger:
    """The table's own, else the project's default, else 30 seconds."""
    given, whose = (own, YOURS) if own else (default, "the project's default")
    if given is None:
        return Trigger("interval", DEFAULT_SECONDS, "the default: fresh enough for most, and few small files")
    if given.kind == "once":
        return Trigger("once", None, f"{whose}: one batch of all there is, whatever max_per_trigger says")
    if given.kind == "available-now":
        return Trigger("available-now", None, f"{whose}: what is there at the start, in batches, then it ends")
    assert given.seconds is not None
    if given.kind == "sla":
        why = f"a third of the SLA of {duration_text(given.seconds)} ({whose}): one batch may fail and another run late"
        return Trigger("interval", given.seconds / _SHARE_OF_SLA, why, given.seconds)
    return Trigger("interval", given.seconds, whose)
