"""The current files of a table: from its log without a JVM, or from the session's own snapshot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import DataFrame

from penstock.spark.jvm import java_session, jvm_of
from penstock.storage.delta_rows import values_of
from penstock.storage.stores import storage_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Partition = tuple[str | None, ...]


@dataclass(frozen=True)
class DataFile:
    size: int
    modified_ms: int
    partition: Partition = ()
    """The values of the partition columns, in their order."""
    name: str = ""
    """Relative to the folder of the table."""
    rows: int = 0
    """Includes rows that are only marked as deleted; 0 if the log does not say."""
    deleted: int = 0


@dataclass(frozen=True)
class Layout:
    version: int
    files: tuple[DataFile, ...]
    partition_by: tuple[str, ...] = ()
    clustered: bool = False
    """Delta orders the rows itself, by `cluster_by`."""
    configuration: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    """Types of the partition columns, as SQL writes them; only if read by the session."""

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)


def read_layout(uri: str) -> Layout:
    """Without a JVM. The table exists."""
    from deltalake import DeltaTable

    table = DeltaTable(uri, storage_options=storage_options(uri) or None)
    protocol, metadata = table.protocol(), table.metadata()
    features = (*(protocol.writer_features or ()), *(protocol.reader_features or ()))
    columns = tuple(metadata.partition_columns)
    return Layout(
        version=table.version(),
        files=tuple(_data_files(table, columns, has_deletion_vectors="deletionVectors" in features)),
        partition_by=columns,
        clustered="clustering" in features,
        configuration={name: str(value) for name, value in metadata.configuration.items()},
    )


def _data_files(table: Any, columns: tuple[str, ...], *, has_deletion_vectors: bool) -> list[DataFile]:
    actions = table.get_add_actions(flatten=True)
    names = actions.schema.names
    empty = [None] * actions.num_rows
    deleted = _deleted_rows(table) if has_deletion_vectors else {}
    parts = [
        values_of(actions[f"partition.{column}"]) if f"partition.{column}" in names else empty for column in columns
    ]
    rows = actions["num_records"].to_pylist() if "num_records" in names else empty
    described = zip(
        actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), actions["modification_time"].to_pylist(), rows,
        strict=True,
    )  # fmt: skip
    return [
        DataFile(
            size,
            modified,
            tuple(_text(part[index]) for part in parts),
            unquote(path),
            count or 0,
            deleted.get(path.rpartition("/")[2], 0),
        )
        for index, (path, size, modified, count) in enumerate(described)
    ]


def _text(value: Any) -> str | None:
    """A value as Delta's log writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
    return None if value is None else str(value)


def _deleted_rows(table: Any) -> dict[str, int]:
    """How many rows of each file are marked as deleted, by the file's name, which is unique."""
    return {
        path.rpartition("/")[2]: selection.count(False)
        for batch in table.deletion_vectors()
        for path, selection in zip(batch["filepath"].to_pylist(), batch["selection_vector"].to_pylist(), strict=True)
    }


def snapshot_layout(spark: SparkSession, uri: str) -> Layout:
    """Read by the session, which knows how to reach the table."""
    jvm = jvm_of(spark)
    none = jvm.scala.Option.empty()
    snapshot = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(java_session(spark), uri).update(False, none, none)
    protocol = json.loads(snapshot.protocol().json())["protocol"]
    metadata = json.loads(snapshot.metadata().json())["metaData"]
    columns = tuple(metadata["partitionColumns"])
    rows = DataFrame(snapshot.allFiles().toDF(), spark).selectExpr(
        "size",
        "modificationTime",
        "partitionValues",
        "path",
        "get_json_object(stats, '$.numRecords')",
        "deletionVector.cardinality",
    )
    files = [
        DataFile(
            size,
            modified,
            tuple((parts or {}).get(column) for column in columns),
            unquote(path),
            int(count or 0),
            deleted or 0,
        )
        for size, modified, parts, path, count, deleted in rows.collect()
    ]
    return Layout(
        version=int(snapshot.version()),
        files=tuple(files),
        partition_by=columns,
        clustered="clustering" in (protocol.get("writerFeatures") or ()),
        configuration=metadata.get("configuration") or {},
        types={
            struct_field["name"]: str(struct_field["type"]).upper()
            for struct_field in json.loads(metadata["schemaString"])["fields"]
            if struct_field["name"] in columns
        },
    )
