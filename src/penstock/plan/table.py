"""One table of the plan: source, stages, trigger, Delta properties, and the hash of what decides its rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from penstock.plan.build_sources import LINE, files_stages, source_plan, stream_definition, stream_plan
from penstock.plan.merge import merge_plan, merge_properties, merge_settings
from penstock.plan.model import USER_SETTING, Input, Setting, TablePlan, TriggerPlan, definition_hash
from penstock.plan.sources import SourcePlan
from penstock.plan.stages import (
    AggregatePlan,
    Stages,
    WritePlan,
    aggregate_plan,
    dedupe_reads,
    stages_plan,
    table_uri,
    write_plan,
)
from penstock.plan.subjects import forget_plan, subjects_plan
from penstock.spec import table as spec
from penstock.spec.columns import table_columns
from penstock.spec.delta_source import ChangesFrom, TableFrom
from penstock.spec.files_source import FilesFrom
from penstock.spec.graph import upstream_of, waits_for
from penstock.spec.project import Project
from penstock.spec.quantity import duration_text
from penstock.spec.table import Table, Write

DEFAULT_SECONDS = 30.0
_SHARE_OF_SLA = 3


def trigger_plan(table_trigger: spec.Trigger | None, default: spec.Trigger | None) -> TriggerPlan:
    """When a table runs its batches, and why: its own trigger, else the project's default, else 30 seconds."""
    trigger, origin = (table_trigger, USER_SETTING) if table_trigger else (default, "the project's default")
    if trigger is None:
        return TriggerPlan("interval", DEFAULT_SECONDS, "the default: fresh enough for most, and few small files")
    if trigger.kind == "once":
        return TriggerPlan("once", None, f"{origin}: one batch of all there is, whatever max_per_trigger says")
    if trigger.kind == "available-now":
        return TriggerPlan("available-now", None, f"{origin}: what is there at the start, in batches, then it ends")
    assert trigger.seconds is not None
    if trigger.kind == "sla":
        why = (
            f"a third of the SLA of {duration_text(trigger.seconds)} ({origin}): "
            "one batch may fail and another run late"
        )
        return TriggerPlan("interval", trigger.seconds / _SHARE_OF_SLA, why, trigger.seconds)
    return TriggerPlan("interval", trigger.seconds, origin)


_STATISTICS_COLUMNS = ("topic", "partition", "offset", "kafka_timestamp", "ingestion_timestamp")
_PLAIN_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def property_settings(write: Write, raw: Mapping[str, str], *, one_topic: bool = False) -> tuple[Setting, ...]:
    """The Delta properties that a table is created with, and why: Penstock's choices with the user's on top. `raw` is
    canonical name -> column of a table that keeps raw records."""
    settings = [
        Setting(
            "delta.enableInCommitTimestamps",
            "true",
            "the times of versions are in the log, so that they survive a copy of the table",
        ),
        Setting(
            "delta.checkpointInterval",
            "100",
            "Delta's own checkpoint costs 1.7 s even for a small table, and the default makes one every 10 commits",
        ),
    ]
    if raw:
        partition_columns = {column.casefold() for column in write.partition_by}  # Delta keeps no statistics of these
        statistics_columns = [raw[name] for name in _STATISTICS_COLUMNS if not (name == "topic" and one_topic)]
        statistics_columns = [column for column in statistics_columns if column.casefold() not in partition_columns]
        settings.append(
            Setting(
                "delta.dataSkippingStatsColumns",
                ",".join(map(_quote, statistics_columns)),
                "statistics only on what is searched for: those of whole payloads, or of a topic that is the same in "
                "every row, cost time and tell nothing",
            )
        )
    if write.auto_compact:
        settings.append(
            Setting("delta.autoOptimize.autoCompact", "true", f"{USER_SETTING}: small files become large ones")
        )
    if write.merge is not None:
        settings.append(
            Setting(
                "delta.enableDeletionVectors",
                "true",
                "a changed row is marked in its file, which is not rewritten for it",
            )
        )
    if write.change_feed:
        settings.append(
            Setting("delta.enableChangeDataFeed", "true", f"{USER_SETTING}: changes of rows can be followed")
        )
    return (
        *(setting for setting in settings if setting.name not in write.properties),
        *(Setting(name, value, USER_SETTING) for name, value in write.properties.items()),
    )


def _quote(name: str) -> str:
    """Delta reads the list as SQL identifiers."""
    return name if _PLAIN_IDENTIFIER.fullmatch(name) else f"`{name}`"


def table_plan(project: Project, name: str, lake: str) -> TablePlan:
    table = project.tables[name]
    columns = kafka_columns(table)
    source, source_settings = source_plan(project, table.source, name, lake)
    merge = merge_plan(project, table)
    stages = stages_plan(project, table, lake, merge)
    aggregate = aggregate_plan(table.aggregate) if table.aggregate else None
    stream = stream_plan(project, table, lake) if table.stream else None
    write = write_plan(table.write, merge)
    if (files := source.as_files) is not None:
        assert stages is not None
        stages = files_stages(files, stages)
    decode = stages.decode if stages is not None else None
    if any(part is not None and part.new_fields == "add" for part in (files, decode)):
        write = replace(write, schema="evolve")
    row_input = _input(project, table) if stream is None else Input({}, "file", "file", stable=False)
    one_topic = source.as_topics is not None and len(source.as_topics.topics) == 1
    properties = (
        *property_settings(table.write, {} if stages or aggregate else row_input.raw, one_topic=one_topic),
        *merge_properties(merge),
    )
    return TablePlan(
        name=name,
        source=source,
        payload=table.payload,
        columns=columns,
        trigger=trigger_plan(table.trigger, project.defaults.trigger),
        uri=table_uri(lake, name),
        checkpoints=f"{lake}/_penstock/checkpoints/{name}",
        properties={setting.name: setting.value for setting in properties},
        definition=stream_definition(stream)
        if stream
        else _definition(source, table.payload, columns, stages, aggregate, write),
        origin=table.origin,
        input=row_input,
        stages=stages,
        aggregate=aggregate,
        stream=stream,
        write=write,
        upstream=upstream_of(table),
        waits_for=waits_for(project.tables, name),
        settings=(*source_settings, *_dedupe_settings(stages), *merge_settings(merge), *properties),
        max_failed_records=table.max_failed_records,
        subjects=subjects_plan(table),
        forget=forget_plan(project, lake),
    )


def _dedupe_settings(stages: Stages | None) -> tuple[Setting, ...]:
    return () if stages is None or stages.dedupe is None else (Setting("dedupe", *dedupe_reads(stages.dedupe)),)


def kafka_columns(table: Table) -> dict[str, str]:
    return table_columns(table.columns, table.payload) if table.source.of_topics else {}


def _input(project: Project, table: Table) -> Input:
    if table.source.of_topics:
        return Input(kafka_columns(table), "kafka")
    if isinstance(table.source, FilesFrom):
        return Input(LINE if table.source.format != "parquet" else {}, "file", "file")
    if isinstance(table.source, ChangesFrom) and table.source.table is not None:
        return replace(carried_input(project, project.tables[table.source.table]), stable=False)
    if not isinstance(table.source, TableFrom):
        return Input({}, "file", "file", stable=False)
    return carried_input(project, project.tables[table.source.table])


def carried_input(project: Project, upstream: Table) -> Input:
    """What the rows of a table carry for the tables that read it."""
    row_input = _input(project, upstream)
    if upstream.aggregate is not None or upstream.stream is not None or (upstream.staged and not upstream.write.source):
        return Input({}, "file", "file", stable=False)
    return Input({}, "carried", row_input.origin) if upstream.staged else row_input


def _definition(
    source: SourcePlan,
    payload: str,
    columns: dict[str, str],
    stages: Stages | None,
    aggregate: AggregatePlan | None,
    write: WritePlan,
) -> str:
    """The hash of what decides the rows of a batch whose positions are fixed."""
    definition: dict[str, Any] = {"payload": payload, "columns": columns, **source.decides()}
    if stages is not None:
        definition |= {"stages": _stages_document(stages), "source": write.source}
    if write.merge is not None:
        definition |= {"merge": {**asdict(write.merge), "keep_deleted_ms": None}}
    if aggregate is not None:
        definition |= {"aggregate": asdict(aggregate)}
    return definition_hash(definition)


def _stages_document(stages: Stages) -> Mapping[str, Any]:
    """The stages without the paths of this machine, so that moving the project does not change the hash."""
    document = asdict(stages)
    del document["whole_files"]
    if stages.audit is None:  # so that tables defined before `audit` existed keep their hash
        del document["audit"]
    if stages.decode is not None and stages.decode.new_fields in ("rescue", "ignore"):  # `rescue` already says it
        del document["decode"]["new_fields"]
    if stages.transform is not None:
        document["transform"]["file"] = None
    for lookup in document["lookups"]:
        lookup["uri"] = lookup["uri"] if lookup["table"] is None else None
        del lookup["merged"], lookup["holds"]
    return document
