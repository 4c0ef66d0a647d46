"""What the commits of a table say of their own rows: do their numbers fit each other?

A commit that says it changes no row must put as many rows in as it takes out; a batch of a table that only grows takes
none out; and each entry counts what the batch before it wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.engine.protocol.entry import Entry
from penstock.engine.protocol.ledger import Tail
from penstock.engine.protocol.log import Commit, Origin, read_commit
from penstock.engine.store import Store
from penstock.plan.model import TablePlan


def only_grows(table: TablePlan) -> bool:
    """Its batches add rows, and never take one out."""
    streamed = table.stream is not None and table.stream.output != "append"
    return table.write.merge is None and table.aggregate is None and not streamed


@dataclass
class _Files:
    """Rows of each file that is in the table, as far as the log tells: by path, None where it has no statistics."""

    rows: dict[str, int | None] = field(default_factory=dict)

    def taken(self, actions: list[dict[str, Any]]) -> int | None:
        """Rows of the files that a commit removes; None if one of them is not known."""
        paths = [one["remove"]["path"] for one in actions if "remove" in one]
        found = [self.rows.get(path) for path in paths]
        return None if None in found else sum(one or 0 for one in found)

    def follow(self, actions: list[dict[str, Any]]) -> None:
        for one in actions:
            if "remove" in one:
                self.rows.pop(one["remove"]["path"], None)
        for one in actions:
            if "add" in one:
                self.rows[one["add"]["path"]] = rows_of(one["add"])


def rows_of(add: Mapping[str, Any]) -> int | None:
    """Of a file, without those that a deletion vector has taken out."""
    stats = json.loads(add.get("stats") or "{}")
    gone = (add.get("deletionVector") or {}).get("cardinality", 0)
    return int(stats["numRecords"]) - int(gone) if "numRecords" in stats else None


def count_problems(store: Store, table: TablePlan, first: int, last: int) -> Iterator[str]:
    """Of the versions from `first` to `last`, which the log has without a hole."""
    files, before = _Files(), None
    grows = only_grows(table)
    for version in range(first, last + 1):
        text = store.read(f"{table.uri}/_delta_log/{version:020d}.json")
        if text is None:  # log retention took it meanwhile
            files, before = _Files(), None
            continue
        actions = [json.loads(line) for line in text.split("\n") if line]
        commit = read_commit(version, text, table.name)
        yield from _of_files(commit, actions, files, grows=grows and table.sink is None)
        files.follow(actions)
        entry = commit.entry if commit.origin is Origin.LEDGER else None
        if entry is not None:
            yield from _of_entries(before, commit, entry)
            before = (commit, entry)


def _of_files(commit: Commit, actions: list[dict[str, Any]], files: _Files, *, grows: bool) -> Iterator[str]:
    adds = [one["add"] for one in actions if "add" in one]
    removes = [one["remove"] for one in actions if "remove" in one]
    counts = [rows_of(add) for add in adds]
    put = None if None in counts else sum(one or 0 for one in counts)
    if (adds or removes) and not any(one["dataChange"] for one in (*adds, *removes)):
        taken = files.taken(actions)
        if taken is not None and put is not None and taken != put:
            yield (
                f"version {commit.version} ({commit.operation}) says that it changes no row, and puts {put:,} rows in "
                f"the place of {taken:,}"
            )
        return
    entry = commit.entry
    if entry is None or entry.kind != "batch" or commit.origin is not Origin.LEDGER or not grows:
        return
    named = f"version {commit.version} (batch {entry.generation}.{entry.batch})"
    if removes:
        yield f"{named} takes {len(removes):,} files out of a table that only grows"
    elif put is not None and entry.applied is None and put != commit.rows:
        yield f"{named} says that it wrote {commit.rows:,} rows, its files have {put:,}"


def _of_entries(before: tuple[Commit, Entry] | None, commit: Commit, entry: Entry) -> Iterator[str]:
    if before is None or entry.kind != "batch" or entry.generation != before[1].generation:
        return
    earlier, last = before
    if last.kind not in ("batch", "genesis", "carry") or last.key == entry.key:
        return
    total = Tail(last, earlier, ()).counts.total
    if entry.counts.total != total:
        yield (
            f"version {commit.version} (batch {entry.generation}.{entry.batch}) counts {entry.counts.total:,} rows "
            f"before it, the entry of version {earlier.version} makes that {total:,}"
        )
