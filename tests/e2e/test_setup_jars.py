"""Fetching jars, with the real Ivy: without a network, from a mirror, from a mirror that gives a wrong jar."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.spark.jars import jar_folder, jar_hashes

FETCH_SPARK = """
from penstock.spark.jars import spark_jars
from penstock.errors import PenstockError
try:
    print(len(spark_jars()))
except PenstockError as error:
    print(error)
    exit(error.exit_code)
"""


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A repository on disk with Spark's jars, and the Ivy settings that name it."""
    source = jar_folder("spark")
    if not source.is_dir():
        pytest.skip("the jars were not fetched: make setup")
    shutil.copytree(source, tmp_path / "mirror")
    (tmp_path / "settings.xml").write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers><filesystem name="mirror">'
        f'<artifact pattern="{tmp_path}/mirror/[artifact]-[revision].[ext]"/>'
        "</filesystem></resolvers></ivysettings>"
    )
    return tmp_path / "mirror"


def fetch_spark(folder: Path, **environment: str) -> subprocess.Popen[str]:
    """In an empty cache and an empty home."""
    home = {"PENSTOCK_CACHE": str(folder / "cache"), "HOME": str(folder / "home")}
    return subprocess.Popen(
        [sys.executable, "-c", FETCH_SPARK],
        env={**os.environ, **home, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=180)
    return process.returncode, out, err


def installed(folder: Path) -> list[Path]:
    return sorted((folder / "cache").glob("jars/*/spark/*.jar"))


def test_two_processes_fetch_from_a_mirror_at_once_and_both_have_the_jars(mirror: Path, tmp_path: Path) -> None:
    settings = str(tmp_path / "settings.xml")
    both = [fetch_spark(tmp_path, PENSTOCK_IVY_SETTINGS=settings) for _ in range(2)]
    results = [finished(process) for process in both]
    assert [(code, out) for code, out, _ in results] == [(0, "6\n"), (0, "6\n")], results
    assert len(installed(tmp_path)) == 6
    assert sum("6 jars arrived" in err for _, _, err in results) == 1
    assert all("::" not in err for _, _, err in results), "Ivy's own words reached the user"
    assert not (tmp_path / "home" / ".ivy2").exists()
    assert not list((tmp_path / "cache").glob("jars/*/.fetch-*"))


def test_a_mirror_that_gives_another_jar_is_refused_and_nothing_is_installed(mirror: Path, tmp_path: Path) -> None:
    wrong = mirror / "delta-storage-4.4.0.jar"
    wrong.write_bytes(b"not what was listed")
    code, out, _ = finished(fetch_spark(tmp_path, PENSTOCK_IVY_SETTINGS=str(tmp_path / "settings.xml")))
    assert code == 3
    assert "delta-storage-4.4.0.jar is not the right one" in out
    assert f"expected sha256 {jar_hashes()['spark'][wrong.name]}" in out
    assert "PENSTOCK_IVY_SETTINGS" in out
    assert installed(tmp_path) == []
    kept = list((tmp_path / "cache" / "refused").glob("*/*.jar"))
    assert [jar.read_bytes() for jar in kept] == [b"not what was listed"]


def test_without_network_the_error_says_so_and_what_to_do(tmp_path: Path) -> None:
    # A proxy that is not there cuts Java off from any repository, with or without a network.
    code, out, _ = finished(fetch_spark(tmp_path, https_proxy="http://127.0.0.1:1", HTTPS_PROXY="http://127.0.0.1:1"))
    assert code == 3
    assert "the repository of the jars cannot be reached" in out
    assert "HTTPS_PROXY" in out and "PENSTOCK_IVY_SETTINGS" in out
    assert "Traceback" not in out
    assert installed(tmp_path) == []


def test_a_mirror_that_lacks_a_jar_is_said_by_name(mirror: Path, tmp_path: Path) -> None:
    (mirror / "commons-pool2-2.12.0.jar").unlink()
    code, out, _ = finished(fetch_spark(tmp_path, PENSTOCK_IVY_SETTINGS=str(tmp_path / "settings.xml")))
    assert code == 3
    assert "commons-pool2" in out
    assert installed(tmp_path) == []


def test_settings_that_are_not_there_are_said(tmp_path: Path) -> None:
    code, out, _ = finished(fetch_spark(tmp_path, PENSTOCK_IVY_SETTINGS=str(tmp_path / "none.xml")))
    assert code == 3
    assert "none.xml, which is not a file" in out
