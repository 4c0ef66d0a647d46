"""Table locks of a local lake: Delta's local log store cannot tell two processes apart.

*run* is held for the life of a runner, *commit* from before a batch's first read of the table until after its last
commit, *replay* while a process rebuilds the table next to its runner, *upkeep* during maintenance of its files. All
are POSIX record locks, so they end with their process however it dies. The process that commits is the JVM, and Python
can die before it: there the locks are taken by the JVM. Commands without a JVM lock the same files with fcntl. Object
stores need none of this."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any, Literal, Protocol

from py4j.protocol import Py4JJavaError

from penstock.errors import Conflict, LockHeld
from penstock.spark.jvm import jvm_of

Name = Literal["run", "commit", "replay", "upkeep"]
_PATIENCE = 0.005
"""Seconds between two attempts to take a commit lock: a batch holds it for a tenth of a second."""


class Lock(Protocol):
    def try_acquire(self) -> bool: ...

    def release(self) -> None: ...

    def close(self) -> None: ...


class RunLock(Lock, Protocol):
    def sign(self) -> None:
        """Writes who holds it, for the message that another process shows."""


class NoLock:
    """For stores that can tell two writers apart themselves."""

    def try_acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass


class JvmLock:
    """Held by the JVM behind `spark`; the file says who holds it."""

    def __init__(self, spark: Any, path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        jvm = jvm_of(spark)
        self._path = path
        self._file = jvm.java.io.RandomAccessFile(path, "rw")
        self._channel = self._file.getChannel()
        self._inode = _inode(path)
        self._jvm_pid = int(jvm.java.lang.ProcessHandle.current().pid())
        self._file_lock: Any = None

    def try_acquire(self) -> bool:
        try:
            self._file_lock = self._channel.tryLock()
        except Py4JJavaError as error:
            if "OverlappingFileLockException" not in str(error.java_exception.getClass().getName()):
                raise
            return False
        if self._file_lock is not None and _inode(self._path) != self._inode:
            self.release()
            raise LockHeld(
                f"the lock file {self._path} was removed or replaced under this process, so it locks nothing",
                hint="leave the folder alone; make sure that no other process runs this table, then start again",
            )
        return self._file_lock is not None

    def sign(self) -> None:
        """Writes who holds the lock, for the message that another process shows."""
        self._file.setLength(0)
        self._file.seek(0)
        self._file.writeBytes(json.dumps(_owner_document(self._jvm_pid)))

    def release(self) -> None:
        if self._file_lock is not None:
            self._file_lock.release()
            self._file_lock = None

    def close(self) -> None:
        """Closing the file releases the lock as well."""
        self._channel.close()
        self._file_lock = None


class ProcessLock:
    """The same file, locked by this Python process."""

    def __init__(self, path: str) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)

    def try_acquire(self) -> bool:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def sign(self) -> None:
        """Writes through the open file that holds the lock: closing another handle of it would release the lock."""
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(_owner_document(os.getpid())).encode(), 0)

    def release(self) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        os.close(self._file)


def _inode(path: str) -> int | None:
    try:
        return Path(path).stat().st_ino
    except FileNotFoundError:
        return None


def lock_path(system: str, table: str, name: Name) -> str:
    return f"{system}/locks/{table}.{name}"


def holder(path: str) -> int | None:
    """The process that holds the lock, found without taking it; None if nobody does."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        if sys.platform != "linux":
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
        request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, request))
        return None if kind == fcntl.F_UNLCK else int(pid)
    except BlockingIOError:
        return int(owner(path).get("jvm", 0))
    finally:
        os.close(file)


def owner(path: str) -> dict[str, Any]:
    """What the last holder wrote about itself; {} if nothing is readable."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def acquire_run(lock: RunLock, path: str, table: str, *, patience: float = 20.0) -> None:
    """Takes the run lock, or raises with its holder. Waits only for a JVM whose Python is dead: it is about to end."""
    deadline = time.monotonic() + patience
    while not lock.try_acquire():
        held_by = owner(path)
        python = held_by.get("python")
        dying = isinstance(python, int) and held_by.get("host") == socket.gethostname() and not _is_alive(python)
        if not dying or time.monotonic() > deadline:
            raise LockHeld(
                f"another penstock process works on this table (process {python}, since {held_by.get('since')})",
                where=table,
                hint="stop that one first, or name other tables: `penstock run TABLE…`",
            )
        time.sleep(0.1)
    lock.sign()


def acquire_commit(lock: Lock, table: str, *, patience: float = 120.0) -> None:
    """Takes the commit lock, and waits while another command commits to the table."""
    deadline = time.monotonic() + patience
    while not lock.try_acquire():
        if time.monotonic() > deadline:
            raise Conflict(
                f"another process has held the commit lock for {patience:.0f} s",
                where=table,
                hint="`penstock status` shows who works on the table",
            )
        time.sleep(_PATIENCE)


def _owner_document(jvm_pid: int) -> dict[str, Any]:
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"python": os.getpid(), "jvm": jvm_pid, "host": socket.gethostname(), "since": since}


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False
