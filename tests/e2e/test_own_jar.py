"""The committed jar is what its sources compile to, byte by byte."""

from __future__ import annotations

import runpy
import zipfile
from pathlib import Path

import pytest

from penstock.spark.jars import own_jar

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "build_jar.py"))


@pytest.mark.skipif(
    SCRIPT["installed_jdk"]() != SCRIPT["JDK"],
    reason=f"javac {SCRIPT['JDK']} is not on the PATH; another release may compile to other bytes",
)
def test_building_it_again_gives_the_committed_one(tmp_path: Path) -> None:
    built = tmp_path / "built.jar"
    SCRIPT["build"](built)
    with zipfile.ZipFile(built) as fresh, zipfile.ZipFile(own_jar()) as committed:
        assert committed.namelist() == fresh.namelist(), "run `make jar`"
        different = [name for name in fresh.namelist() if committed.read(name) != fresh.read(name)]
    assert different == [], "run `make jar`"
    assert own_jar().read_bytes() == built.read_bytes()
