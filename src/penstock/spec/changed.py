"""What fits a table that merges changes, or that reads those of another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spec.finding import Finding
from penstock.spec.folder import FilesFrom
from penstock.spec.upstream import ChangesFrom

if TYPE_CHECKING:
    from penstock.spec.table import Table


def merge_findings(table: Table) -> list[Finding]:
    merge = table.write.merge
    assert merge is not None
    path = ("write", "merge")
    findings: list[Finding] = []
    if table.aggregate is not None:
        hint = "its groups are changed in place already: remove merge"
        findings.append(Finding(path, "an aggregate is not merged", hint, at_key=True))
    if table.audit is not None:
        findings.append(Finding(path, "an audit table only grows", "remove merge", at_key=True))
    if table.dedupe is not None:
        hint = "remove it: of several changes with one key the newest wins, however often each arrives"
        findings.append(Finding(("dedupe",), "a merged table has no dedupe of its own", hint, at_key=True))
    follows = isinstance(table.source, ChangesFrom)
    if not merge.keys and not follows:
        findings.append(Finding(path, "'keys' is missing", "write keys: [customer_id]", at_key=True))
    if merge.from_snapshot is not None and not isinstance(table.source, FilesFrom):
        hint = "an extract is one file: from: {files: extracts, format: csv}"
        findings.append(Finding((*path, "from_snapshot"), "'from_snapshot' reads files", hint, at_key=True))
    ordered = merge.sequence is not None or merge.from_snapshot is not None
    if not ordered and not follows and not _ordered_by_itself(table):
        hint = "write sequence: updated_at, or another column that grows with each change of a row"
        findings.append(Finding(path, "'sequence' is missing: which of two changes is the newer?", hint, at_key=True))
    return findings


def _ordered_by_itself(table: Table) -> bool:
    return table.decode is not None and table.decode.debezium is not None


def changes_findings(table: Table) -> list[Finding]:
    if not isinstance(table.source, ChangesFrom):
        hint = "write from: {changes: silver.customers}"
        return [Finding(("audit",), "an audit table tells the changes of a table", hint, at_key=True)]
    findings: list[Finding] = []
    if table.decode is not None:
        findings.append(Finding(("decode",), "changes of a table are rows already", "remove it", at_key=True))
    if table.aggregate is not None and table.aggregate.emit == "final":
        hint = "write emit: updates; or read the rows as they are added: from: {table: …}"
        findings.append(Finding(("aggregate", "emit"), "a window that was closed cannot follow changes", hint))
    if table.audit is not None:
        findings += [
            Finding(
                (key,), f"an audit table has no {key} of its own", "make it in a table that reads this one", at_key=True
            )
            for key in ("transform", "sql", "lookups", "expect", "dedupe", "aggregate")
            if getattr(table, key)
        ]
    return findings
