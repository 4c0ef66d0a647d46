"""Locks between a JVM and other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import LockHeld
from penstock.storage.locks import JvmLock, ProcessLock, holder, lock_path, owner
from tests.integration.run_plan import TABLE, coordinates, produce, run, run_well, running, wait_for, whole_chain


@pytest.fixture
def path(tmp_path: Path) -> str:
    return lock_path(str(tmp_path), TABLE, "commit")


def jvm_pid(spark: Any) -> int:
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())


def test_a_lock_of_the_jvm_keeps_this_process_out(spark: Any, path: str) -> None:
    theirs, ours = JvmLock(spark, path), ProcessLock(path)
    assert theirs.try_acquire()
    assert not ours.try_acquire()
    assert holder(path) == jvm_pid(spark)
    theirs.release()
    assert holder(path) is None
    assert ours.try_acquire()
    ours.close()
    theirs.close()


def test_a_lock_of_this_process_keeps_the_jvm_out(spark: Any, path: str) -> None:
    theirs, ours = JvmLock(spark, path), ProcessLock(path)
    assert ours.try_acquire()
    assert not theirs.try_acquire()
    ours.release()
    assert theirs.try_acquire()
    theirs.close()
    assert ours.try_acquire()
    ours.close()


def test_a_lock_whose_file_was_removed_is_no_lock(spark: Any, path: str) -> None:
    lock = JvmLock(spark, path)
    assert lock.try_acquire()
    lock.release()
    Path(path).unlink()
    with pytest.raises(LockHeld, match="removed or replaced"):
        lock.try_acquire()
    other = JvmLock(spark, path)
    assert other.try_acquire()
    with pytest.raises(LockHeld, match="removed or replaced"):
        lock.try_acquire()
    assert holder(path) == jvm_pid(spark), "the refusal did not take the other's lock away"
    other.close()
    lock.close()


def test_two_users_of_one_jvm_keep_each_other_out(spark: Any, path: str) -> None:
    one, two = JvmLock(spark, path), JvmLock(spark, path)
    assert one.try_acquire()
    assert not two.try_acquire()
    one.release()
    assert two.try_acquire()
    two.close()
    one.close()


def test_a_run_lock_says_who_holds_it(spark: Any, tmp_path: Path) -> None:
    path = lock_path(str(tmp_path), TABLE, "run")
    lock = JvmLock(spark, path)
    assert lock.try_acquire()
    lock.sign()
    assert (owner(path)["python"], owner(path)["jvm"]) == (os.getpid(), jvm_pid(spark))
    lock.close()


@pytest.mark.deep  # test_run has it as a user sees it
def test_a_second_runner_of_a_table_in_another_process_is_refused_and_the_first_goes_on(
    spark: Any, broker: Any, topic: Any, project: Any
) -> None:
    name = topic()
    plan = project({TABLE: {"from": {"kafka": name}, "trigger": "1s"}})
    produced = produce(broker.bootstrap, name, 3)
    path = lock_path(plan.system, TABLE, "run")
    first = subprocess.Popen(
        [sys.executable, "-m", "penstock", "-C", plan.root, "run"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: Path(plan.tables[0].uri, "_delta_log", f"{1:020d}.json").exists(), patience=120)
        assert holder(path) is not None
        began = time.monotonic()
        error = run(spark, plan).errors[TABLE]
        assert isinstance(error, LockHeld)
        assert f"process {first.pid}" in str(error)
        assert time.monotonic() - began < 10
        produced += produce(broker.bootstrap, name, 3)
        wait_for(lambda: coordinates(plan) == produced, patience=60)
    finally:
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 0
    assert holder(path) is None
    produced += produce(broker.bootstrap, name, 3)
    run_well(spark, plan)
    assert coordinates(plan) == produced
    whole_chain(plan)


def test_a_runner_that_has_ended_gives_its_table_back(spark: Any, broker: Any, topic: Any, project: Any) -> None:
    plan = project({TABLE: {"from": {"kafka": topic()}, "trigger": "1s"}})
    path = lock_path(plan.system, TABLE, "run")
    with running(spark, plan):
        wait_for(lambda: holder(path) == jvm_pid(spark))
    assert holder(path) is None
