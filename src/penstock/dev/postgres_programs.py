"""Where PostgreSQL's programs are, and Debian's package of them where it is missing and we may install it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.engine.apt import apt_get, may_install
from penstock.errors import SetupError

_DEBIAN = Path("/usr/lib/postgresql")
_NEW_CLUSTERS = Path("/etc/postgresql-common/createcluster.conf")
_INSTALL = "install it: apt-get install -y postgresql (Debian, Ubuntu), brew install postgresql (macOS)"
_NEEDED = ("postgres", "initdb")


def find_programs() -> Path | None:
    """The folder with `postgres` and `initdb`: that of the PATH, else Debian's newest, which is not on the PATH."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(_DEBIAN.glob("*/bin"), key=_version, reverse=True)
    return next((folder for folder in folders if all(os.access(folder / name, os.X_OK) for name in _NEEDED)), None)


def ensure_programs(say: Callable[[str], None]) -> Path:
    """As `find_programs`; but where Penstock may (root on Debian) a missing one is installed. SetupError if not."""
    found = find_programs()
    if found is None and may_install():
        say("PostgreSQL is missing: installing it with apt-get (about 60 MB)")
        apt_get("update", hint=_INSTALL)
        apt_get("install", "-y", "--no-install-recommends", "postgresql-common", hint=_INSTALL)
        with _no_server_of_debians_own():
            apt_get("install", "-y", "--no-install-recommends", "postgresql", hint=_INSTALL)
        found = find_programs()
    if found is None:
        raise SetupError(
            f"PostgreSQL was not found: no initdb on the PATH nor in {_DEBIAN}/*/bin",
            hint=_INSTALL,
        )
    return found


@contextmanager
def _no_server_of_debians_own() -> Iterator[None]:
    """The package makes a database cluster and starts it on port 5432, unless it is told not to."""
    before = _NEW_CLUSTERS.read_text() if _NEW_CLUSTERS.exists() else None
    _NEW_CLUSTERS.parent.mkdir(parents=True, exist_ok=True)
    _NEW_CLUSTERS.write_text(f"{before or ''}\ncreate_main_cluster = false\n")
    try:
        yield
    finally:
        if before is None:
            _NEW_CLUSTERS.unlink()
        else:
            _NEW_CLUSTERS.write_text(before)


def _version(folder: Path) -> float:
    try:
        return float(folder.parent.name)
    except ValueError:
        return 0.0
