"""Secrets that stand in the project file in clear. Their places are said, never their values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.ops.doctor.check import About, Check
from penstock.ops.doctor.said import count, listed
from penstock.spec.document import Document
from penstock.spec.finding import Path as TreePath
from penstock.spec.spark import is_sensitive

_NAME = re.compile(
    r"(^|[._-])(password|passwd|passphrase|pwd|secret|token|credentials?|webhook|"
    r"(api|access|account|secret|private|shared|sas)[._-]?key(s)?)$",
    re.IGNORECASE,
)
_IN_ADDRESS = re.compile(
    r"//[^/\s:@]+:[^/\s@]+@|[?&;](password|pwd|passwd|token|secret|sig|api_?key|access_?key)=[^&;\s]+", re.IGNORECASE
)
_HOOK = re.compile(r"https?://(hooks\.slack\.com|[^/\s]*webhook|[^/\s]*discord[^/\s]*/api/webhooks)/\S", re.IGNORECASE)
_REFERENCE = re.compile(r"\$\{(?:env|file):[^}]*\}")
_DEFAULT = re.compile(r"\$\{env:[^}]*?:-([^}]+)\}")
_FILE = re.compile(r"\$\{file:([^}]+)\}")
_NAMES_OF_COLUMNS = ("columns", "metrics", "lookups", "headers", "streams")
"""Below these, keys are names that the user gave to columns and the like."""


@dataclass(frozen=True)
class InClear:
    place: str
    """file:line"""
    key: str
    what: str


def in_clear(document: Document) -> Iterator[InClear]:
    """Of a project file as it was read, references not replaced."""
    for path, value in _leaves(document.tree, ()):
        what = _what(path, value)
        if what is not None:
            line, _ = document.place(path)
            yield InClear(f"{document.file}:{line}", ".".join(map(str, path)), what)


def named_files(document: Document, root: Path) -> list[Path]:
    """The files that `${file:…}` names."""
    found = [match for _, value in _leaves(document.tree, ()) for match in _FILE.findall(value)]
    return list(dict.fromkeys(root / Path(written.strip()).expanduser() for written in found))


def plain(found: list[InClear], *, readable: bool) -> Check:
    """`readable` by every user of this machine."""
    about = About("secrets.plain")
    if not found:
        return about.ok("no secret stands in the project file")
    places = listed((f"{one.place} ({one.key}: {one.what})" for one in found), 4)
    said = f"{count(len(found), 'secret')} in the project file in clear: {places}"
    fix = "write ${env:NAME} or ${file:path} there, and change the secret: it is in every copy of the file"
    if readable:
        return about.red(f"{said}; every user of this machine can read the file", fix)
    return about.warn(said, fix)


def _what(path: TreePath, value: str) -> str | None:
    if any(step in _NAMES_OF_COLUMNS for step in path[:-1]):
        return None
    key = next((step for step in reversed(path) if isinstance(step, str)), "")
    written = _REFERENCE.sub("", value)
    if _IN_ADDRESS.search(written):
        return "an address with a login"
    named = _NAME.search(key) is not None or (path[:2] == ("spark", "conf") and is_sensitive(key))
    if named and any(_DEFAULT.findall(value)):
        return "the default of a reference"
    if named and written and written == value:
        return "a value"
    return "an address that lets anybody in who has it" if _HOOK.search(written) else None


def _leaves(tree: Any, path: TreePath) -> Iterator[tuple[TreePath, str]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _leaves(value, (*path, index))
    elif tree is not None and not isinstance(tree, bool):
        yield path, str(tree)
