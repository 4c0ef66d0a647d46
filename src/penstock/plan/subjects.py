"""Where the rows of a table identify their subjects, and where forgotten subjects are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from penstock.spec.columns import table_columns
from penstock.spec.delta_source import ChangesFrom, TableFrom
from penstock.spec.project import Project
from penstock.spec.table import Table

FORGOTTEN = "penstock.forgotten"
"""The only header of a redacted record."""
_BINARY_COLUMNS = {"key": "key_binary", "value": "value_binary"}
"""The column that takes a value which is not UTF-8."""


@dataclass(frozen=True)
class SubjectColumnPlan:
    column: str
    """May name a field of a struct: customer.id."""
    path: str | None = None
    """A path into the JSON that the column holds; None: the column itself identifies the subject."""

    @property
    def top(self) -> str:
        return self.column.partition(".")[0]


Subjects = Mapping[str, tuple[SubjectColumnPlan, ...]]
"""Subject name -> its places."""


@dataclass(frozen=True)
class SubjectHoldings:
    """What rows hold about subjects."""

    subjects: Subjects = field(default_factory=dict)
    headers: str | None = None
    """For raw records: the column of headers, one of which marks a redacted record."""


@dataclass(frozen=True)
class ForgetPlan:
    """`folder` has a document for each forgotten subject; `key` is the key of their hashes, None if it is kept beside
    them."""

    folder: str
    key: SecretStr | None = None


def forget_plan(project: Project, lake: str) -> ForgetPlan | None:
    """None if no table declares subjects: nothing can be forgotten, and nothing is searched."""
    if not any(table.subjects for table in project.tables.values()):
        return None
    return ForgetPlan(f"{lake}/_penstock/forget", project.forget.key)


def subjects_plan(table: Table) -> dict[str, tuple[SubjectColumnPlan, ...]]:
    """The places that a table declares, and those where the same values go if they are not text."""
    return {
        subject: tuple(
            dict.fromkeys(
                place
                for column in places
                for place in (
                    SubjectColumnPlan(column.column_path, column.path),
                    *_binary_places(table, column.column_path, column.path),
                )
            )
        )
        for subject, places in table.subjects.items()
    }


def _binary_places(table: Table, column: str, path: str | None) -> tuple[SubjectColumnPlan, ...]:
    if not table.source.of_topics:
        return ()
    names = table_columns(table.columns, table.payload)
    return tuple(
        SubjectColumnPlan(names[binary_name], path)
        for text_name, binary_name in _BINARY_COLUMNS.items()
        if names.get(text_name, "").casefold() == column.casefold() and binary_name in names
    )


def subjects_of_table(project: Project, name: str | None) -> SubjectHoldings:
    """What the rows of a table of the project hold about subjects, for the readers of the table."""
    table = project.tables.get(name) if name is not None else None
    if table is None:
        return SubjectHoldings()
    return SubjectHoldings(subjects_plan(table), _headers_column(project, table))


def _headers_column(project: Project, table: Table) -> str | None:
    """The column of headers, if rows are raw records: landed, or passed on by tables without stages."""
    if table.staged or table.aggregate is not None or table.stream is not None:
        return None
    if table.source.of_topics:
        return table_columns(table.columns, table.payload)["headers"]
    if isinstance(table.source, TableFrom | ChangesFrom) and table.source.table is not None:
        return _headers_column(project, project.tables[table.source.table])
    return None
