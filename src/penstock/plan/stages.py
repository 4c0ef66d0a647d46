"""The stages of a table, resolved: schemas read, functions found, defaults filled in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from penstock.plan.subjects import SubjectHoldings, subjects_of_table
from penstock.spec.delta_source import is_path
from penstock.spec.graph import keys_of
from penstock.spec.lake import lake_place
from penstock.spec.project import Project
from penstock.spec.schema import Struct, load_schema
from penstock.spec.stages import ACTIONS, Decode, ExpectationAction, find_function
from penstock.spec.table import Table, Write
from penstock.spec.table_kinds import Aggregate


@dataclass(frozen=True)
class DecodePlan:
    format: str
    column: str
    schema: Struct | None
    rescue: bool = False
    keep: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the format that were written."""
    new_fields: Literal["add", "rescue", "ignore", "fail"] = "ignore"
    """For records; for files it is set in their source."""


@dataclass(frozen=True)
class TransformPlan:
    """Exactly one of `sql` and `file` is set."""

    sql: str | None = None
    file: str | None = None
    function: str | None = None
    digest: str = ""
    """Hash of the function's file: a changed file may produce other rows."""


@dataclass(frozen=True)
class Lookup:
    """The static side of a join, read at one version per batch."""

    name: str
    uri: str
    table: str | None
    """Its name if it is a table of the project."""
    merged: bool = False
    """Whether it holds tombstones."""
    holds: SubjectHoldings = field(default_factory=SubjectHoldings)
    """The subjects of its rows, if it is a table of the project that declares them."""


@dataclass(frozen=True)
class ExpectationPlan:
    name: str
    check: str
    action: str

    @property
    def action_rules(self) -> ExpectationAction:
        return ACTIONS[self.action]


@dataclass(frozen=True)
class DedupePlan:
    keys: tuple[str, ...]
    within_ms: int | None
    time: str | None


@dataclass(frozen=True)
class AggregatePlan:
    """`size_ms` and `every_ms` are those of the window, if there is one."""

    keys: tuple[str, ...]
    metrics: Mapping[str, str]
    emit: Literal["updates", "complete", "final"]
    time: str | None = None
    size_ms: int | None = None
    every_ms: int | None = None
    watermark_ms: int | None = None


@dataclass(frozen=True)
class MergePlan:
    """`sequence`, `deleted` and `time` are SQL expressions over a change."""

    keys: tuple[str, ...]
    sequence: str
    deleted: str
    history: Literal["scd1", "scd2"]
    ignore: str | None = None
    """An SQL expression too: for rows of the source that are no real changes and are left out."""
    time: str | None = None
    truncate: str | None = None
    """For changes that concern all rows."""
    snapshot: str | None = None
    """If rows come from full extracts, each a file: when the extract was taken."""
    ignore_nulls: bool = False
    only: tuple[str, ...] = ()
    but: tuple[str, ...] = ()
    keep_deleted_ms: int | None = None
    """How long a tombstone is kept; None: forever."""

    @property
    def deletes(self) -> bool:
        """Whether a change can delete a row."""
        return self.deleted != "false" or self.truncate is not None or self.snapshot is not None


@dataclass(frozen=True)
class AuditPlan:
    keys: tuple[str, ...]
    who: str | None


@dataclass(frozen=True)
class WritePlan:
    schema: Literal["strict", "evolve"] = "strict"
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    zorder_by: tuple[str, ...] = ()
    source: bool = True
    merge: MergePlan | None = None
    change_feed: bool = False


@dataclass(frozen=True)
class Stages:
    """The stages in the order in which they run. `input_name` is what `sql` calls the rows."""

    input_name: str
    decode: DecodePlan | None = None
    transform: TransformPlan | None = None
    lookups: tuple[Lookup, ...] = ()
    expect: tuple[ExpectationPlan, ...] = ()
    dedupe: DedupePlan | None = None
    audit: AuditPlan | None = None
    whole_files: bool = False
    """Whether a file that cannot be read is rejected as a whole."""

    @property
    def may_reject(self) -> bool:
        """Whether rows can go to quarantine."""
        may_fail = self.transform is not None or self.whole_files or self.decode is not None
        return may_fail or any(expectation.action_rules.rejects for expectation in self.expect)


_NULL_PARTITION_VALUES = "'', '__HIVE_DEFAULT_PARTITION__'"
KEY, SEQUENCE = "merge.key", "merge.sequence"
"""Names of the expectations that every change of a merged table must meet; a user's names cannot have a dot."""


def stages_plan(project: Project, table: Table, lake: str, merge: MergePlan | None = None) -> Stages | None:
    if not table.staged:
        return None
    dedupe = table.dedupe
    return Stages(
        input_name=table.input_name,
        decode=_decode(table.decode, project.root) if table.decode else None,
        transform=_transform(table, project.root),
        lookups=tuple(_lookup(project, name, target, lake) for name, target in table.lookups.items()),
        expect=(
            *(ExpectationPlan(expectation.name, expectation.check, expectation.action) for expectation in table.expect),
            *_merge_expectations(merge, table.write.partition_by),
        ),
        dedupe=DedupePlan(dedupe.keys, None if dedupe.within is None else round(dedupe.within * 1000), dedupe.time)
        if dedupe
        else None,
        audit=AuditPlan(keys_of(table, project.tables), table.audit.who) if table.audit else None,
    )


def _merge_expectations(merge: MergePlan | None, partition_by: Sequence[str]) -> tuple[ExpectationPlan, ...]:
    """A change without a key belongs to no row, and one without a sequence cannot be ordered. As partition values
    some texts are NULL to Delta, and their rows would not be found again."""
    if merge is None:
        return ()
    partition_columns = {name.casefold() for name in partition_by}
    is_partition = {f"`{key.replace('`', '``')}`": key.casefold() in partition_columns for key in merge.keys}
    keys = " AND ".join(
        f"CAST({column} AS STRING) NOT IN ({_NULL_PARTITION_VALUES})" if in_partition else f"{column} IS NOT NULL"
        for column, in_partition in is_partition.items()
    )
    if merge.truncate is not None:
        keys = f"({keys}) OR {merge.truncate}"
    order = " AND ".join(
        f"({expression}) IS NOT NULL" for expression in (merge.sequence, merge.time) if expression is not None
    )
    return ExpectationPlan(KEY, keys, "quarantine"), ExpectationPlan(SEQUENCE, order, "quarantine")


def dedupe_reads(dedupe: DedupePlan) -> tuple[str, str]:
    """Which part of the table a batch is compared with, and why."""
    keys = ", ".join(dedupe.keys)
    if dedupe.time is None:
        return (
            "the whole table",
            f"WARNING: without `within`, every file whose {keys} overlap those of a batch is read: all of them, unless "
            "keys grow with time. `within: 7 days, time: …` reads only the files of that time",
        )
    return (
        f"files within the bound around the batch's {dedupe.time}",
        f"a row is a duplicate only if its {keys} are there within that time",
    )


def aggregate_plan(aggregate: Aggregate) -> AggregatePlan:
    window = aggregate.window
    return AggregatePlan(
        keys=aggregate.keys,
        metrics=dict(aggregate.metrics),
        emit=aggregate.emit,
        time=window.time if window else None,
        size_ms=round((window.size or window.every) * 1000) if window else None,
        every_ms=round(window.every * 1000) if window else None,
        watermark_ms=None if aggregate.watermark is None else round(aggregate.watermark * 1000),
    )


def write_plan(write: Write, merge: MergePlan | None = None) -> WritePlan:
    return WritePlan(
        write.schema_,
        write.partition_by,
        write.cluster_by,
        write.zorder_by,
        write.source,
        merge=merge,
        change_feed=write.change_feed,
    )


def csv_options(options: Mapping[str, str]) -> dict[str, str]:
    """A quote within quotes is doubled, as every spreadsheet writes it; Spark would expect a backslash before it."""
    return {"escape": options.get("quote", '"'), **options} if options.get("quote", '"') else dict(options)


def table_uri(lake: str, name: str) -> str:
    return f"{lake}/{name.replace('.', '/')}"


def _decode(decode: Decode, root: Path) -> DecodePlan:
    return DecodePlan(
        format=decode.format,
        column=decode.column,
        schema=load_schema(decode.schema_, root) if decode.schema_ else None,
        rescue=decode.rescues,
        keep=decode.keep,
        options=csv_options(decode.options) if decode.csv else decode.format_options,
        new_fields=decode.new_fields or ("rescue" if decode.rescue else "ignore"),
    )


def _transform(table: Table, root: Path) -> TransformPlan | None:
    if table.sql is not None:
        return TransformPlan(sql=table.sql)
    if table.transform is None:
        return None
    routine = find_function(table.transform, root)
    digest = hashlib.sha256(routine.file.read_bytes()).hexdigest()[:16]
    return TransformPlan(file=str(routine.file), function=routine.name, digest=digest)


def _lookup(project: Project, name: str, target: str, lake: str) -> Lookup:
    if is_path(target):
        return Lookup(name, lake_place(target, project.root), None)
    merged = project.tables[target].write.merge is not None
    return Lookup(name, table_uri(lake, target), target, merged, subjects_of_table(project, target))
