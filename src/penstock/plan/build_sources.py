"""The source of a table, resolved: Kafka topics, a Delta table, a folder of files, or the inputs of a `stream`."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from penstock.plan.model import USER_SETTING, Setting, StreamPlan, definition_hash
from penstock.plan.sources import (
    DELTA_MAX_FILES,
    Cluster,
    DeltaSource,
    FilesSource,
    KafkaSource,
    SourcePlan,
    StartingPlan,
    VersionStartPlan,
)
from penstock.plan.stages import DecodePlan, Stages, csv_options, table_uri
from penstock.plan.subjects import subjects_of_table
from penstock.spec.base_model import SourceFrom
from penstock.spec.delta_source import ChangesFrom, DeltaFrom, TableFrom, VersionStart
from penstock.spec.files_source import FilesFrom
from penstock.spec.kafka_cluster import KafkaCluster, security_files
from penstock.spec.kafka_source import KafkaFrom, Starting
from penstock.spec.lake import lake_place
from penstock.spec.plugins import SOURCES, plugin
from penstock.spec.project import DEFAULT_CLUSTER, Project
from penstock.spec.schema import load_schema
from penstock.spec.stages import find_function
from penstock.spec.table import Table

DEFAULT_MAX_PER_TRIGGER = 200_000

CONSUMER_SETTINGS = (
    Setting("isolation.level", "read_committed", "records of transactions that were aborted never land in a table"),
    Setting("receive.buffer.bytes", str(1024**2), "Spark sets 64 KiB, which keeps a fast broker waiting"),
    Setting("max.poll.records", "25000", "fewer calls, each of which asks the broker twice; the default is 500"),
    Setting(
        "fetch.max.wait.ms",
        "20",
        "Spark asks only for records that are there; at the end of a partition its next question would wait behind a "
        "fetch that waits for more: half a second a batch",
    ),
    Setting("max.partition.fetch.bytes", str(16 * 1024**2), "larger fetches: the default of 1 MiB is many round trips"),
)


def cluster_plan(name: str | None, cluster: KafkaCluster, root: Path) -> Cluster:
    """A cluster with the paths of its files made absolute."""
    security = cluster.security
    files = {key: str((root / Path(path).expanduser()).absolute()) for key, path in security_files(security).items()}
    return Cluster(
        name=name or DEFAULT_CLUSTER,
        bootstrap=cluster.bootstrap,
        protocol=security.protocol,
        mechanism=security.mechanism,
        username=security.username,
        password=security.password,
        ca_file=files.get("ca_file"),
        cert_file=files.get("cert_file"),
        key_file=files.get("key_file"),
        key_password=security.key_password,
        options=dict(cluster.options),
    )


def kafka_plan(project: Project, source: KafkaFrom) -> tuple[KafkaSource, tuple[Setting, ...]]:
    """Topics of a cluster, and every choice about them with its reason."""
    cluster = cluster_plan(source.cluster, project.cluster(source.cluster), project.root)
    defaults = {setting.name: setting.value for setting in CONSUMER_SETTINGS}
    user_options = {**cluster.options, **source.options}
    max_per_trigger, max_setting = _max_per_trigger(project, source)
    settings = [max_setting]
    settings += [setting for setting in CONSUMER_SETTINGS if setting.name not in user_options]
    settings += [Setting(name, value, USER_SETTING) for name, value in user_options.items()]
    if source.min_partitions is not None:
        why = f"{USER_SETTING}; above the number of partitions, consumers are not kept between batches"
        settings.append(Setting("min_partitions", str(source.min_partitions), why))
    kafka_source = KafkaSource(
        cluster=cluster,
        topics=source.kafka.names,
        pattern=source.kafka.pattern,
        starting=starting_plan(source.starting),
        max_per_trigger=max_per_trigger,
        min_partitions=source.min_partitions,
        options={**defaults, **user_options},
    )
    return kafka_source, tuple(settings)


def _max_per_trigger(project: Project, source: KafkaFrom) -> tuple[int | None, Setting]:
    limit = source.max_per_trigger if source.max_per_trigger is not None else project.defaults.max_per_trigger
    if limit is None:
        why = "a bounded batch bounds memory, and what is done again after a crash"
        return DEFAULT_MAX_PER_TRIGGER, Setting("max_per_trigger", str(DEFAULT_MAX_PER_TRIGGER), why)
    return (None if limit == "unlimited" else limit), Setting("max_per_trigger", str(limit), USER_SETTING)


def starting_plan(starting: Starting) -> StartingPlan:
    if starting.offsets is not None:
        return StartingPlan("offsets", offsets=starting.offsets)
    if starting.timestamp is not None:
        return StartingPlan("timestamp", timestamp_ms=round(starting.timestamp.timestamp() * 1000))
    return StartingPlan(starting.at or "earliest")


class SourcePlugin(Protocol):
    """What an entry point of `penstock.sources` must provide, besides what every kind of source has
    (sources/topics.py): the model of what a user writes, and the plan built from it."""

    model: type[SourceFrom]

    def plan(self, written: Any, *, table: str, root: Path, lake: str) -> tuple[SourcePlan, tuple[Setting, ...]]:
        """The source, and every choice about it with its reason. Must neither load Spark nor ask a server."""


def source_plan(project: Project, source: SourceFrom, table: str, lake: str) -> tuple[SourcePlan, tuple[Setting, ...]]:
    """The source of a table, and every choice about it with its reason."""
    match source:
        case KafkaFrom():
            return kafka_plan(project, source)
        case TableFrom() | DeltaFrom() | ChangesFrom():
            return delta_plan(project, source, lake)
        case FilesFrom():
            return files_plan(project, source, table, lake)
    kind: SourcePlugin = plugin(SOURCES, source.kind)()
    return kind.plan(source, table=table, root=project.root, lake=lake)


_SKIP_CHANGES = Setting(
    "skipChangeCommits",
    "true",
    "commits that change rows upstream are skipped, and reported if Penstock did not make them",
)
_SWITCHES = {
    "skip_change_commits": Setting(
        "skipChangeCommits",
        "true",
        "yours: commits that delete, update or merge rows upstream are skipped whole: deleted rows stay here, updated "
        "ones keep their old values, and new rows in such a commit are not read",
    ),
    "ignore_changes": Setting(
        "ignoreChanges",
        "true",
        "yours: every row of a file that is rewritten upstream comes again, changed or not; de-duplicate them. Deleted "
        "rows stay here",
    ),
    "ignore_deletes": Setting(
        "ignoreDeletes",
        "true",
        "yours: commits that only remove whole files are passed over, and their rows stay here; one that rewrites a "
        "file, as most deletes do, stops this table",
    ),
}
"""For tables by their path; the first that is on."""
_STOP_ON_CHANGES = Setting(
    "upstream changes", "stop this table", "a table that Penstock does not write may change its rows"
)
_READ_CHANGE_FEED = Setting(
    "readChangeFeed",
    "true",
    "every insert, update and delete of its rows; those of one commit always come in one batch",
)


def delta_plan(
    project: Project, source: TableFrom | DeltaFrom | ChangesFrom, lake: str
) -> tuple[DeltaSource, tuple[Setting, ...]]:
    """The source, and every choice about it with its reason."""
    settings: list[Setting]
    if isinstance(source, ChangesFrom):
        settings = [_READ_CHANGE_FEED]
    elif isinstance(source, TableFrom):
        settings = [_SKIP_CHANGES]
    else:
        switched_on = (setting for switch, setting in _SWITCHES.items() if getattr(source, switch))
        settings = [next(switched_on, _STOP_ON_CHANGES)]
    if source.max_files is not None:
        settings.append(Setting("max_files", str(source.max_files), USER_SETTING))
    elif source.max_bytes is None:
        settings.append(Setting("max_files", str(DELTA_MAX_FILES), "Delta's own bound of a batch"))
    if source.max_bytes is not None:
        settings.append(Setting("max_bytes", str(source.max_bytes), USER_SETTING))
    table = None if isinstance(source, DeltaFrom) else source.table
    upstream = project.tables[table] if table is not None else None
    delta_source = DeltaSource(
        uri=table_uri(lake, table) if table is not None else lake_place(_source_path(source), project.root),
        table=table,
        where=None if isinstance(source, ChangesFrom) else source.where,
        starting=_version_start(source.starting),
        max_files=source.max_files,
        max_bytes=source.max_bytes,
        options={setting.name: setting.value for setting in settings if setting.value == "true"},
        changes=isinstance(source, ChangesFrom),
        merged=upstream is not None and upstream.write.merge is not None,
        holds=subjects_of_table(project, table),
    )
    return delta_source, tuple(settings)


def _source_path(source: TableFrom | DeltaFrom | ChangesFrom) -> str:
    if isinstance(source, ChangesFrom):
        return source.changes
    return source.delta if isinstance(source, DeltaFrom) else source.table


def _version_start(start: VersionStart) -> VersionStartPlan:
    if start.version is not None:
        return VersionStartPlan("version", version=start.version)
    if start.timestamp is not None:
        return VersionStartPlan("timestamp", timestamp_ms=round(start.timestamp.timestamp() * 1000))
    return VersionStartPlan(start.at or "earliest")


# A table's folder of files. The stream reads the manifest, a small Delta table that lists them, so files have the
# positions of a Delta table.


DEFAULT_MAX_FILES = 1000
LINE = {"key": "key", "value": "value", "value_binary": "value_binary"}
"""What is kept of a rejected line: the line, its bytes if they are not text, and as the key the header of its file."""
_MANIFEST_FILES_PER_BATCH = 1


def files_plan(project: Project, source: FilesFrom, name: str, lake: str) -> tuple[FilesSource, tuple[Setting, ...]]:
    """The source, and every choice about it with its reason."""
    system_folder = f"{lake}/_penstock"
    reader_options = {key: value for key, value in source.options.items() if key not in ("header", "multiLine")}
    files_source = FilesSource(
        uri=f"{system_folder}/files/{name}",
        table=None,
        where=None,
        starting=VersionStartPlan(source.starting),
        max_files=_MANIFEST_FILES_PER_BATCH,
        max_bytes=None,
        folder=lake_place(source.files, project.root),
        root=str(project.root),
        format=source.format,
        pattern=source.pattern,
        schema=load_schema(source.schema_, project.root) if source.schema_ else None,
        new_fields=source.on_new_fields,
        header=source.header,
        documents=source.options.get("multiLine", "false").lower() == "true",
        most=source.max_files,
        reader=csv_options(reader_options) if source.format == "csv" else reader_options,
        stored=f"{system_folder}/schemas/{name}.json",
        reads=f"{system_folder}/reads/{name}",
    )
    is_default = source.max_files == DEFAULT_MAX_FILES
    why = "a bounded batch bounds what is done again after a crash" if is_default else USER_SETTING
    return files_source, (Setting("max_files", str(files_source.most), why),)


def files_stages(source: FilesSource, stages: Stages) -> Stages:
    """Lines are decoded like Kafka records; a file that cannot be read is rejected as a whole."""
    if source.by_line:
        decode = DecodePlan(
            format=source.format,
            column=LINE["value"],
            schema=source.schema,
            rescue=source.new_fields == "rescue",
            options=dict(source.reader),
        )
        stages = replace(stages, decode=decode)
    return replace(stages, whole_files=True)


def stream_plan(project: Project, table: Table, lake: str) -> StreamPlan:
    """The function of a table with `stream`, and the tables that it reads."""
    assert table.stream is not None and isinstance(table.source, TableFrom | DeltaFrom)
    function = find_function(table.stream, project.root)
    sources = {table.input_name: table.source, **table.streams}
    return StreamPlan(
        file=str(function.file),
        function=function.name,
        digest=hashlib.sha256(function.file.read_bytes()).hexdigest()[:16],
        inputs={name: delta_plan(project, source, lake)[0] for name, source in sources.items()},
        output=table.output or "append",
    )


def stream_definition(stream: StreamPlan) -> str:
    """The hash leaves out the paths of this machine, so that moving the project does not change it."""
    inputs = [{"name": name, **source.decides()} for name, source in stream.inputs.items()]
    return definition_hash(
        {"function": stream.function, "digest": stream.digest, "inputs": inputs, "output": stream.output}
    )
