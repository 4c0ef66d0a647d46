"""YAML to a plain tree in which every value knows its line and column; `${env:X}` and `${file:path}` resolved."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from penstock.errors import Problem
from penstock.spec.base_model import FindingsError, KeyPath, Referenced, did_you_mean, line_and_column, nearest, wrong

# Only the types of JSON: text, whole numbers, decimals, true and false, nothing, lists and mappings. `on`, `yes`, `no`,
# dates and `1:30` stay text, keys are always text, and no tag makes an object.


_TAG = "tag:yaml.org,2002:"
_MAX_NODES = 200_000  # otherwise aliases of aliases of aliases would fill the memory
_MAX_MERGES = 100
"""How many mappings may inherit from each other by `<<`."""
_ENDLESS = "an alias makes the document endless", "write the values out instead of *alias"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


for _kind, _pattern, _letters in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("int", r"[-+]?[0-9][0-9_]*", "-+0123456789"),
    ("float", r"[-+]?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?", "-+0123456789"),
    ("merge", r"<<", "<"),
):
    _first_letters = [("" if letter == "\0" else letter) for letter in _letters]
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(rf"^(?:{_pattern})$"), _first_letters)


# People write `{user: ${env:X}}`, but to YAML the inner braces are a mapping. Within a reference, the signs that mean
# something to YAML are therefore replaced by placeholders of the same width, and restored in the parsed values.
_REFERENCE = re.compile(r"""\$\{[^{}"'\n]*\}""")
_PLACEHOLDERS = {ord(sign): 0xE000 + ord(sign) for sign in "{}[],:#&*!|>%@`?-"}
_ORIGINALS = {placeholder: sign for sign, placeholder in _PLACEHOLDERS.items()}


@dataclass
class Document:
    """`tree` without positions, and the position (line, column; from 1) of every value and every key by its path."""

    file: str
    tree: Any = None
    values: dict[KeyPath, tuple[int, int]] = field(default_factory=dict)
    keys: dict[KeyPath, tuple[int, int]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def existing_path(self, path: KeyPath) -> KeyPath:
        """The deepest path of the document that `path` leads to; steps that exist only in a model are left out."""
        deepest: KeyPath = ()
        for step in path:
            if (*deepest, step) in self.values:
                deepest = (*deepest, step)
            elif isinstance(step, int) and (*deepest, str(step)) in self.values:
                deepest = (*deepest, str(step))
        return deepest

    def position(self, path: KeyPath, *, at_key: bool = False) -> tuple[int, int]:
        known_path = self.existing_path(path)
        if at_key and known_path in self.keys:
            return self.keys[known_path]
        return self.values.get(known_path, (1, 1))

    def problem(self, path: KeyPath, message: str, hint: str | None = None, *, at_key: bool = False) -> Problem:
        line, column = self.position(path, at_key=at_key)
        return Problem(self.file, line, column, message, hint)


def parse(text: str, file: str) -> Document:
    """Never raises for an invalid document: `problems` has what is wrong, and `tree` what could be read."""
    document = Document(file)
    try:
        loader = _Loader(_REFERENCE.sub(lambda match: match[0].translate(_PLACEHOLDERS), text))
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
        if root is not None:
            document.tree = _YamlReader(document).read(root, ())
    except yaml.MarkedYAMLError as error:
        document.problems.append(_syntax_problem(error, text, file))
    except yaml.reader.ReaderError as error:
        line, column = line_and_column(text, error.position)
        codepoint = ord(error.character) if isinstance(error.character, str) else int(error.character)
        message = f"the character U+{codepoint:04X} cannot be in YAML"
        document.problems.append(Problem(file, line, column, message, "remove it"))
    except RecursionError:
        problem = Problem(file, 1, 1, "it is nested hundreds of levels deep", "look for a bracket that is not closed")
        document.problems.append(problem)
    return document


class _YamlReader:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.open: list[int] = []
        self.count = 0

    def complain(self, node: yaml.Node, message: str, hint: str) -> None:
        line, column = _node_position(node)
        problem = Problem(self.document.file, line, column, message, hint)
        if problem not in self.document.problems:
            self.document.problems.append(problem)

    def read(self, node: yaml.Node, path: KeyPath) -> Any:
        self.count += 1
        if self.count > _MAX_NODES or id(node) in self.open:
            self.complain(node, *_ENDLESS)
            return None
        self.document.values[path] = _node_position(node)
        kind = node.tag.removeprefix(_TAG)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, kind)
        if kind not in ("map", "seq"):
            self.complain(node, f"the tag {_tag(node)} is not allowed", "remove it: only plain YAML is read")
            return None
        self.open.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, path)
            return [self.read(child, (*path, index)) for index, child in enumerate(node.value)]
        finally:
            self.open.pop()

    def scalar(self, node: yaml.ScalarNode, kind: str) -> Any:
        text: str = node.value.translate(_ORIGINALS)
        match kind:
            case "str" | "merge":
                return text
            case "null":
                return None
            case "bool" if text.lower() in ("true", "false"):
                return text.lower() == "true"
            case "int" | "float":
                try:
                    return int(text) if kind == "int" else float(text)
                except ValueError:
                    return text
        self.complain(node, f"the tag {_tag(node)} is not allowed", "remove it: only plain YAML is read")
        return None

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        tree: dict[str, Any] = {}
        key_nodes: dict[str, yaml.Node] = {}
        inherited_pairs: list[tuple[str, yaml.Node, yaml.Node]] = []
        for key, value in node.value:
            if key.tag == _TAG + "merge":
                inherited_pairs.extend(self.merge(key, value, (id(node),)))
                continue
            if not isinstance(key, yaml.ScalarNode):
                self.complain(key, "a key must be plain text", "write key: value")
                continue
            name: str = key.value.translate(_ORIGINALS)
            if name in key_nodes:
                line, _ = _node_position(key_nodes[name])
                self.complain(key, f"the key '{name}' is given twice (first in line {line})", "keep one of them")
                continue
            key_nodes[name] = key
            self.document.keys[(*path, name)] = _node_position(key)
            tree[name] = self.read(value, (*path, name))
        for inherited_name, key, value in inherited_pairs:
            if inherited_name not in tree:
                self.document.keys[(*path, inherited_name)] = _node_position(key)
                tree[inherited_name] = self.read(value, (*path, inherited_name))
        return tree

    def merge(
        self, merge_key: yaml.Node, node: yaml.Node, heirs: tuple[int, ...]
    ) -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
        """The pairs that `<<: *alias` adds: the alias's own keys, then those that it inherits itself. The first of a
        name wins. `heirs` are the mappings that inherit them."""
        for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(source, yaml.MappingNode):
                self.complain(source, "<< needs a mapping", "write <<: *alias, where the alias is a mapping")
                continue
            self.count += 1 + len(source.value)
            if id(source) in heirs or len(heirs) > _MAX_MERGES or self.count > _MAX_NODES:
                self.complain(merge_key, *_ENDLESS)
                return
            for key, value in source.value:
                if isinstance(key, yaml.ScalarNode) and key.tag != _TAG + "merge":
                    yield key.value.translate(_ORIGINALS), key, value
            for key, value in source.value:
                if key.tag == _TAG + "merge":
                    yield from self.merge(key, value, (*heirs, id(source)))


def _node_position(node: yaml.Node) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


def _tag(node: yaml.Node) -> str:
    return node.tag.replace(_TAG, "!!")


def _syntax_problem(error: yaml.MarkedYAMLError, text: str, file: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    lines = text.splitlines()
    source_line = lines[line - 1] if line <= len(lines) else ""
    hint = "check the indentation, the colons and the quotes here and in the line above"
    if "\t" in source_line[: len(source_line) - len(source_line.lstrip())]:
        hint = "indent with spaces: YAML does not allow tabs"
    elif "undefined alias" in (error.problem or ""):
        hint = "define it above as &name, or put the value in quotes if it starts with *"
    elif "expected a single document" in (error.context or ""):
        hint = "keep one document: remove the line ---"
    elif (error.problem or "").startswith("mapping values are not allowed"):
        hint = "put the value in quotes if it contains ': '"
    return Problem(file, line, column, f"this is not YAML: {error.problem or error.context}", hint)


_SUBSTITUTION = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_FILE_BYTES = 1_000_000
_FORMS = "write ${env:NAME}, ${env:NAME:-default} or ${file:path}; $${ is a plain ${"


def resolve(text: str, *, env: Mapping[str, str], folder: Path) -> str:
    """The text with its `${env:X}`, `${env:X:-default}` and `${file:path}` replaced: a `Referenced` if there were any.
    `$${` is a plain `${`. Raises FindingsError.

    Paths are relative to `folder`; a trailing newline of a file is not part of its value.
    """
    if "${" not in text:
        return text
    referenced = False

    def replace(match: re.Match[str]) -> str:
        nonlocal referenced
        if match[0] == "$${":
            return "${"
        referenced = True
        if not match[2]:
            raise wrong(f"the reference '{match[0]}' is not closed", "end it with }; " + _FORMS)
        return _resolve_reference(match[1], env, folder)

    resolved = _SUBSTITUTION.sub(replace, text)
    return Referenced(resolved, text) if referenced else resolved


def _resolve_reference(reference: str, env: Mapping[str, str], folder: Path) -> str:
    kind, colon, argument = reference.partition(":")
    if kind == "env" and colon:
        return _read_variable(argument, env)
    if kind == "file" and colon:
        return _read_file(argument, folder)
    hint = f"did you mean ${{env:{reference}}}?" if _VARIABLE.fullmatch(reference) else _FORMS
    if colon and nearest(kind, ("env", "file")):
        hint = did_you_mean(kind, ("env", "file"))
    raise wrong(f"'${{{reference}}}' is not a reference that Penstock knows", hint)


def _read_variable(argument: str, env: Mapping[str, str]) -> str:
    name, has_default, default = argument.partition(":-")
    if not _VARIABLE.fullmatch(name):
        raise wrong(f"'${{env:{argument}}}' does not name a variable", _FORMS)
    if has_default:
        return env.get(name) or default  # as in a shell: set but empty takes the default
    if name not in env:
        raise wrong(
            f"the environment variable {name} is not set",
            f"export {name}=..., or give it a default: ${{env:{name}:-...}}",
        )
    return env[name]


def _read_file(path_text: str, folder: Path) -> str:
    if not path_text.strip():
        raise wrong("'${file:}' does not name a file", _FORMS)
    path = folder / Path(path_text.strip()).expanduser()
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise wrong(f"the file {path_text} is larger than 1 MB", "a reference reads one small value")
        content = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise _unreadable(path_text, "does not exist") from None
    except IsADirectoryError:
        raise _unreadable(path_text, "is a folder") from None
    except UnicodeDecodeError:
        raise _unreadable(path_text, "is not text") from None
    except (OSError, ValueError) as error:
        if isinstance(error, FindingsError):
            raise
        reason = getattr(error, "strerror", None) or "its path is not one"
        raise _unreadable(path_text, f"cannot be read: {reason}") from None
    return content.removesuffix("\n").removesuffix("\r")


def _unreadable(path_text: str, reason: str) -> FindingsError:
    note = "" if Path(path_text).is_absolute() else " (a relative path starts at the project folder)"
    return wrong(f"the file {path_text} {reason}", f"create it, or correct the path{note}")
