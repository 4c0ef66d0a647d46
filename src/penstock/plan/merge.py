"""Which of two changes of a row wins: by the definition in the project, or by what the source itself provides."""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.plan.model import Setting
from penstock.plan.stages import MergePlan
from penstock.spec.delta_source import ChangesFrom
from penstock.spec.graph import keys_of
from penstock.spec.project import Project
from penstock.spec.table import Table
from penstock.spec.table_kinds import KEEP_DELETED, Merge

_PREIMAGE = "_change_type = 'update_preimage'"


@dataclass(frozen=True)
class MergeDefaults:
    """What a source itself provides; the expressions are those of MergePlan."""

    sequence: str = ""
    deleted: str = "false"
    time: str | None = None
    but: tuple[str, ...] = ()
    truncate: str | None = None


CHANGE_FEED_DEFAULTS = MergeDefaults(
    sequence="named_struct('version', _commit_version, 'kind', IF(_change_type = 'delete', 0, 1))",
    deleted="_change_type = 'delete'",
    time="_commit_timestamp",
    but=("_change_type", "_commit_version", "_commit_timestamp"),
)
_DEBEZIUM_DEFAULTS = MergeDefaults(
    "_position", "_op = 'd'", "_changed_at", ("_op", "_changed_at", "_position"), "_op = 't'"
)


def merge_plan(project: Project, table: Table) -> MergePlan | None:
    merge = table.write.merge
    if merge is None:
        return None
    defaults = _source_defaults(table)
    return MergePlan(
        keys=keys_of(table, project.tables),
        sequence=merge.sequence or merge.from_snapshot or defaults.sequence,
        deleted=merge.delete_when or defaults.deleted,
        history=merge.history,
        ignore=_PREIMAGE if isinstance(table.source, ChangesFrom) else None,
        time=_time(merge, defaults),
        truncate=defaults.truncate,
        snapshot=merge.from_snapshot,
        ignore_nulls=merge.ignore_null_updates,
        only=merge.columns.only,
        but=(*merge.columns.but, *defaults.but),
        keep_deleted_ms=_keep_deleted_ms(merge),
    )


def _keep_deleted_ms(merge: Merge) -> int | None:
    if merge.history == "scd2" or merge.keep_deleted == math.inf:
        return None
    return round((KEEP_DELETED if merge.keep_deleted is None else merge.keep_deleted) * 1000)


def _source_defaults(table: Table) -> MergeDefaults:
    if isinstance(table.source, ChangesFrom):
        return CHANGE_FEED_DEFAULTS
    debezium = table.decode is not None and table.decode.debezium is not None
    return _DEBEZIUM_DEFAULTS if debezium else MergeDefaults()


def _time(merge: Merge, defaults: MergeDefaults) -> str | None:
    """The expression for when a version becomes valid; None: its sequence."""
    if merge.history != "scd2" or merge.time is not None or merge.sequence is not None:
        return merge.time
    return defaults.time


PROPERTY = "penstock.merge"
TOMBSTONES_PROPERTY, SEPARATE = "penstock.tombstones", "separate"
"""Marks a table that holds live rows only. Older tables keep their tombstones among their rows."""


def merge_description(plan: MergePlan) -> str:
    """What must never change for a table: rows merged on other keys could not be matched on the new ones."""
    nulls = ", nulls ignored" if plan.ignore_nulls else ""
    return f"{plan.history} by {', '.join(key.casefold() for key in plan.keys)}{nulls}"


def merge_properties(plan: MergePlan | None) -> tuple[Setting, ...]:
    if plan is None:
        return ()
    why = "kept with the table: by other keys, or with another history, its rows would be others"
    return (
        Setting(PROPERTY, merge_description(plan), why),
        Setting(TOMBSTONES_PROPERTY, SEPARATE, "deleted rows are not in the table: a table beside it remembers them"),
    )


def merge_settings(plan: MergePlan | None) -> tuple[Setting, ...]:
    if plan is None:
        return ()
    settings = [
        Setting("merge by", ", ".join(plan.keys), f"of several changes the newest by ({plan.sequence}, _source) wins"),
    ]
    if plan.deletes:
        retention, why = "forever", "no change from before a delete brings its row back, however late it comes"
        if plan.keep_deleted_ms is not None:
            retention = f"{plan.keep_deleted_ms / 86_400_000:g} days"
            why = "a change from before a delete that comes later than that brings its row back"
        settings.append(Setting("keep_deleted", retention, why))
    return tuple(settings)
