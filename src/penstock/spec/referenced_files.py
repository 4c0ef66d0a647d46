"""Files that a project names: each must exist, and hold what it should."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock.spec.base_model import Finding, FindingsError, quote_value
from penstock.spec.base_model import KeyPath as TreePath
from penstock.spec.columns import reserved_findings
from penstock.spec.files_source import FilesFrom, schema_findings
from penstock.spec.kafka_cluster import KafkaCluster, security_files
from penstock.spec.schema import Struct, load_schema
from penstock.spec.stages import Decode, decode_schema_findings, find_function
from penstock.spec.table import Table

_RELATIVE = "correct the path; a relative one starts at the project folder"


def cluster_file_findings(clusters: Mapping[TreePath, KafkaCluster], root: Path) -> Iterator[Finding]:
    for path, cluster in clusters.items():
        for key, file in security_files(cluster.security).items():
            if not (root / Path(file).expanduser()).is_file():
                yield Finding((*path, "security", key), f"there is no file {quote_value(file)}", _RELATIVE)


def jar_findings(jars: tuple[str, ...], root: Path) -> Iterator[Finding]:
    for index, jar in enumerate(jars):
        if not (root / Path(jar).expanduser()).is_file():
            yield Finding(("spark", "jars", index), f"there is no file {quote_value(jar)}", _RELATIVE)


def table_file_findings(name: str, table: Table, root: Path) -> Iterator[Finding]:
    path = ("tables", name)
    if table.decode is not None and table.decode.schema_ is not None:
        yield from _findings_of((*path, "decode", "schema"), _check_decode_schema, table, table.decode, root)
    if isinstance(table.source, FilesFrom) and table.source.schema_ is not None:
        yield from _findings_of((*path, "from", "schema"), _check_files_schema, table, table.source, root)
    if table.transform is not None:
        yield from _findings_of((*path, "transform"), _check_function, table.transform, root, table, "lookup")
    if table.stream is not None:
        yield from _findings_of((*path, "stream"), _check_function, table.stream, root, table, "stream")


def _check_decode_schema(table: Table, decode: Decode, root: Path) -> None:
    schema = load_schema(decode.schema_ or "", root)
    findings = [*decode_schema_findings(decode, schema), *_reserved_column_findings(table, schema)]
    if findings:
        raise FindingsError(findings)


def _check_files_schema(table: Table, source: FilesFrom, root: Path) -> None:
    schema = load_schema(source.schema_ or "", root)
    findings = [*schema_findings(source, schema), *_reserved_column_findings(table, schema)]
    if findings:
        raise FindingsError(findings)


def _reserved_column_findings(table: Table, schema: Struct) -> Iterator[Finding]:
    """Empty for a table with a transform: the columns that it makes are not known here."""
    if table.transform is None and table.sql is None:
        yield from reserved_findings(schema, change_feed=table.write.has_change_feed or table.write.merge is not None)


def _check_function(reference: str, root: Path, table: Table, argument_kind: str) -> None:
    """`argument_kind` says what it takes besides the rows of `from`: lookups or streams."""
    inputs = table.lookups if argument_kind == "lookup" else table.streams
    routine = find_function(reference, root)
    missing = [name for name in inputs if name not in routine.parameters[1:]]
    if routine.accepts(1 + len(inputs)) and not missing:
        return
    actual, expected = ", ".join(routine.parameters), ", ".join([table.input_name, *inputs])
    message = f"{routine.name}({actual}) does not take the rows and then each {argument_kind} by name"
    raise FindingsError([Finding((), message, f"write def {routine.name}({expected})")])


def _findings_of(path: TreePath, check: Callable[..., Any], *arguments: Any) -> Iterator[Finding]:
    try:
        check(*arguments)
    except FindingsError as error:
        yield from (finding.below(path) for finding in error.findings)
