"""Secrets in clear in the project file, and what others can read on the network and on disk."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from penstock.doctor.check import CheckSubject, count, listed
from penstock.spec.spark import is_sensitive

if TYPE_CHECKING:
    from penstock.doctor.check import Check
    from penstock.plan.sources import Cluster
    from penstock.plan.targets import TargetPlan
    from penstock.spec.base_model import KeyPath as TreePath
    from penstock.spec.document import Document

# Secrets that stand in the project file in clear. Their places are said, never their values.


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
    about = CheckSubject("secrets.plain")
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


# What others can read: on the way to brokers and targets, and in files.


_OTHERS_READ, _GROUP_READS = stat.S_IROTH, stat.S_IRGRP
_OTHERS_WRITE = stat.S_IWOTH
_MOUNTED = "/run/secrets"
"""Where containers get theirs, for all of their users."""


def kafka(cluster: Cluster) -> Check:
    about = CheckSubject("kafka.secure")
    said = f"{cluster.bootstrap} ({cluster.name}) by {cluster.protocol}"
    far = [host for host in _hosts(cluster.bootstrap) if not is_loopback(host)]
    if not far:
        return about.ok(f"{said}: this machine only")
    tls = (
        "write protocol: SASL_SSL, and ca_file: …, under `security` of that cluster; the broker needs a listener for it"
    )
    if cluster.protocol == "SASL_PLAINTEXT" and cluster.mechanism == "PLAIN":
        return about.red(f"{said} with {cluster.mechanism}: the password goes to {listed(far)} in clear", tls)
    if cluster.protocol == "SASL_PLAINTEXT":
        return about.warn(f"{said} with {cluster.mechanism}: records go to and from {listed(far)} in clear", tls)
    if cluster.protocol == "PLAINTEXT":
        return about.warn(f"{said}: records go to and from {listed(far)} in clear, and nobody is asked who he is", tls)
    if cluster.options.get("ssl.endpoint.identification.algorithm") == "":
        return about.warn(
            f"{said}, but the names of the brokers are not checked: anybody on the way may answer for them",
            "remove ssl.endpoint.identification.algorithm from `options` of that cluster",
        )
    return about.ok(said)


def target(name: str, to: TargetPlan) -> Check:
    """Of a system that has an address."""
    about = CheckSubject("targets.secure", name)
    host = _host(to)
    if host is None:
        return about.unknown(f"the machine in {to.address} cannot be told")
    if is_loopback(host):
        return about.ok(f"{to.address}: this machine only")
    if to.encrypted:
        return about.ok(f"{to.address}: with TLS")
    fix = f"write {to.encrypt_by} in `to` of {name}"
    if to.encrypted is None:
        return about.warn(f"{to.address}: whether the connection is encrypted is left to the server", fix)
    if to.has_secret:
        return about.red(f"{to.address}: the login goes to {host} in clear", fix)
    return about.warn(f"{to.address}: rows go to {host} in clear", fix)


def files(secret: Iterable[Path], project: Iterable[Path]) -> Iterator[Check]:
    """`secret` are files of keys and passwords, `project` those that decide what is run."""
    about = CheckSubject("secrets.files")
    found, looked = [], 0
    for path in secret:
        mode = _mode(path)
        if mode is None:
            yield about.unknown(f"{path} cannot be looked at")
            continue
        looked += 1
        if mode & _OTHERS_READ and path.is_relative_to(_MOUNTED):
            found.append(about.note(f"{path} ({mode:04o}) can be read by every user of this container", _chmod(path)))
        elif mode & _OTHERS_READ:
            found.append(about.red(f"{path} ({mode:04o}) can be read by every user of this machine", _chmod(path)))
        elif mode & _GROUP_READS:
            found.append(about.note(f"{path} ({mode:04o}) can be read by its group", _chmod(path)))
    for path in project:
        mode = _mode(path)
        looked += mode is not None
        if mode is not None and mode & _OTHERS_WRITE:
            fix = f"`chmod o-w {path}`"
            found.append(about.red(f"{path} ({mode:04o}) can be changed by every user of this machine", fix))
    yield from found or [about.ok(f"{count(looked, 'file')} of keys, passwords and the project: not open to others")]


def is_loopback(host: str) -> bool:
    bare = host.strip("[]").partition("%")[0]
    try:
        return ip_address(bare).is_loopback
    except ValueError:
        return bare.lower() in ("localhost", "localhost.localdomain", "ip6-localhost")


def _hosts(bootstrap: str) -> list[str]:
    return [address.rpartition(":")[0] for address in bootstrap.split(",")]


def _host(to: TargetPlan) -> str | None:
    url = (to.address or "").removeprefix("jdbc:")
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def _chmod(path: Path) -> str:
    return f"`chmod 600 {path}`"
