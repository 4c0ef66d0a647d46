"""What of a table can be compared with its source by Spark, and what cannot; decided without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from penstock.plan.merge import CHANGE_FEED_DEFAULTS
from penstock.plan.stages import KEY, SEQUENCE
from penstock.verify.report import Proof

if TYPE_CHECKING:
    from penstock.plan.model import TablePlan

CheckName = Literal["numbers", "copy", "changes", "merge"]
"""numbers: of an aggregate, computed again. copy: of a table that follows the changes of another. changes: of an audit
table, counted. merge: of a merged table, its changes folded again."""


ALIVE = "NOT _deleted"
"""Condition for the visible rows of a merged table, for a reader without Spark."""


def applicable_check(table: TablePlan) -> CheckName | None:
    if table.aggregate is not None:
        return "numbers"
    if not _follows_changes(table) or why_not(table) is not None:
        return "merge" if table.write.merge is not None else None
    return "copy" if table.write.merge is not None else "changes"


def why_not(table: TablePlan) -> str | None:
    """Why the rows of a table or sink that follows changes are not those of the table that it follows; None if they
    are."""
    if table.sink is not None:
        return f"what is in {table.sink.name} is not read"
    stages, merge = table.stages, table.write.merge
    if stages is None or (merge is None and stages.audit is None):
        return "its rows tell changes, as its own sql or transform makes them"
    if stages.transform is not None or stages.lookups:
        return "its own sql or transform decides its rows"
    if stages.dedupe is not None or any(expectation.name not in (KEY, SEQUENCE) for expectation in stages.expect):
        return "its own rules decide which changes it takes"
    if merge is not None and merge.ignore_nulls:
        return "NULL keeps the value that was there"
    if merge is not None and (merge.sequence, merge.deleted) != (
        CHANGE_FEED_DEFAULTS.sequence,
        CHANGE_FEED_DEFAULTS.deleted,
    ):
        return "it decides by itself which change is the newest, and which one deletes"
    return None


def pending_check(table: TablePlan, version: int) -> Proof | None:
    """The entry in the report until the check is made; None if there is no such check for the table."""
    source, check_name = table.versions, applicable_check(table)
    subject = f"{table.name} version {version}"
    if check_name == "merge":
        return Proof(check_name, subject, "its changes", "not made", "its changes are not folded again", unit="rows")
    if source is None or (check_name is None and not _follows_changes(table)):
        return None
    upstream = source.label
    if check_name == "numbers":
        return Proof("numbers", subject, upstream, "not made", "the numbers are not computed again", unit="groups")
    reason = why_not(table)
    result = f"not compared with {upstream}" + (f": {reason}" if reason else "")
    return Proof(check_name or "copy", subject, upstream, "not made", result, unit="rows")


def _follows_changes(table: TablePlan) -> bool:
    return table.source.follows_changes and table.aggregate is None
