"""The files of a table as they are now: from its log without a JVM, or from the session's own snapshot."""

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
    """From the folder of the table on."""
    rows: int = 0
    """With those that are only marked as deleted; 0 if the log does not say."""
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
    """Of the partition columns, as SQL writes them; only where the session was asked."""

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.files)


def read_layout(uri: str) -> Layout:
    """Without a JVM. The table is there."""
    from deltalake import DeltaTable

    table = DeltaTable(uri, storage_options=storage_options(uri) or None)
    protocol, metadata = table.protocol(), table.metadata()
    features = (*(protocol.writer_features or ()), *(protocol.reader_features or ()))
    columns = tuple(metadata.partition_columns)
    return Layout(
        version=table.version(),
        files=tuple(_listed(table, columns, marked="deletionVectors" in features)),
        partition_by=columns,
        clustered="clustering" in features,
        configuration={name: str(value) for name, value in metadata.configuration.items()},
    )


def _listed(table: Any, columns: tuple[str, ...], *, marked: bool) -> list[DataFile]:
    found = table.get_add_actions(flatten=True)
    names = found.schema.names
    empty = [None] * found.num_rows
    deleted = _marked(table) if marked else {}
    parts = [values_of(found[f"partition.{one}"]) if f"partition.{one}" in names else empty for one in columns]
    rows = found["num_records"].to_pylist() if "num_records" in names else empty
    described = zip(
        found["path"].to_pylist(), found["size_bytes"].to_pylist(), found["modification_time"].to_pylist(), rows,
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
    """As Delta's log writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
    return None if value is None else str(value)


def _marked(table: Any) -> dict[str, int]:
    """By the name of a file, which no other file has: how many of its rows are marked as deleted."""
    return {
        path.rpartition("/")[2]: kept.count(False)
        for batch in table.deletion_vectors()
        for path, kept in zip(batch["filepath"].to_pylist(), batch["selection_vector"].to_pylist(), strict=True)
    }


def snapshot_layout(spark: SparkSession, uri: str) -> Layout:
    """By the session, which knows how to reach the table."""
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
    found = [
        DataFile(
            size,
            modified,
            tuple((parts or {}).get(one) for one in columns),
            unquote(path),
            int(count or 0),
            gone or 0,
        )
        for size, modified, parts, path, count, gone in rows.collect()
    ]
    return Layout(
        version=int(snapshot.version()),
        files=tuple(found),
        partition_by=columns,
        clustered="clustering" in (protocol.get("writerFeatures") or ()),
        configuration=metadata.get("configuration") or {},
        types={
            one["name"]: str(one["type"]).upper()
            for one in json.loads(metadata["schemaString"])["fields"]
            if one["name"] in columns
        },
    )
