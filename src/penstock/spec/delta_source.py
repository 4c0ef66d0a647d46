"""Delta tables as sources: another table of the project, or any Delta table by its path."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from penstock.spec.base_model import SourceFrom, SourceStart, wrong
from penstock.spec.quantity import ByteCount, Instant


def is_path(name: str) -> bool:
    """Whether this is the path of a Delta table, not the name of a table of the project."""
    return "/" in name


class VersionStart(SourceStart):
    at: Literal["earliest", "latest"] | None = None
    version: int | None = Field(default=None, ge=0, examples=["10"])
    timestamp: Instant | None = None

    starts: ClassVar[str] = "table"
    shape: ClassVar[str] = "earliest, latest, {version: 10} or {timestamp: 2026-01-01T00:00:00Z}"


class TableFrom(SourceFrom):
    """Another table of the project. It is read as it grows; what changes rows there is skipped and reported."""

    table: str = Field(min_length=1, examples=["bronze.orders"])
    where: str | None = Field(default=None, min_length=1, examples=["topic = 'orders'"])
    starting: VersionStart = VersionStart(at="earliest")
    max_files: int | None = Field(default=None, ge=1)
    max_bytes: ByteCount | None = None

    moved: ClassVar[dict[str, str]] = dict.fromkeys(
        ("ignore_deletes", "ignore_changes", "skip_change_commits"),
        "remove it: commits that change rows of a table of the project are skipped already, and reported; the three "
        "keys are for tables by their path, {delta: …}",
    )
    kind: ClassVar[str] = "table"
    shape: ClassVar[str] = "from: {table: bronze.orders}"

    @property
    def input_name(self) -> str:
        return self.table.rpartition(".")[2].replace("-", "_")

    @property
    def project_table(self) -> str:
        return self.table


class ChangesFrom(SourceFrom):
    """What changes in a table: inserted, updated and deleted rows, from its change feed. A table of the project, or any
    by its path."""

    changes: str = Field(min_length=1, examples=["silver.customers"])
    starting: VersionStart = VersionStart(at="earliest")
    max_files: int | None = Field(default=None, ge=1)
    max_bytes: ByteCount | None = None

    moved: ClassVar[dict[str, str]] = {
        "where": "a row that leaves the condition would stay where its changes go: make a table of those rows first",
        **dict.fromkeys(
            ("ignore_deletes", "ignore_changes", "skip_change_commits"),
            "remove it: a change feed tells every change, so nothing stops it",
        ),
    }
    kind: ClassVar[str] = "changes"
    shape: ClassVar[str] = "from: {changes: silver.customers}"

    @property
    def table(self) -> str | None:
        """Its name if it is a table of the project."""
        return None if is_path(self.changes) else self.changes

    @property
    def input_name(self) -> str:
        return self.changes.rpartition(".")[2].replace("-", "_") if self.table else "input"

    @property
    def project_table(self) -> str | None:
        return self.table


class DeltaFrom(SourceFrom):
    """Any Delta table by its path. Nobody promises that it only grows: without one of the three switches, which are
    those of Delta itself, a commit that changes rows stops the table."""

    delta: str = Field(min_length=1, examples=["/data/orders"])
    where: str | None = Field(default=None, min_length=1, examples=["country = 'DE'"])
    starting: VersionStart = VersionStart(at="earliest")
    max_files: int | None = Field(default=None, ge=1)
    max_bytes: ByteCount | None = None
    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False

    moved: ClassVar[dict[str, str]] = {
        "ignoreDeletes": "write ignore_deletes: true",
        "ignoreChanges": "write ignore_changes: true",
        "skipChangeCommits": "write skip_change_commits: true",
    }

    @model_validator(mode="after")
    def _check_switches(self) -> DeltaFrom:
        """`ignore_changes` covers what `ignore_deletes` does, in Delta and here, so these two may be combined."""
        for other, why in (
            ("ignore_changes", "one skips rewritten files, the other reads them again"),
            ("ignore_deletes", "skip_change_commits covers commits that delete rows already"),
        ):
            if self.skip_change_commits and getattr(self, other):
                raise wrong(
                    f"'skip_change_commits' and '{other}' cannot be used together: {why}",
                    f"remove {other}, or skip_change_commits",
                    "skip_change_commits",
                    at_key=True,
                )
        return self

    kind: ClassVar[str] = "delta"
    shape: ClassVar[str] = "from: {delta: /path/to/table}"
