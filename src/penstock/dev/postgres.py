"""A real PostgreSQL on this machine, for development, examples and tests.

    with Postgres() as postgres:                # a free port, a temporary folder
        postgres.execute("CREATE TABLE customers (id int PRIMARY KEY, name text)")
        postgres.execute("INSERT INTO customers VALUES (%s, %s)", 1, "Ada")
        ...                                     # postgres.url is "jdbc:postgresql://127.0.0.1:<port>/postgres"

It writes what logical decoding needs into its log (wal_level=logical), accepts every connection on the loopback
address without a password, and ends with the Python process that started it, however that ends.
"""

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

from penstock.dev.process import LOOPBACK, Server, TryAgain, free_port, reasons
from penstock.errors import SetupError
from penstock.spark.java import apt_get, may_install

if TYPE_CHECKING:
    import psycopg


# The programs of PostgreSQL, and Debian's package of them where they are missing and we may install it.


_DEBIAN = Path("/usr/lib/postgresql")
_DEBIAN_CLUSTER_CONF = Path("/etc/postgresql-common/createcluster.conf")
_INSTALL = "install it: apt-get install -y postgresql (Debian, Ubuntu), brew install postgresql (macOS)"
_NEEDED_PROGRAMS = ("postgres", "initdb")


def find_programs() -> Path | None:
    """The folder with `postgres` and `initdb`: that on the PATH, else Debian's newest, which is not on the PATH."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(_DEBIAN.glob("*/bin"), key=_version, reverse=True)
    return next(
        (folder for folder in folders if all(os.access(folder / name, os.X_OK) for name in _NEEDED_PROGRAMS)), None
    )


def ensure_programs(say: Callable[[str], None]) -> Path:
    """Like `find_programs`, but installs missing programs where it may (root on Debian), or raises SetupError."""
    folder = find_programs()
    if folder is None and may_install():
        say("PostgreSQL is missing: installing it with apt-get (about 60 MB)")
        apt_get("update", hint=_INSTALL)
        apt_get("install", "-y", "--no-install-recommends", "postgresql-common", hint=_INSTALL)
        with _without_debian_cluster():
            apt_get("install", "-y", "--no-install-recommends", "postgresql", hint=_INSTALL)
        folder = find_programs()
    if folder is None:
        raise SetupError(
            f"PostgreSQL was not found: no initdb on the PATH nor in {_DEBIAN}/*/bin",
            hint=_INSTALL,
        )
    return folder


@contextmanager
def _without_debian_cluster() -> Iterator[None]:
    """Without this setting the package creates a database cluster and starts it on port 5432."""
    old_text = _DEBIAN_CLUSTER_CONF.read_text() if _DEBIAN_CLUSTER_CONF.exists() else None
    _DEBIAN_CLUSTER_CONF.parent.mkdir(parents=True, exist_ok=True)
    _DEBIAN_CLUSTER_CONF.write_text(f"{old_text or ''}\ncreate_main_cluster = false\n")
    try:
        yield
    finally:
        if old_text is None:
            _DEBIAN_CLUSTER_CONF.unlink()
        else:
            _DEBIAN_CLUSTER_CONF.write_text(old_text)


def _version(folder: Path) -> float:
    try:
        return float(folder.parent.name)
    except ValueError:
        return 0.0


PATIENCE = 60.0
"""Seconds until a server that does not answer counts as failed. On an idle machine it takes one second."""

_SETTINGS = {
    "wal_level": "logical",
    "listen_addresses": LOOPBACK,
    "timezone": "UTC",
    "shared_buffers": "32MB",
    # Files in its own folder, which is removed in the end; not shared memory, which would stay.
    "dynamic_shared_memory_type": "mmap",
    # If the server is killed, the kernel keeps what was written; only a power cut would need fsync.
    "fsync": "off",
}


class Postgres(Server):
    """Started by `start` or `with`. After `stop` or `kill` it can be started again: same port, same data."""

    _title = "PostgreSQL"
    _hint = "check the memory and the space that are left on this machine"
    _logs = ("postgres.log",)
    user = "postgres"
    """A superuser. Any password is accepted."""
    database = "postgres"

    def __init__(self) -> None:
        super().__init__("postgres")
        self.port = 0

    @property
    def url(self) -> str:
        """The JDBC address of the default database."""
        return self.url_of(self.database)

    def url_of(self, database: str) -> str:
        return f"jdbc:postgresql://{LOOPBACK}:{self.port}/{database}"

    def connect(self, database: str | None = None, *, autocommit: bool = True) -> psycopg.Connection[Any]:
        """A psycopg connection, to be closed by the caller (`with postgres.connect() as …`)."""
        try:
            import psycopg
        except ImportError:
            raise SetupError("psycopg is not installed", hint="pip install 'psycopg[binary]'") from None
        return psycopg.connect(
            host=LOOPBACK, port=self.port, user=self.user, dbname=database or self.database, autocommit=autocommit
        )

    def execute(self, sql: str, *values: Any, database: str | None = None) -> list[tuple[Any, ...]]:
        """Runs SQL in its own connection, commits, and returns the rows, if any. `%s` stands for a value.

        Without values it may be several statements in one transaction; the rows are then those of the last one.
        """
        with self.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(sql.encode(), values or None)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []

    def create_database(self, name: str) -> str:
        """Creates a database for a test that needs its own; returns its name, for `connect`, `execute` and `url_of`."""
        from psycopg import sql

        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return name

    def start(self) -> Self:
        """Returns when the server answers. Raises SetupError with the reason if it does not."""
        if self.running:
            return self
        programs = ensure_programs(_say)
        if not self._data.exists():
            self._make_cluster(programs)
        any_port = self.port == 0
        for _ in range(5):
            if any_port:
                self.port = free_port()
            try:
                self._start_once(programs)
                return self
            except TryAgain:
                continue
        raise self._start_error("it was tried again and again")

    def stop(self) -> None:
        """Stops like an operator would: clients are disconnected, files are closed. The data stays."""
        self._end_with(signal.SIGINT)

    def kill(self) -> None:
        """Ends like in a crash (SIGKILL). The data stays, and is recovered by the next start."""
        self._end(0.0)

    def _leave(self) -> None:
        self._end_with(signal.SIGQUIT)  # Immediate, but it releases its shared memory, which SIGKILL would not.
        super()._leave()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    @property
    def _log(self) -> Path:
        return self.folder / "postgres.log"

    def _make_cluster(self, programs: Path) -> None:
        account = _unprivileged_account()
        if account is not None:
            os.chown(self.folder, account.pw_uid, account.pw_gid)
        options = ["-A", "trust", "-U", self.user, "-E", "UTF8", "--locale=C", "--no-sync", "-D", str(self._data)]
        result = subprocess.run(
            [*_run_as_prefix(account), str(programs / "initdb"), *options],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if result.returncode != 0:
            shutil.rmtree(self._data, ignore_errors=True)
            raise SetupError(
                f"initdb failed:{reasons(result.stdout)}",
                hint="check the space left on that disk; as root, TMPDIR must be a folder that other users may enter",
            )

    def _start_once(self, programs: Path) -> None:
        self._log.unlink(missing_ok=True)
        settings = {**_SETTINGS, "port": str(self.port), "unix_socket_directories": str(self.folder)}
        arguments = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        program = [*_run_as_prefix(_unprivileged_account()), str(programs / "postgres")]
        child = self._launch([*program, "-D", str(self._data), *arguments], self._log)
        self._wait_for_answer(child, lambda: self._ready(child.pid), PATIENCE)

    def _ended_error(self, code: int) -> SetupError:
        text = self._log_text()
        if "could not bind" in text:
            return TryAgain("another process took the port first")
        if "pre-existing shared memory block" in text:
            time.sleep(0.5)  # Not all processes of a killed server have ended.
            return TryAgain("an earlier server is still ending")
        return super()._ended_error(code)

    def _ready(self, pid: int) -> bool:
        """Checks the pid file, which another server on our port does not write. A killed one leaves its pid there."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return len(lines) >= 8 and lines[0].strip() == str(pid) and lines[-1].strip() == "ready"

    def _end_with(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.exit_code() is None:
            self._child.send(number)
        # The SIGTERM that follows asks for less than SIGINT and SIGQUIT, and is ignored until its patience is over.
        self._end(20.0)


def _unprivileged_account() -> pwd.struct_passwd | None:
    """The account to run it as if we are root, since it refuses to run as root; None to run as ourselves."""
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


def _run_as_prefix(account: pwd.struct_passwd | None) -> list[str]:
    """The prefix of a command that makes it run as that user, in the same process."""
    if account is None:
        return []
    return ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups", "--"]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
