"""penstock.yml to a Project: read, resolve references, check, and report every problem and warning at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from penstock.errors import Problem, SpecError
from penstock.spec.base_model import Finding, FindingsError, KeyPath, Referenced, line_and_column
from penstock.spec.document import Document, parse, resolve
from penstock.spec.project import Project
from penstock.spec.spark import is_sensitive
from penstock.spec.subjects import undeclared_subject_findings

FILE = "penstock.yml"


def tree_warnings(tree: Any) -> Iterator[Finding]:
    """What is allowed but probably not meant, never an error; about the tree as it was read, with references
    resolved."""
    for path, cluster in _clusters(tree):
        yield from _plain_text_secrets((*path, "security"), _get(cluster, "security"), "password", "key_password")
        yield from _option_warnings((*path, "options"), _get(cluster, "options"))
    conf = _get(tree, "spark", "conf")
    yield from _plain_text_secrets(("spark", "conf"), conf, *(name for name, _ in _items(conf) if is_sensitive(name)))
    yield from _plain_text_secrets(("forget",), _get(tree, "forget"), "key", prefix="FORGET_")
    for name, table in _items(_get(tree, "tables")):
        yield from _option_warnings(("tables", name, "from", "options"), _get(table, "from", "options"))
    for name, sink in _items(_get(tree, "sinks")):
        yield from _option_warnings(("sinks", name, "to", "options"), _get(sink, "to", "options"))
        yield from _plain_text_secrets(("sinks", name, "to"), _get(sink, "to"), "password", "api_key", prefix="SINK_")


def _option_warnings(path: KeyPath, options: Any) -> Iterator[Finding]:
    for name, value in _items(options):
        if name == "ssl.endpoint.identification.algorithm" and value == "":
            yield Finding((*path, name), "the names of the brokers are not checked", "write https, or remove the line")
        if name == "isolation.level" and value == "read_uncommitted":
            message = "records of transactions that were aborted will land too"
            yield Finding((*path, name), message, "remove the line: read_committed is the default")


def _plain_text_secrets(path: KeyPath, section: Any, *keys: str, prefix: str = "KAFKA_") -> Iterator[Finding]:
    for key in keys:
        value = _get(section, key)
        if value is not None and not isinstance(value, Referenced):
            variable = prefix + key.upper() if "." not in key else "NAME"
            hint = f"write ${{env:{variable}}} or ${{file:path}}, so that it is not kept with the project"
            yield Finding((*path, key), f"'{key}' is written in the file in clear", hint)


def _clusters(tree: Any) -> Iterator[tuple[KeyPath, Any]]:
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


@dataclass(frozen=True)
class ProjectCheck:
    """`project` is set if there are no problems."""

    project: Project | None
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...] = ()


def load_project(folder: Path, *, env: Mapping[str, str] | None = None) -> Project:
    """The project of a folder. Raises SpecError with all problems. `env` is the environment unless given."""
    checked = check_project(folder, env=env)
    if checked.project is None:
        raise SpecError(checked.problems)
    return checked.project


def check_project(folder: Path, *, env: Mapping[str, str] | None = None) -> ProjectCheck:
    """Like load_project, but returns the problems and warnings."""
    file = str(folder / FILE)
    text = _read_text(folder, file)
    if isinstance(text, Problem):
        return ProjectCheck(None, (text,))
    document = parse(text, file)
    if document.tree is None and not document.problems:
        hint = "write name, lake, kafka and tables; `penstock init DIR` writes an example"
        return ProjectCheck(None, (Problem(file, 1, 1, "the project file is empty", hint),))
    if document.tree is None:
        return ProjectCheck(None, tuple(document.problems))
    unresolved: list[Finding] = []
    tree = _resolve_references(document.tree, (), unresolved, os.environ if env is None else env, folder)
    project, findings = _build_project(tree, folder, document)
    references = list(_references(tree))
    problems = [
        *document.problems,
        *(document.problem(finding.path, finding.message, finding.hint) for finding in unresolved),
    ]
    unresolved_paths = {finding.path for finding in unresolved}
    problems += [
        document.problem(
            finding.path, _hide_references(finding.message, references), finding.hint, at_key=finding.at_key
        )
        for finding in findings
        if document.existing_path(finding.path) not in unresolved_paths
    ]
    warnings = [document.problem(finding.path, finding.message, finding.hint) for finding in tree_warnings(tree)]
    if project is not None:
        warnings += [
            document.problem(finding.path, finding.message, finding.hint, at_key=True)
            for finding in undeclared_subject_findings(project.tables)
        ]
    return ProjectCheck(None if problems else project, _sort_problems(problems), _sort_problems(warnings))


def _read_text(folder: Path, file: str) -> str | Problem:
    try:
        raw = (folder / FILE).read_bytes()
    except FileNotFoundError:
        if not folder.is_dir():
            return Problem(file, 1, 1, f"there is no folder {folder}", "name the project folder with -C DIR")
        if (folder / "penstock.yaml").exists():
            return Problem(file, 1, 1, f"there is no {FILE} here, but a penstock.yaml", f"rename it to {FILE}")
        hint = "name the project folder with -C DIR, or write a new project with `penstock init DIR`"
        return Problem(file, 1, 1, f"there is no {FILE} here", hint)
    except OSError as error:
        return Problem(file, 1, 1, f"{FILE} cannot be read: {error.strerror}", "make it a file that you may read")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = line_and_column(raw.decode("latin-1"), error.start)  # a character for each byte
        return Problem(file, line, column, f"the byte 0x{raw[error.start]:02X} is not UTF-8", "save the file as UTF-8")


def _resolve_references(
    node: Any, path: KeyPath, unresolved: list[Finding], env: Mapping[str, str], folder: Path
) -> Any:
    """The tree with its references replaced. One that cannot be replaced becomes a finding, and an empty value."""
    if isinstance(node, dict):
        return {key: _resolve_references(child, (*path, key), unresolved, env, folder) for key, child in node.items()}
    if isinstance(node, list):
        return [_resolve_references(child, (*path, index), unresolved, env, folder) for index, child in enumerate(node)]
    if not isinstance(node, str):
        return node
    try:
        return resolve(node, env=env, folder=folder)
    except FindingsError as error:
        unresolved += [finding.below(path) for finding in error.findings]
        return Referenced("", node)


def _references(tree: Any) -> Iterator[Referenced]:
    if isinstance(tree, Referenced):
        yield tree
    elif isinstance(tree, dict | list):
        for child in tree.values() if isinstance(tree, dict) else tree:
            yield from _references(child)


def _hide_references(message: str, references: Iterable[Referenced]) -> str:
    """Checks of a finished model no longer know what came by reference, and their messages quote the value."""
    for reference in references:
        message = message.replace(f"'{reference!s}'", f"'{reference.written}'")
    return message


def _build_project(tree: Any, folder: Path, document: Document) -> tuple[Project | None, list[Finding]]:
    root = folder.absolute()
    try:
        project = Project.model_validate(tree, context={"root": root})
    except ValidationError as error:
        return None, Project.findings(error)
    for name, table in project.tables.items():
        line, _ = document.position(("tables", name), at_key=True)
        table._origin = f"{document.file}:{line}"
    for name, sink in project.sinks.items():
        line, _ = document.position(("sinks", name), at_key=True)
        sink._origin = f"{document.file}:{line}"
    return project, []


def _sort_problems(problems: list[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(dict.fromkeys(problems), key=lambda problem: (problem.line, problem.column)))
