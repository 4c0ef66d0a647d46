"""What set-up says on a machine that lacks something, and that a second one needs no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNREACHABLE = "http://127.0.0.1:1"


def set_up(root: Path, *before: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "PIP_FIND_LINKS")}
    return subprocess.run(
        [*before, str(root / "scripts" / "setup")],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


def programs(folder: Path, **scripts: str) -> str:
    """A PATH with only these programs and what a shell script needs."""
    folder.mkdir()
    for name in ("sh", "dirname"):
        (folder / name).symlink_to(str(shutil.which(name)))
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What set-up reads, without the rest and without a virtual environment."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "scripts", root / "scripts")
    for name in ("requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, root)
    return root


def test_a_python_that_is_too_old_is_named_with_what_to_do(checkout: Path, tmp_path: Path) -> None:
    done = set_up(checkout, PATH=programs(tmp_path / "bin", python3="echo 3.9.2"))
    assert done.returncode == 3
    assert f"needs Python 3.11 or newer; found only:\n  {tmp_path}/bin/python3 is Python 3.9.2" in done.stderr
    assert "make setup PYTHON=/path/to/python3.12" in done.stderr


def test_a_chosen_python_is_the_only_one_tried(tmp_path: Path) -> None:
    path = f"{programs(tmp_path / 'bin', old='echo 3.10.1')}:{os.environ['PATH']}"
    done = set_up(ROOT, PATH=path, PYTHON="old")
    assert done.returncode == 3
    assert "bin/old is Python 3.10.1" in done.stderr


def test_without_any_python_that_is_said(checkout: Path, tmp_path: Path) -> None:
    done = set_up(checkout, PATH=programs(tmp_path / "bin"))
    assert done.returncode == 3
    assert "no python3 was found" in done.stderr


def test_a_first_set_up_without_network_says_what_could_not_be_fetched(checkout: Path, tmp_path: Path) -> None:
    done = set_up(checkout, PIP_INDEX_URL=UNREACHABLE, HOME=str(tmp_path), PIP_NO_CACHE_DIR="1")
    assert done.returncode == 3
    assert "error: uv could not be fetched" in done.stderr
    assert "HTTPS_PROXY" in done.stderr and "PIP_INDEX_URL" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_second_set_up_takes_no_network_and_no_time() -> None:
    if not (ROOT / ".venv" / ".penstock-setup").exists():
        pytest.skip("this checkout was not set up by make setup")
    cut_off = (
        ["unshare", "-n"] if subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode == 0 else []
    )
    started = time.monotonic()
    done = set_up(ROOT, *cut_off, PIP_INDEX_URL=UNREACHABLE, HTTPS_PROXY=UNREACHABLE)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert time.monotonic() - started < 5.0  # Under one second on an idle machine.


def test_the_lock_pins_everything_by_hash_and_names_no_registry() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    pins = [line for line in lock.splitlines() if line and line[0].isalnum()]
    assert len(pins) > 30
    assert all("==" in pin and pin.endswith("\\") for pin in pins)
