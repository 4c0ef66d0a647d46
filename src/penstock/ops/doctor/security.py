"""What others can read: on the way to brokers and targets, and in files."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from penstock.ops.doctor.check import About, Check
from penstock.ops.doctor.said import count, listed
from penstock.plan.model import Cluster
from penstock.plan.target import JdbcTarget, RedisTarget, SearchTarget

_OTHERS_READ, _GROUP_READS = stat.S_IROTH, stat.S_IRGRP
_OTHERS_WRITE = stat.S_IWOTH
_MOUNTED = "/run/secrets"
"""Where containers get theirs, for all of their users."""


def kafka(cluster: Cluster) -> Check:
    about = About("kafka.secure")
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


def target(name: str, to: JdbcTarget | SearchTarget | RedisTarget) -> Check:
    about = About("targets.secure", name)
    host = _host(to)
    secret = to.password is not None or (isinstance(to, SearchTarget) and to.api_key is not None)
    if host is None:
        return about.unknown(f"the machine in {to.url} cannot be told")
    if is_loopback(host):
        return about.ok(f"{to.url}: this machine only")
    if isinstance(to, JdbcTarget):
        modes = {key.lower(): value.lower() for key, value in to.options.items()}
        asked = modes.get("sslmode") in ("require", "verify-ca", "verify-full") or "ssl" in to.url.lower()
        if asked or modes.get("ssl") == "true":
            return about.ok(f"{to.url}: with TLS")
        return about.warn(
            f"{to.url}: whether the connection is encrypted is left to the server",
            f"write options: {{sslmode: verify-full}} in `to` of {name}, or what its driver calls that",
        )
    safe = urlsplit(to.url).scheme in ("https", "rediss")
    if safe:
        return about.ok(f"{to.url}: with TLS")
    better = "https://" if isinstance(to, SearchTarget) else "rediss://"
    if secret:
        return about.red(f"{to.url}: the login goes to {host} in clear", f"write {better}… in `to` of {name}")
    return about.warn(f"{to.url}: rows go to {host} in clear", f"write {better}… in `to` of {name}")


def files(secret: Iterable[Path], project: Iterable[Path]) -> Iterator[Check]:
    """`secret` are files of keys and passwords, `project` those that decide what is run."""
    about = About("secrets.files")
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


def _host(to: JdbcTarget | SearchTarget | RedisTarget) -> str | None:
    url = to.url.removeprefix("jdbc:")
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
