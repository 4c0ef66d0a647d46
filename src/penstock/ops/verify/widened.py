"""Tables whose columns were widened, which `deltalake` does not read yet.

What `verify` asks for are columns that never change their type. So it is given a table of these alone: a log of its
own, in a folder that is gone at once, whose files are those of the real table.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import Terminal

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FEATURE = "typeWidening"
_DELETIONS = "deletionVectors"
_CHANGED = "delta.typeChanges"
_FIRST = "00000000000000000000.json"


def is_widened(table: DeltaTable) -> bool:
    return _FEATURE in (table.protocol().reader_features or ())


def without_widened(table: DeltaTable, uri: str) -> DeltaTable:
    """The same version of the table, without partition columns and those of another type than before."""
    if "://" in uri or _DELETIONS in (table.protocol().reader_features or ()):
        raise Terminal(
            "a column was widened, and such a table cannot be verified on an object store, or with deletion vectors",
            hint="Spark reads it: `spark.read.format('delta')`",
        )
    return table_of_files(table, table.file_uris())


def table_of_files(table: DeltaTable, files: Iterable[str]) -> DeltaTable:
    """A table of these files alone, which lie on this machine."""
    from deltalake import DeltaTable as Opened

    partitions = table.metadata().partition_columns
    schema = json.loads(table.schema().to_json())
    schema["fields"] = [one for one in schema["fields"] if one["name"] not in partitions and _CHANGED not in str(one)]
    with tempfile.TemporaryDirectory(prefix="penstock-verify-") as folder:
        log = Path(folder) / "_delta_log"
        log.mkdir()
        actions = [*_head(schema), *(_add(Path(file)) for file in files)]
        (log / _FIRST).write_text("\n".join(map(json.dumps, actions)))
        return Opened(folder)


def _head(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "0",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(schema),
                "partitionColumns": [],
                "configuration": {},
            }
        },
    ]


def _add(file: Path) -> dict[str, Any]:
    size = file.stat().st_size
    place = {"path": file.as_uri(), "partitionValues": {}, "size": size, "modificationTime": 0, "dataChange": True}
    return {"add": place}
