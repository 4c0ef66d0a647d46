"""How `penstock run` ends: by a signal in whatever phase, within its bound; and when its JVM dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kills import jvm_of
from tests.e2e.slow_project import TABLES, Runner, Stopping

BOUND = 6
MARGIN = 4
"""Seconds: the machine may be busy with other tests."""


@pytest.fixture
def project(tmp_path: Path, broker: Any, topic: Any) -> Stopping:
    made = Stopping(tmp_path, broker.bootstrap, topic(2))
    made.send()
    return made


@pytest.fixture
def run(project: Stopping) -> Iterator[Callable[..., Runner]]:
    started: list[Runner] = []

    def start(*arguments: str) -> Runner:
        started.append(Runner(project, "--stop-timeout", f"{BOUND}s", *arguments))
        return started[-1]

    yield start
    for runner in started:
        runner.kill()


def no_noise(output: str) -> None:
    for noise in ("Traceback", "Py4J", "py4j", "WARN", "An error occurred while calling"):
        assert noise not in output, output


def test_a_stop_is_bounded_and_a_dead_jvm_is_one_message_in_every_phase_of_a_run(
    project: Stopping, run: Callable[..., Runner]
) -> None:
    starting = run()
    starting.wait_for_jvm()
    starting.send(signal.SIGTERM)
    said = starting.ended(within=BOUND + MARGIN)
    assert starting.process.returncode == 0, said
    assert "stopped while Spark was starting" in said
    no_noise(said)

    project.slow()
    busy = run()
    busy.wait_for_batch()
    busy.send(signal.SIGTERM)
    waiting = rf"stopping: waiting up to {BOUND} s for (1 batch|2 batches) in flight"
    busy.wait_for(lambda: re.search(waiting, busy.output), patience=2)
    said = busy.ended(within=BOUND + MARGIN)
    assert busy.process.returncode == 0, said
    assert "abandoned batch 1.1 of silver.orders; the next start repeats it" in said
    assert "of bronze.orders" not in said
    no_noise(said)
    assert {table: one["state"] for table, one in project.states().items()} == dict.fromkeys(TABLES, "stopped")

    project.quick()
    project.send()
    killed = run()
    killed.wait_for(lambda: all(project.state(table) == "running" for table in TABLES))
    jvm = jvm_of(killed.process)
    assert jvm is not None
    os.kill(jvm, signal.SIGKILL)
    said = killed.ended(within=20)
    assert killed.process.returncode == 3, said
    assert said.count("the JVM ended") == 1 and said.count("\nerror") <= 1, said
    (log,) = (project.folder / ".penstock/logs").glob(f"spark-*-{killed.process.pid}.log")
    assert str(log) in said
    no_noise(said)
    for one in project.states().values():
        assert one["state"] == "failed" and "the JVM ended" in one["reason"]

    project.finish()


def test_a_timeout_that_is_none_is_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "penstock.yml").write_text("name: x\nlake: ./lake\ntables: {}\n")
    found = subprocess.run(
        [sys.executable, "-m", "penstock", "-C", str(tmp_path), "run", "--stop-timeout", "20"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert found.returncode == 2
    assert "--stop-timeout" in found.stderr and "needs a unit" in found.stderr


def running(runner: Runner) -> None:
    runner.wait_for(lambda: all(runner.project.state(table) == "running" for table in TABLES))


def idle(runner: Runner) -> None:
    log = runner.project.folder / "lake/silver/orders/_delta_log"
    runner.wait_for(lambda: any(log.glob("*1.json")))


def batch_in_driver(runner: Runner) -> None:
    """A transform is called once when its table starts, and then by every batch."""
    idle(runner)
    runner.project.slow("slow driver")
    runner.project.send()
    runner.wait_for_batch()


def transform_at_start(runner: Runner) -> None:
    runner.project.slow("slow driver")
    runner.wait_for_batch()


PHASES: dict[str, Callable[[Runner], object]] = {
    "before spark-submit": lambda runner: runner.wait_for(lambda: "starting Spark" in runner.output),
    "spark-submit starts": Runner.wait_for_jvm,
    "the context starts": lambda runner: (runner.wait_for_jvm(), time.sleep(3)),
    "tables start": lambda runner: runner.wait_for(lambda: runner.project.state(TABLES[0]) == "starting"),
    "tables begin": running,
    "a batch in workers": Runner.wait_for_batch,
    "a transform at the start": transform_at_start,
    "a batch in the driver": batch_in_driver,
    "idle": idle,
}


@pytest.mark.deep  # each phase is a start of Spark or two; the test above has the most telling ones
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("phase", PHASES)
def test_a_signal_in_any_phase_ends_the_run_in_time_and_the_next_one_lands_every_row_once(
    project: Stopping, run: Callable[..., Runner], phase: str, number: signal.Signals
) -> None:
    if phase == "a batch in workers":
        project.slow()
    runner = run()
    PHASES[phase](runner)
    runner.send(number)
    said = runner.ended(within=BOUND + MARGIN)
    assert runner.process.returncode == 0, said
    assert "stopp" in said
    assert (re.search(r"abandoned batch 1\.\d of silver\.orders", said) is not None) == ("batch" in phase), said
    assert ("abandoned the start of silver.orders" in said) or phase != "a transform at the start", said
    no_noise(said)
    assert {one["state"] for one in project.states().values()} <= {"stopped", "not created"}
    project.finish()


@pytest.mark.deep
def test_ctrl_c_in_any_moment_of_the_start_is_a_stop(project: Stopping, run: Callable[..., Runner]) -> None:
    """PySpark brings a handler of its own while its context starts."""
    for tenths in range(0, 60, 4):
        runner = run()
        runner.wait_for_jvm()
        time.sleep(tenths / 10)
        runner.send(signal.SIGINT)
        said = runner.ended(within=BOUND + MARGIN)
        assert runner.process.returncode == 0, (tenths, said)
        assert "stopp" in said, (tenths, said)
        no_noise(said)
    project.finish()


@pytest.mark.deep
@pytest.mark.parametrize("phase", ["a batch in workers", "a batch in the driver", "tables start"])
def test_a_second_signal_ends_the_run_at_once_and_it_is_recorded_as_stopped(
    project: Stopping, run: Callable[..., Runner], phase: str
) -> None:
    if phase == "a batch in workers":
        project.slow()
    runner = run()
    PHASES[phase](runner)
    runner.send(signal.SIGTERM)
    time.sleep(0.5)
    runner.send(signal.SIGTERM)
    said = runner.ended(within=3)
    assert runner.process.returncode == 143, said
    no_noise(said)
    assert {one["state"] for one in project.states().values()} <= {"stopped", "not created"}
    project.finish()


@pytest.mark.deep
def test_a_signal_for_the_whole_group_is_a_stop_and_no_death_of_the_jvm(
    project: Stopping, run: Callable[..., Runner]
) -> None:
    """As systemd sends it: to every process of the service, at once."""
    project.slow()
    runner = run()
    runner.wait_for_batch()
    os.killpg(runner.process.pid, signal.SIGTERM)
    said = runner.ended(within=BOUND + MARGIN)
    assert runner.process.returncode == 0, said
    assert "abandoned batch 1.1 of silver.orders" in said and "the JVM ended" not in said
    no_noise(said)
    project.finish()


@pytest.mark.deep
@pytest.mark.parametrize("phase", ["spark-submit starts", "the context starts", "tables start", "a batch in workers"])
def test_a_jvm_that_is_killed_in_any_phase_is_one_message(
    project: Stopping, run: Callable[..., Runner], phase: str
) -> None:
    if "batch" in phase:
        project.slow()
    runner = run()
    PHASES[phase](runner)
    jvm = jvm_of(runner.process)
    assert jvm is not None
    os.kill(jvm, signal.SIGKILL)
    said = runner.ended(within=20)
    assert runner.process.returncode == 3, said
    assert said.count("the JVM ended") + said.count("the JVM did not start") == 1, said
    no_noise(said)
    project.finish()
