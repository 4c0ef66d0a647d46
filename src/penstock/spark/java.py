"""Which Java runs Spark and the development broker, and how it is installed where that is allowed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from penstock.errors import SetupError


def may_install() -> bool:
    """Whether Penstock may install Debian's packages: as root, on Debian or a derivative."""
    return os.geteuid() == 0 and Path("/etc/debian_version").exists() and shutil.which("apt-get") is not None


def apt_get(*arguments: str, hint: str) -> None:
    """`apt-get update` or `apt-get install -y …`, quietly; SetupError with apt's reasons if it fails."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    result = subprocess.run(
        ["apt-get", "-q", *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if result.returncode == 0:
        return
    reasons = [line for line in result.stderr.splitlines() if line.startswith(("E:", "W:"))][-3:]
    raise SetupError(
        f"apt-get {' '.join(arguments)} failed: {' '.join(reasons) or f'exit code {result.returncode}'}",
        hint=f"check the network and apt's sources, or {hint}",
    )


OLDEST = 17
SUPPORTED = (17, 21)
"""What Spark 4.0 is tested on. Others above 17 may work; `Java.warning` says so."""

PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
"""Debian's packages, in the order tried: its releases since 13 no longer have the first."""

_INSTALL = (
    f"install Java 17 or 21, for example: apt-get install {PACKAGES[0]} (Debian, Ubuntu), "
    "dnf install java-17-openjdk-headless (Fedora), brew install openjdk@17 (macOS)"
)


@dataclass(frozen=True)
class JavaRuntime:
    path: Path
    """The `java` to call."""
    home: Path
    """What JAVA_HOME should be for a program that calls it."""
    version: int
    """17 for 17.0.15."""

    @property
    def warning(self) -> str | None:
        if self.version in SUPPORTED:
            return None
        return (
            f"Java {self.version} ({self.path}): Spark is tested on 17 and 21; set JAVA_HOME to one of them if it fails"
        )


class NoJava(SetupError):
    """Java is missing, or the one on the PATH is too old: installing one fixes it."""


def find_java() -> JavaRuntime:
    """JAVA_HOME's Java, which must then be usable, because Spark's own scripts would take it too; else the PATH's."""
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not os.access(path, os.X_OK):
            raise SetupError(
                f"JAVA_HOME is {home}, where there is no bin/java",
                hint="set JAVA_HOME to the folder of a Java 17 or 21, or unset it to use the java on the PATH",
            )
        java = _probe_java(path)
        if java is None:
            raise SetupError(f"JAVA_HOME is {home}, whose java does not run", hint=_INSTALL)
        if java.version < OLDEST:
            raise SetupError(
                f"JAVA_HOME is {home}, which is Java {java.version}; Spark needs {OLDEST} or newer",
                hint=f"set JAVA_HOME to the folder of a Java 17 or 21. To get one, {_INSTALL}",
            )
        return java
    on_path = shutil.which("java")
    path_java = _probe_java(Path(on_path)) if on_path else None
    if path_java is None:
        raise NoJava("no Java was found: JAVA_HOME is not set and there is no java on the PATH", hint=_INSTALL)
    if path_java.version < OLDEST:
        raise NoJava(
            f"{path_java.path} is Java {path_java.version}; Spark needs {OLDEST} or newer",
            hint=f"{_INSTALL}; then set JAVA_HOME to it if the old one stays first on the PATH",
        )
    return path_java


def ensure_java(say: Callable[[str], None]) -> JavaRuntime:
    """Like `find_java`; but where Penstock may (root on Debian), a missing Java is installed, after announcing it with
    `say`."""
    try:
        return find_java()
    except NoJava:
        if not may_install():
            raise
    say("Java is missing: installing one with apt-get (about 200 MB, a minute or two)")
    apt_get("update", hint=_INSTALL)
    refusal: SetupError | None = None
    for package in PACKAGES:
        try:
            apt_get("install", "-y", "--no-install-recommends", package, hint=_INSTALL)
            break
        except SetupError as error:
            refusal = refusal or error
    else:
        raise refusal or NoJava("no Java was found", hint=_INSTALL)
    return find_java()


def _probe_java(path: Path) -> JavaRuntime | None:
    """The runtime that this `java` reports. None if it does not run: macOS has a /usr/bin/java that only says there is
    none."""
    try:
        # The settings name the real home, which the path does not if `java` is a version manager's shim.
        result = subprocess.run(
            [str(path), "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if result.returncode < 0 or result.returncode > 128:  # a stop of the whole process group, or a lack of memory
        signal = -result.returncode if result.returncode < 0 else result.returncode - 128
        raise SetupError(f"signal {signal} ended {path} before it told its version", hint="run the command again")
    text = result.stderr + result.stdout
    version = java_version(text)
    if result.returncode != 0 or version is None:
        return None
    home = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
    return JavaRuntime(path, Path(home[1]) if home else path.resolve().parent.parent, version)


def option(text: str) -> str:
    """One JVM option quoted for Spark's launcher: a path may hold spaces and quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def java_version(text: str) -> int | None:
    """The major version in what `java -version` prints; 8 for 1.8.0."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if not match:
        return None
    return int(match[2]) if match[1] == "1" and match[2] else int(match[1])


def java_proxy() -> list[str]:
    """JVM options for the proxy that HTTPS_PROXY and NO_PROXY name: Java does not read these variables."""
    from urllib.request import getproxies

    options = []
    proxies = getproxies()
    for scheme in ("http", "https"):
        proxy = urlsplit(proxies.get(scheme, ""))
        if proxy.hostname:
            options += [f"-D{scheme}.proxyHost={proxy.hostname}", f"-D{scheme}.proxyPort={proxy.port or 80}"]
    if options and proxies.get("no"):
        hosts = [f"*{host}" if host.startswith(".") else host for host in proxies["no"].replace(" ", "").split(",")]
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(hosts)}")
    return options
