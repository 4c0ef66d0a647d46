"""Files that a project names: each must exist, and hold what it should."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from penstock.spec.base_model import Finding, FindingsError, KeyPath, quote_value
from penstock.spec.columns import reserved_findings
from penstock.spec.files_source import FilesFrom, schema_findings
from penstock.spec.kafka_cluster import KafkaCluster, security_files
from penstock.spec.schema import Struct, load_schema
from penstock.spec.stages import decode_schema_findings, find_function
from penstock.spec.table import Table

_RELATIVE = "correct the path; a relative one starts at the project folder"


def cluster_file_findings(clusters: Mapping[KeyPath, KafkaCluster], root: Path) -> Iterator[Finding]:
    for path, cluster in clusters.items():
        for key, file in security_files(cluster.security).items():
            if not (root / Path(file).expanduser()).is_file():
                yield Finding((*path, "security", key), f"there is no file {quote_value(file)}", _RELATIVE)


def jar_findings(jars: tuple[str, ...], root: Path) -> Iterator[Finding]:
    for index, jar in enumerate(jars):
        if not (root / Path(jar).expanduser()).is_file():
            yield Finding(("spark", "jars", index), f"there is no file {quote_value(jar)}", _RELATIVE)


def table_file_findings(name: str, table: Table, root: Path) -> Iterator[Finding]:
    decode, source = table.decode, table.source
    own_check: Callable[[Struct], Iterable[Finding]]
    checks: list[tuple[KeyPath, Iterator[Finding]]] = []
    if decode is not None and decode.schema_ is not None:
        own_check = partial(decode_schema_findings, decode)
        checks.append((("decode", "schema"), _schema_findings(decode.schema_, root, table, own_check)))
    if isinstance(source, FilesFrom) and source.schema_ is not None:
        own_check = partial(schema_findings, source)
        checks.append((("from", "schema"), _schema_findings(source.schema_, root, table, own_check)))
    if table.transform is not None:
        checks.append((("transform",), _function_findings(table.transform, root, table, "lookup")))
    if table.stream is not None:
        checks.append((("stream",), _function_findings(table.stream, root, table, "stream")))
    for path, findings in checks:
        try:
            yield from [finding.below(("tables", name, *path)) for finding in findings]
        except FindingsError as error:  # the file itself
            yield from (finding.below(("tables", name, *path)) for finding in error.findings)


def _schema_findings(
    schema_text: str, root: Path, table: Table, own_check: Callable[[Struct], Iterable[Finding]]
) -> Iterator[Finding]:
    schema = load_schema(schema_text, root)
    yield from own_check(schema)
    if table.transform is None and table.sql is None:  # the columns that these make are not known here
        yield from reserved_findings(schema, change_feed=table.write.has_change_feed or table.write.merge is not None)


def _function_findings(reference: str, root: Path, table: Table, argument_kind: str) -> Iterator[Finding]:
    """`argument_kind` says what it takes besides the rows of `from`: lookups or streams."""
    inputs = table.lookups if argument_kind == "lookup" else table.streams
    routine = find_function(reference, root)
    missing = [name for name in inputs if name not in routine.parameters[1:]]
    if missing or not routine.accepts(1 + len(inputs)):
        actual, expected = ", ".join(routine.parameters), ", ".join([table.input_name, *inputs])
        message = f"{routine.name}({actual}) does not take the rows and then each {argument_kind} by name"
        yield Finding((), message, f"write def {routine.name}({expected})")
