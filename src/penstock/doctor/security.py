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

# The check for secrets in clear text in the project file. It reports their places, never their values.


_SECRET_NAME = re.compile(
    r"(^|[._-])(password|passwd|passphrase|pwd|secret|token|credentials?|webhook|"
    r"(api|access|account|secret|private|shared|sas)[._-]?key(s)?)$",
    re.IGNORECASE,
)
_LOGIN_IN_ADDRESS = re.compile(
    r"//[^/\s:@]+:[^/\s@]+@|[?&;](password|pwd|passwd|token|secret|sig|api_?key|access_?key)=[^&;\s]+", re.IGNORECASE
)
_WEBHOOK = re.compile(
    r"https?://(hooks\.slack\.com|[^/\s]*webhook|[^/\s]*discord[^/\s]*/api/webhooks)/\S", re.IGNORECASE
)
_REFERENCE = re.compile(r"\$\{(?:env|file):[^}]*\}")
_DEFAULT = re.compile(r"\$\{env:[^}]*?:-([^}]+)\}")
_FILE_REFERENCE = re.compile(r"\$\{file:([^}]+)\}")
_NAMES_OF_COLUMNS = ("columns", "metrics", "lookups", "headers", "streams")
"""Below these, keys are names that the user chose, for columns and the like."""


@dataclass(frozen=True)
class PlainSecret:
    place: str
    """file:line"""
    key: str
    kind: str


def in_clear(document: Document) -> Iterator[PlainSecret]:
    """The secrets in a project file as it was read, with its references not yet replaced."""
    for path, value in _leaves(document.tree, ()):
        kind = _kind_of_secret(path, value)
        if kind is not None:
            line, _ = document.position(path)
            yield PlainSecret(f"{document.file}:{line}", ".".join(map(str, path)), kind)


def named_files(document: Document, root: Path) -> list[Path]:
    """The files that `${file:…}` names."""
    matches = [match for _, value in _leaves(document.tree, ()) for match in _FILE_REFERENCE.findall(value)]
    return list(dict.fromkeys(root / Path(path_text.strip()).expanduser() for path_text in matches))


def plain(secrets: list[PlainSecret], *, readable: bool) -> Check:
    """`readable`: whether every user of this machine can read the file."""
    check = CheckSubject("secrets.plain")
    if not secrets:
        return check.ok("no secret stands in the project file")
    places = listed((f"{secret.place} ({secret.key}: {secret.kind})" for secret in secrets), 4)
    text = f"{count(len(secrets), 'secret')} in the project file in clear: {places}"
    fix = "write ${env:NAME} or ${file:path} there, and change the secret: it is in every copy of the file"
    if readable:
        return check.red(f"{text}; every user of this machine can read the file", fix)
    return check.warn(text, fix)


def _kind_of_secret(path: TreePath, value: str) -> str | None:
    if any(step in _NAMES_OF_COLUMNS for step in path[:-1]):
        return None
    key = next((step for step in reversed(path) if isinstance(step, str)), "")
    clear_text = _REFERENCE.sub("", value)
    if _LOGIN_IN_ADDRESS.search(clear_text):
        return "an address with a login"
    is_secret_name = _SECRET_NAME.search(key) is not None or (path[:2] == ("spark", "conf") and is_sensitive(key))
    if is_secret_name and any(_DEFAULT.findall(value)):
        return "the default of a reference"
    if is_secret_name and clear_text and clear_text == value:
        return "a value"
    return "an address that lets anybody in who has it" if _WEBHOOK.search(clear_text) else None


def _leaves(tree: Any, path: TreePath) -> Iterator[tuple[TreePath, str]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _leaves(value, (*path, index))
    elif tree is not None and not isinstance(tree, bool):
        yield path, str(tree)


# The checks of what others can read: on the network to brokers and targets, and in files.


_MOUNTED_SECRETS = "/run/secrets"
"""Where containers get their secrets, readable by all of their users."""


def kafka(cluster: Cluster) -> Check:
    check = CheckSubject("kafka.secure")
    text = f"{cluster.bootstrap} ({cluster.name}) by {cluster.protocol}"
    hosts = [address.rpartition(":")[0] for address in cluster.bootstrap.split(",")]
    remote_hosts = [host for host in hosts if not is_loopback(host)]
    if not remote_hosts:
        return check.ok(f"{text}: this machine only")
    tls_fix = (
        "write protocol: SASL_SSL, and ca_file: …, under `security` of that cluster; the broker needs a listener for it"
    )
    if cluster.protocol == "SASL_PLAINTEXT" and cluster.mechanism == "PLAIN":
        return check.red(
            f"{text} with {cluster.mechanism}: the password goes to {listed(remote_hosts)} in clear", tls_fix
        )
    if cluster.protocol == "SASL_PLAINTEXT":
        return check.warn(
            f"{text} with {cluster.mechanism}: records go to and from {listed(remote_hosts)} in clear", tls_fix
        )
    if cluster.protocol == "PLAINTEXT":
        return check.warn(
            f"{text}: records go to and from {listed(remote_hosts)} in clear, without authentication", tls_fix
        )
    if cluster.options.get("ssl.endpoint.identification.algorithm") == "":
        return check.warn(
            f"{text}, but the names of the brokers are not checked: anybody on the way may answer for them",
            "remove ssl.endpoint.identification.algorithm from `options` of that cluster",
        )
    return check.ok(text)


def target(name: str, to: TargetPlan) -> Check:
    """Only for a system that has an address."""
    check = CheckSubject("targets.secure", name)
    host = _host(to)
    if host is None:
        return check.unknown(f"the host in {to.address} cannot be determined")
    if is_loopback(host):
        return check.ok(f"{to.address}: this machine only")
    if to.encrypted:
        return check.ok(f"{to.address}: with TLS")
    fix = f"write {to.encrypt_by} in `to` of {name}"
    if to.encrypted is None:
        return check.warn(f"{to.address}: whether the connection is encrypted is left to the server", fix)
    if to.has_secret:
        return check.red(f"{to.address}: the login goes to {host} in clear", fix)
    return check.warn(f"{to.address}: rows go to {host} in clear", fix)


def files(secret: Iterable[Path], project: Iterable[Path]) -> Iterator[Check]:
    """`secret` are files of keys and passwords, `project` those that decide which code runs."""
    check = CheckSubject("secrets.files")
    findings, file_count = [], 0
    for path in secret:
        mode = _mode(path)
        if mode is None:
            yield check.unknown(f"{path} cannot be looked at")
            continue
        file_count += 1
        text, fix = f"{path} ({mode:04o}) can be read by", f"`chmod 600 {path}`"
        if mode & stat.S_IROTH and path.is_relative_to(_MOUNTED_SECRETS):
            findings.append(check.note(f"{text} every user of this container", fix))
        elif mode & stat.S_IROTH:
            findings.append(check.red(f"{text} every user of this machine", fix))
        elif mode & stat.S_IRGRP:
            findings.append(check.note(f"{text} its group", fix))
    for path in project:
        mode = _mode(path)
        file_count += mode is not None
        if mode is not None and mode & stat.S_IWOTH:
            fix = f"`chmod o-w {path}`"
            findings.append(check.red(f"{path} ({mode:04o}) can be changed by every user of this machine", fix))
    yield from findings or [
        check.ok(f"{count(file_count, 'file')} of keys, passwords and the project: not open to others")
    ]


def is_loopback(host: str) -> bool:
    bare = host.strip("[]").partition("%")[0]
    try:
        return ip_address(bare).is_loopback
    except ValueError:
        return bare.lower() in ("localhost", "localhost.localdomain", "ip6-localhost")


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
