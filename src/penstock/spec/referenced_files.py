"""Files that a project names: each must be there, and hold what it should."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.spec.base_model import Finding, Wrong, shown
from penstock.spec.base_model import KeyPath as TreePath
from penstock.spec.columns import reserved_findings
from penstock.spec.files_source import FilesFrom, schema_findings
from penstock.spec.kafka_cluster import KafkaCluster, security_files
from penstock.spec.schema import Struct, load_schema
from penstock.spec.stages import Decode, decode_schema_findings, find_routine
from penstock.spec.table import Table

_RELATIVE = "correct the path; a relative one starts at the project folder"


def cluster_file_findings(clusters: Mapping[TreePath, KafkaCluster], root: Path) -> Iterator[Finding]:
    for path, cluster in clusters.items():
        for key, file in security_files(cluster.security).items():
            if not (root / Path(file).expanduser()).is_file():
                yield Finding((*path, "security", key), f"there is no file {shown(file)}", _RELATIVE)


def jar_findings(jars: tuple[str, ...], root: Path) -> Iterator[Finding]:
    for index, jar in enumerate(jars):
        if not (root / Path(jar).expanduser()).is_file():
            yield Finding(("spark", "jars", index), f"there is no file {shown(jar)}", _RELATIVE)


def table_file_findings(name: str, table: Table, root: Path) -> Iterator[Finding]:
    path = ("tables", name)
    if table.decode is not None and table.decode.schema_ is not None:
        yield from _tried((*path, "decode", "schema"), _checked_columns, table, table.decode, root)
    if isinstance(table.source, FilesFrom) and table.source.schema_ is not None:
        yield from _tried((*path, "from", "schema"), _checked_schema, table, table.source, root)
    if table.transform is not None:
        yield from _tried((*path, "transform"), _checked_function, table.transform, root, table, "lookup")
    if table.stream is not None:
        yield from _tried((*path, "stream"), _checked_function, table.stream, root, table, "stream")


def _checked_columns(table: Table, decode: Decode, root: Path) -> None:
    schema = load_schema(decode.schema_ or "", root)
    found = [*decode_schema_findings(decode, schema), *_reserved(table, schema)]
    if found:
        raise Wrong(found)


def _checked_schema(table: Table, source: FilesFrom, root: Path) -> None:
    schema = load_schema(source.schema_ or "", root)
    found = [*schema_findings(source, schema), *_reserved(table, schema)]
    if found:
        raise Wrong(found)


def _reserved(table: Table, schema: Struct) -> Iterator[Finding]:
    """Of columns that a transform makes nothing is known here."""
    if table.transform is None and table.sql is None:
        yield from reserved_findings(schema, change_feed=table.write.has_change_feed or table.write.merge is not None)


def _checked_function(written: str, root: Path, table: Table, others: str) -> None:
    """`others` says what it takes besides the rows of `from`."""
    named = table.lookups if others == "lookup" else table.streams
    routine = find_routine(written, root)
    missing = [name for name in named if name not in routine.parameters[1:]]
    if routine.accepts(1 + len(named)) and not missing:
        return
    found, wanted = ", ".join(routine.parameters), ", ".join([table.input_name, *named])
    message = f"{routine.name}({found}) does not take the rows and then each {others} by name"
    raise Wrong([Finding((), message, f"write def {routine.name}({wanted})")])


def _tried(path: TreePath, check: Callable[..., Any], *arguments: Any) -> Iterator[Finding]:
    try:
        check(*arguments)
    except Wrong as error:
        yield from (finding.below(path) for finding in error.findings)
