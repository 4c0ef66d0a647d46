"""A table's Delta source: another table of the project, or any by its path."""

from __future__ import annotations

from penstock.plan.model import DeltaSource, Setting, VersionStart
from penstock.plan.settings import YOURS
from penstock.plan.stages import table_uri
from penstock.plan.subjects import held_by
from penstock.spec.lake import lake_place
from penstock.spec.project import Project
from penstock.spec.upstream import ChangesFrom, DeltaFrom, TableFrom
from penstock.spec.upstream import VersionStart as Written

_SKIPS = Setting(
    "skipChangeCommits",
    "true",
    "commits that change rows upstream are skipped, and reported if Penstock did not make them",
)
_IGNORES_CHANGES = Setting(
    "ignoreChanges",
    "true",
    "yours: every row of a file that is rewritten upstream comes again, changed or not; de-duplicate them. Deleted "
    "rows stay here",
)
_IGNORES_DELETES = Setting(
    "ignoreDeletes",
    "true",
    "yours: commits that only remove whole files are passed over, and their rows stay here; one that rewrites a file, "
    "as most deletes do, stops this table",
)
_SKIPS_FOREIGN = Setting(
    "skipChangeCommits",
    "true",
    "yours: commits that delete, update or merge rows upstream are skipped whole: deleted rows stay here, updated ones "
    "keep their old values, and new rows in such a commit are not read",
)
_STOPS = Setting("upstream changes", "stop this table", "nobody promises that a table that is not ours only grows")


_FOLLOWS = Setting(
    "readChangeFeed",
    "true",
    "every insert, update and delete of its rows; those of one commit always come in one batch",
)


def delta_plan(
    project: Project, source: TableFrom | DeltaFrom | ChangesFrom, lake: str
) -> tuple[DeltaSource, tuple[Setting, ...]]:
    """The source, and every choice about it with its reason."""
    settings: list[Setting] = []
    if isinstance(source, ChangesFrom):
        settings.append(_FOLLOWS)
    elif isinstance(source, TableFrom):
        settings.append(_SKIPS)
    elif source.skip_change_commits:
        settings.append(_SKIPS_FOREIGN)
    elif source.ignore_changes:
        settings.append(_IGNORES_CHANGES)
    elif source.ignore_deletes:
        settings.append(_IGNORES_DELETES)
    else:
        settings.append(_STOPS)
    if source.max_files is not None:
        settings.append(Setting("max_files", str(source.max_files), YOURS))
    elif source.max_bytes is None:
        settings.append(Setting("max_files", "1000", "Delta's own bound of a batch"))
    if source.max_bytes is not None:
        settings.append(Setting("max_bytes", str(source.max_bytes), YOURS))
    table = None if isinstance(source, DeltaFrom) else source.table
    upstream = project.tables[table] if table is not None else None
    made = DeltaSource(
        uri=table_uri(lake, table) if table is not None else lake_place(_path(source), project.root),
        table=table,
        where=None if isinstance(source, ChangesFrom) else source.where,
        starting=_starting(source.starting),
        max_files=source.max_files,
        max_bytes=source.max_bytes,
        options={setting.name: setting.value for setting in settings if setting.value == "true"},
        changes=isinstance(source, ChangesFrom),
        merged=upstream is not None and upstream.write.merge is not None,
        holds=held_by(project, table),
    )
    return made, tuple(settings)


def _path(source: TableFrom | DeltaFrom | ChangesFrom) -> str:
    if isinstance(source, ChangesFrom):
        return source.changes
    return source.delta if isinstance(source, DeltaFrom) else source.table


def _starting(written: Written) -> VersionStart:
    if written.version is not None:
        return VersionStart("version", version=written.version)
    if written.timestamp is not None:
        return VersionStart("timestamp", timestamp_ms=round(written.timestamp.timestamp() * 1000))
    return VersionStart(written.at or "earliest")
