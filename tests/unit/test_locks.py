"""Locks of commands without a JVM, against real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.errors import Conflict, LockHeld
from penstock.storage.locks import JvmLock, NoLock, ProcessLock, acquire_commit, acquire_run, holder, lock_path, owner

HOLD = """
import sys, time
from penstock.storage.locks import ProcessLock
lock = ProcessLock(sys.argv[1])
print(lock.try_acquire(), flush=True)
time.sleep(float(sys.argv[2]))
"""
Holder = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return lock_path(str(tmp_path / "_penstock"), "bronze.orders", "commit")


@pytest.fixture
def hold(path: str) -> Iterator[Holder]:
    """Starts a process that takes the lock and keeps it for a while."""
    started: list[subprocess.Popen[str]] = []

    def start(seconds: float = 30.0) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, path, str(seconds)], stdout=subprocess.PIPE, text=True, env=os.environ
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "True"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_lock_held_by_another_process_is_not_given(path: str, hold: Holder) -> None:
    other = hold()
    lock = ProcessLock(path)
    assert not lock.try_acquire()
    assert holder(path) == other.pid


def test_a_killed_holder_frees_the_lock(path: str, hold: Holder) -> None:
    other = hold()
    lock = ProcessLock(path)
    assert not lock.try_acquire()
    os.kill(other.pid, signal.SIGKILL)
    other.wait()
    assert holder(path) is None
    assert lock.try_acquire()


def test_a_stopped_holder_keeps_the_lock(path: str, hold: Holder) -> None:
    other = hold()
    os.kill(other.pid, signal.SIGSTOP)
    assert not ProcessLock(path).try_acquire()
    assert holder(path) == other.pid


def test_nobody_holds_a_lock_that_was_never_taken_or_was_given_back(path: str) -> None:
    assert holder(path) is None
    assert not Path(path).exists()
    lock = ProcessLock(path)
    assert lock.try_acquire()
    lock.release()
    assert holder(path) is None
    lock.close()


def test_a_released_lock_is_given_to_the_next(path: str, hold: Holder) -> None:
    lock = ProcessLock(path)
    assert lock.try_acquire()
    lock.release()
    other = hold()
    assert holder(path) == other.pid


def test_a_commit_lock_is_waited_for(path: str, hold: Holder) -> None:
    hold(1.0)
    lock = ProcessLock(path)
    began = time.monotonic()
    acquire_commit(lock, "bronze.orders", patience=20)
    assert time.monotonic() - began > 0.3
    lock.close()


def test_a_commit_lock_that_is_never_given_back_is_a_conflict(path: str, hold: Holder) -> None:
    hold()
    with pytest.raises(Conflict, match="has held the commit lock"):
        acquire_commit(ProcessLock(path), "bronze.orders", patience=0.2)


def test_tables_and_kinds_have_locks_of_their_own(tmp_path: Path) -> None:
    paths = {lock_path(str(tmp_path), table, name) for table in ("a.x", "a.y") for name in ("run", "commit")}  # type: ignore[arg-type]
    assert len(paths) == 4


def test_no_lock_is_always_given() -> None:
    lock = NoLock()
    assert lock.try_acquire()
    lock.release()
    acquire_commit(lock, "bronze.orders", patience=0)


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00\x00"])
def test_a_lock_file_without_a_readable_signature_says_nothing(path: str, text: str) -> None:
    assert owner(path) == {}
    Path(path).parent.mkdir(parents=True)
    Path(path).write_text(text)
    assert owner(path) == {}


class Signed(ProcessLock):
    """A run lock as acquire_run takes it, without a JVM behind it."""

    signed = False

    def sign(self) -> None:
        self.signed = True


def _sign(path: str, python: int) -> None:
    signature = {"python": python, "jvm": 1, "host": socket.gethostname(), "since": "2026-01-01T00:00:00Z"}
    Path(path).write_text(json.dumps(signature))


def _as_jvm_lock(lock: Signed) -> JvmLock:
    return lock  # type: ignore[return-value]


def test_a_run_lock_held_by_a_living_runner_is_refused_at_once(path: str, hold: Holder) -> None:
    hold()
    _sign(path, os.getpid())
    began = time.monotonic()
    with pytest.raises(LockHeld, match=f"process {os.getpid()}, since 2026-01-01"):
        acquire_run(_as_jvm_lock(Signed(path)), path, "bronze.orders", patience=20)
    assert time.monotonic() - began < 2


def test_a_run_lock_of_a_runner_whose_python_is_dead_is_waited_for(path: str, hold: Holder) -> None:
    hold(1.0)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    _sign(path, dead.pid)
    lock = Signed(path)
    acquire_run(_as_jvm_lock(lock), path, "bronze.orders", patience=20)
    assert lock.signed


def test_a_zombie_is_dead(path: str, hold: Holder) -> None:
    hold(1.0)
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.monotonic() + 10
    while Path(f"/proc/{zombie.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    _sign(path, zombie.pid)
    acquire_run(_as_jvm_lock(Signed(path)), path, "bronze.orders", patience=20)
    zombie.wait()


def test_a_jvm_that_does_not_end_after_its_python_is_refused_in_the_end(path: str, hold: Holder) -> None:
    hold()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    _sign(path, dead.pid)
    with pytest.raises(LockHeld):
        acquire_run(_as_jvm_lock(Signed(path)), path, "bronze.orders", patience=0.3)
