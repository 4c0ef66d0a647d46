"""Sets this checkout up: .venv from requirements.lock, Penstock itself, Java, jars. Only the standard library.

Packages come by uv, itself from the lock, and every file of them is checked by its hash. A stamp in .venv holds what
it was made from; while that is the same, nothing is installed and no network is used.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".penstock-setup"
LOCK = ROOT / "requirements.lock"
FIRST = ("uv", "setuptools")
"""Installed before the rest, by pip: uv installs the rest, and setuptools builds PySpark, which comes as source."""

NETWORK = (
    "the first set-up needs the network. Behind a proxy set HTTPS_PROXY; for a mirror set PIP_INDEX_URL "
    "(and PIP_CERT for its certificate); then run the same command again: it goes on where it stopped"
)


class Failed(Exception):
    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"error: {message}\n  -> {hint}")


def main() -> None:
    with LOCK.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Two targets started at once: the second finds all done.
        wanted = fingerprint()
        if not STAMP.exists() or STAMP.read_text() != wanted or not PYTHON.exists():
            make_environment()
            install()
            STAMP.write_text(wanted)
    # Java and jars are not this environment's: looked at each time, fetched if missing.
    jars = subprocess.run([VENV / "bin" / "penstock", "jars", "fetch", "--install-java"], cwd=ROOT)
    if jars.returncode != 0:
        sys.exit(jars.returncode)


def fingerprint() -> str:
    parts = [str(ROOT), sys.base_prefix, sys.version, LOCK.read_text(), (ROOT / "pyproject.toml").read_text()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def base_python() -> str:
    """The interpreter outside any virtual environment: `make` may run inside an activated .venv, which we replace."""
    return str(getattr(sys, "_base_executable", None) or sys.executable)


def make_environment() -> None:
    if made_by_this_python():
        return
    with step(f"making .venv with Python {sys.version.split()[0]}"):
        done = venv()
        if done.returncode != 0 and "ensurepip" in done.stdout and may_install():
            package = f"python3.{sys.version_info.minor}-venv"
            say(f"Debian keeps venv in a package of its own: installing {package}")
            run("apt-get", "-q", "update")
            run("apt-get", "-q", "install", "-y", package)
            done = venv()
    if done.returncode != 0:
        hint = f"on Debian and Ubuntu: apt-get install python3.{sys.version_info.minor}-venv"
        raise Failed(f"the virtual environment could not be made:\n{indented(done.stdout)}", hint)


def made_by_this_python() -> bool:
    """Then it can be brought up to date, which is quicker than a new one."""
    try:
        lines = (VENV / "pyvenv.cfg").read_text().splitlines()
        settings = dict(line.split(" = ", 1) for line in lines if " = " in line)
        works = run(str(PYTHON), "-m", "pip", "--version").returncode == 0
    except OSError:
        return False
    same_place = settings.get("command", "").endswith(str(VENV))
    same_python = settings.get("version") == ".".join(map(str, sys.version_info[:3]))
    return works and same_place and same_python


def venv() -> subprocess.CompletedProcess[str]:
    shutil.rmtree(VENV, ignore_errors=True)
    return run(base_python(), "-m", "venv", str(VENV))


def install() -> None:
    first = VENV / "first.txt"
    first.write_text("".join(pinned(name) for name in FIRST))
    with step("installing uv"):
        done = run(
            *(str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "2"),
            *("--no-deps", "--require-hashes", "-r", str(first)),
        )
    if done.returncode != 0:
        raise refused("uv could not be fetched", done.stdout)
    uv = [str(VENV / "bin" / "uv"), "pip"]
    here = ["--python", str(PYTHON), "--no-build-isolation"]
    with step("installing the packages of requirements.lock (PySpark is 400 MB: a few minutes the first time)"):
        exact = ("--compile-bytecode", "--require-hashes", str(LOCK))
        done = run(*uv, "sync", *here, *exact, env=uv_environment(), show=True)
    if done.returncode != 0:
        raise Failed("the packages could not be installed; uv says why above", NETWORK)
    with step("installing Penstock itself, editable"):
        done = run(*uv, "install", *here, "--quiet", "--offline", "--no-deps", "--editable", str(ROOT))
    if done.returncode != 0:
        raise Failed(f"Penstock itself could not be installed:\n{indented(done.stdout)}", "look at pyproject.toml")
    # Compiled once, here: where Python may not write bytecode, every command would take a second to read its source.
    run(str(PYTHON), "-m", "compileall", "-q", str(ROOT / "src"))


def pinned(name: str) -> str:
    """The lock's entry for a package: its version and its hashes."""
    found = re.search(rf"^{re.escape(name)}==[^\n]*(?:\n +--hash=[^\n]*)+\n", LOCK.read_text(), re.MULTILINE)
    if found is None:
        raise Failed(f"{LOCK.name} does not pin {name}", "make lock")
    return found[0]


def uv_environment() -> dict[str, str]:
    """uv does not read pip's settings; a user's mirror and certificate hold for both."""
    settings = {}
    for line in run(str(PYTHON), "-m", "pip", "config", "list").stdout.splitlines():
        name, _, value = line.partition("=")
        settings[name.rpartition(".")[2].replace("_", "-")] = value.strip("'\"")
    environment = dict(os.environ)
    for variable, setting in (("UV_DEFAULT_INDEX", "index-url"), ("SSL_CERT_FILE", "cert")):
        if setting in settings and "UV_INDEX_URL" not in environment:
            environment.setdefault(variable, settings[setting])
    return environment


def refused(what: str, output: str) -> Failed:
    """pip's many lines about one cause, as the cause."""
    causes = re.findall(r"Failed to establish a new connection: ([^'\"]+)['\"]", output)
    errors = [line for line in output.splitlines() if line.startswith("ERROR")]
    shown = indented("\n".join([*causes[-1:], *errors[-3:]] or output.splitlines()[-3:]))
    if "DO NOT MATCH THE HASHES" in output:
        return Failed(
            f"{what}:\n{shown}", "what came is not what requirements.lock pins: try another network or mirror"
        )
    return Failed(f"{what}:\n{shown}", NETWORK)


def may_install() -> bool:
    return os.geteuid() == 0 and Path("/etc/debian_version").exists() and shutil.which("apt-get") is not None


def run(*command: str, env: dict[str, str] | None = None, show: bool = False) -> subprocess.CompletedProcess[str]:
    """Output is kept for an error; `show` lets it through, for what has a progress display of its own."""
    output = None if show else subprocess.PIPE
    errors = None if show else subprocess.STDOUT
    return subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, text=True)


@contextmanager
def step(what: str) -> Iterator[None]:
    say(what)
    started = time.monotonic()
    yield
    if time.monotonic() - started > 2:
        say(f"  {time.monotonic() - started:.0f} s")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines())


if __name__ == "__main__":
    try:
        main()
    except Failed as failure:
        say(str(failure))
        sys.exit(3)
    except KeyboardInterrupt:
        say("interrupted; the same command goes on where this one stopped")
        sys.exit(130)
