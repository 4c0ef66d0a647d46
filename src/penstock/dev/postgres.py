"""A real PostgreSQL on this machine, for development, examples and tests."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from penstock.dev.process import LOOPBACK, Server, free_port
from penstock.errors import SetupError
from penstock.spark.java import apt_get, may_install

if TYPE_CHECKING:
    import psycopg


# Where PostgreSQL's programs are, and Debian's package of them where it is missing and we may install it.


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


# A real PostgreSQL on this machine, for development, examples and tests.
#
#     with Postgres() as postgres:                # a free port, a temporary folder
#         postgres.execute("CREATE TABLE customers (id int PRIMARY KEY, name text)")
#         postgres.execute("INSERT INTO customers VALUES (%s, %s)", 1, "Ada")
#         ...                                     # postgres.url is "jdbc:postgresql://127.0.0.1:<port>/postgres"
#
# It writes what logical decoding needs into its log (wal_level=logical), lets everybody on the loopback address in
# without a password, and ends with the Python process that started it, however that ends.


PATIENCE = 60.0
"""Seconds until a server that does not answer counts as failed. It takes one on an idle machine."""

_SETTINGS = {
    "wal_level": "logical",
    "listen_addresses": LOOPBACK,
    "timezone": "UTC",
    "shared_buffers": "32MB",
    # Its own files in its own folder, which goes in the end; not shared memory, which would stay.
    "dynamic_shared_memory_type": "mmap",
    # The kernel keeps what was written if the server is killed; only a power cut would need the disk.
    "fsync": "off",
}


class Postgres(Server):
    """Started by `start` or by entering it. After `stop` or `kill` it can be started again: same port, same data."""

    user = "postgres"
    """A superuser. Any password is right."""
    database = "postgres"

    def __init__(self) -> None:
        super().__init__("postgres")
        self.port = 0

    @property
    def url(self) -> str:
        """For JDBC."""
        return self.url_of(self.database)

    def url_of(self, database: str) -> str:
        return f"jdbc:postgresql://{LOOPBACK}:{self.port}/{database}"

    def connect(self, database: str | None = None, *, autocommit: bool = True) -> psycopg.Connection[Any]:
        """A connection of psycopg's, to be closed by the caller (`with postgres.connect() as …`)."""
        try:
            import psycopg
        except ImportError:
            raise SetupError("psycopg is not installed", hint="pip install 'psycopg[binary]'") from None
        return psycopg.connect(
            host=LOOPBACK, port=self.port, user=self.user, dbname=database or self.database, autocommit=autocommit
        )

    def execute(self, sql: str, *values: Any, database: str | None = None) -> list[tuple[Any, ...]]:
        """Run SQL in a connection of its own, committed; the rows, if it gives some. `%s` stands for a value.

        Without values it may be several statements, which are one transaction; the rows are the last one's then.
        """
        with self.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(sql.encode(), values or None)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []

    def create_database(self, name: str) -> str:
        """Its name, for `connect`, `execute` and `url_of`: a test that wants a database of its own."""
        from psycopg import sql

        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return name

    def start(self) -> Self:
        """Returns when it answers. SetupError says why it does not."""
        if self.running:
            return self
        programs = ensure_programs(_say)
        if not self._data.exists():
            self._make_cluster(programs)
        any_port = self.port == 0
        for _ in range(5):
            if any_port:
                self.port = free_port()
            if self._start_once(programs):
                return self
        raise self._failed("it was tried again and again")

    def stop(self) -> None:
        """As an operator would: clients are cut off, files are closed. The data stays."""
        self._end_by(signal.SIGINT)

    def kill(self) -> None:
        """As a crash would (SIGKILL). The data stays, and is recovered by the next start."""
        self._end(0.0)

    def _leave(self) -> None:
        self._end_by(signal.SIGQUIT)  # At once, but it gives its memory back, which SIGKILL would not.
        super()._leave()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _log(self) -> Path:
        return self.folder / "postgres.log"

    def _make_cluster(self, programs: Path) -> None:
        account = _unprivileged()
        if account is not None:
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        options = ["-A", "trust", "-U", self.user, "-E", "UTF8", "--locale=C", "--no-sync", "-D", str(self._data)]
        done = subprocess.run(
            [*_as(account), str(programs / "initdb"), *options],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            shutil.rmtree(self._data, ignore_errors=True)
            raise SetupError(
                f"initdb failed:{_last_lines(done.stdout)}",
                hint="check the space left on that disk; as root, TMPDIR must be a folder that other users may enter",
            )

    def _start_once(self, programs: Path) -> bool:
        """False if it is worth another try: a process took the port first, or an earlier server is still ending."""
        self._log.unlink(missing_ok=True)
        settings = {**_SETTINGS, "port": str(self.port), "unix_socket_directories": str(self.folder)}
        arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        command = [*_as(_unprivileged()), str(programs / "postgres"), "-D", str(self._data), *arguments]
        child = self._launch(command, self._log)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            code = child.exit_code()
            if code is not None:
                self._child = None
                if "could not bind" in self._told():
                    return False
                if "pre-existing shared memory block" in self._told():  # Those of a killed server have not all ended.
                    time.sleep(0.5)
                    return False
                raise self._failed(f"it ended with code {code}")
            if self._ready(child.pid):
                return True
            time.sleep(0.05)
        self._end(0.0)
        raise self._failed(f"it did not answer for {PATIENCE:.0f} s")

    def _ready(self, pid: int) -> bool:
        """By its pid file, which another server on our port does not write; a killed one leaves its own there."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[-1].strip() == "ready"

    def _end_by(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.exit_code() is None:
            self._child.send(number)
        # What follows SIGINT and SIGQUIT asks for less, and is ignored until its patience is over.
        self._end(20.0)

    def _told(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _failed(self, reason: str) -> SetupError:
        return SetupError(
            f"PostgreSQL did not start: {reason}{_last_lines(self._told())}",
            hint="check the memory and the space that are left on this machine",
        )


def _unprivileged() -> pwd.struct_passwd | None:
    """Whom to run it as if we are root, whom it refuses; None: as ourselves."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise SetupError(
        "PostgreSQL does not run as root, and there is neither a user postgres nor nobody",
        hint="useradd --system postgres",
    )


def _as(account: pwd.struct_passwd | None) -> list[str]:
    """What to put before a command, so that it takes the place of this process as that user."""
    if account is None:
        return []
    return ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", "--"]


def _last_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "FATAL" in line or "ERROR" in line or "error:" in line]
    return "".join(f"\n  {line[:300]}" for line in (telling or lines)[-3:])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
