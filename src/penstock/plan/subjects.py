"""Where the rows of a table say of whom they are, and where it is kept who shall be forgotten."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from penstock.spec.columns import table_columns
from penstock.spec.delta_source import ChangesFrom, TableFrom
from penstock.spec.project import Project
from penstock.spec.table import Table

FORGOTTEN = "penstock.forgotten"
"""The one header that a redacted record has."""
_BYTES = {"key": "key_binary", "value": "value_binary"}
"""Where what is not UTF-8 goes instead."""


@dataclass(frozen=True)
class SubjectColumnPlan:
    column: str
    """With the fields of structs below it: customer.id."""
    path: str | None = None
    """Into the JSON that the column holds; None: the column itself says it."""

    @property
    def top(self) -> str:
        return self.column.partition(".")[0]


Subjects = Mapping[str, tuple[SubjectColumnPlan, ...]]
"""By the name of the subject."""


@dataclass(frozen=True)
class Holds:
    """What rows hold of subjects."""

    subjects: Subjects = field(default_factory=dict)
    headers: str | None = None
    """Of records as they came: the column whose header says that a record was redacted."""


@dataclass(frozen=True)
class ForgetPlan:
    """`folder` has a document for each subject that was forgotten, `key` is what their hashes are made with; None: a
    key beside them."""

    folder: str
    key: SecretStr | None = None


def forget_plan(project: Project, lake: str) -> ForgetPlan | None:
    """None if no table knows of a subject: nothing can be forgotten, and nobody looks."""
    if not any(table.subjects for table in project.tables.values()):
        return None
    return ForgetPlan(f"{lake}/_penstock/forget", project.forget.key)


def subjects_plan(table: Table) -> dict[str, tuple[SubjectColumnPlan, ...]]:
    """The places that a table names, and those where the same bytes go if they are not text."""
    return {
        subject: tuple(
            dict.fromkeys(
                place
                for one in places
                for place in (SubjectColumnPlan(one.written, one.path), *_as_bytes(table, one.written, one.path))
            )
        )
        for subject, places in table.subjects.items()
    }


def _as_bytes(table: Table, column: str, path: str | None) -> tuple[SubjectColumnPlan, ...]:
    if not table.source.of_topics:
        return ()
    names = table_columns(table.columns, table.payload)
    return tuple(
        SubjectColumnPlan(names[other], path)
        for own, other in _BYTES.items()
        if names.get(own, "").casefold() == column.casefold() and other in names
    )


def held_by(project: Project, name: str | None) -> Holds:
    """What the rows of a table of the project hold, for those that read it."""
    table = project.tables.get(name) if name is not None else None
    if table is None:
        return Holds()
    return Holds(subjects_plan(table), _headers(project, table))


def _headers(project: Project, table: Table) -> str | None:
    """The column of headers, where rows are records as they came: landed, or handed on by tables without stages."""
    if table.staged or table.aggregate is not None or table.stream is not None:
        return None
    if table.source.of_topics:
        return table_columns(table.columns, table.payload)["headers"]
    if isinstance(table.source, TableFrom | ChangesFrom) and table.source.table is not None:
        return _headers(project, project.tables[table.source.table])
    return None
