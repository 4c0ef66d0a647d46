"""What is allowed but probably not meant: shown by `validate`, with its place, and never an error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.spec.finding import Finding, Path, Referenced
from penstock.spec.spark import is_sensitive


def cautions(tree: Any) -> Iterator[Finding]:
    """Looks at the tree as read, references resolved."""
    for path, cluster in _clusters(tree):
        yield from _literal_secrets(path, cluster)
        yield from _options((*path, "options"), _get(cluster, "options"))
    for name, value in _items(_get(tree, "spark", "conf")):
        if is_sensitive(name) and value is not None and not isinstance(value, Referenced):
            yield _in_clear(("spark", "conf", name), name)
    key = _get(tree, "forget", "key")
    if key is not None and not isinstance(key, Referenced):
        yield _in_clear(("forget", "key"), "key", prefix="FORGET_")
    for name, table in _items(_get(tree, "tables")):
        yield from _options(("tables", name, "from", "options"), _get(table, "from", "options"))
    for name, sink in _items(_get(tree, "sinks")):
        yield from _options(("sinks", name, "to", "options"), _get(sink, "to", "options"))
        yield from _target(("sinks", name, "to"), _get(sink, "to"))


def _literal_secrets(path: Path, cluster: Any) -> Iterator[Finding]:
    for key in ("password", "key_password"):
        value = _get(cluster, "security", key)
        if value is not None and not isinstance(value, Referenced):
            yield _in_clear((*path, "security", key), key)


def _target(path: Path, target: Any) -> Iterator[Finding]:
    for key in ("password", "api_key"):
        value = _get(target, key)
        if value is not None and not isinstance(value, Referenced):
            yield _in_clear((*path, key), key, prefix="SINK_")


def _options(path: Path, options: Any) -> Iterator[Finding]:
    for name, value in _items(options):
        if name == "ssl.endpoint.identification.algorithm" and value == "":
            yield Finding((*path, name), "the names of the brokers are not checked", "write https, or remove the line")
        if name == "isolation.level" and value == "read_uncommitted":
            message = "records of transactions that were aborted will land too"
            yield Finding((*path, name), message, "remove the line: read_committed is the default")


def _in_clear(path: Path, key: str, prefix: str = "KAFKA_") -> Finding:
    variable = prefix + key.upper() if "." not in key else "NAME"
    hint = f"write ${{env:{variable}}} or ${{file:path}}, so that it is not kept with the project"
    return Finding(path, f"'{key}' is written in the file in clear", hint)


def _clusters(tree: Any) -> Iterator[tuple[Path, Any]]:
    yield ("kafka",), _get(tree, "kafka")
    for name, cluster in _items(_get(tree, "clusters")):
        yield ("clusters", name), cluster


def _get(tree: Any, *path: str) -> Any:
    for step in path:
        tree = tree.get(step) if isinstance(tree, dict) else None
    return tree


def _items(tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict):
        yield from tree.items()
