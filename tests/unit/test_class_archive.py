"""The archive of classes: which one is used, when one is kept."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from penstock.spark.gateway import ClassArchive
from penstock.spark.java import JavaRuntime


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JavaRuntime:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "a cache"))
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.15"')
    return JavaRuntime(tmp_path / "java" / "bin" / "java", tmp_path / "java", 17)


def written_by(option: str) -> Path:
    return Path(shlex.split(option)[0].removeprefix("-XX:ArchiveClassesAtExit="))


def make(java: JavaRuntime, class_path: str = "a.jar") -> ClassArchive:
    archive = ClassArchive(java, class_path, Path("spark"))
    written_by(archive.make()).write_text("classes")
    archive.store(whole=True)
    return archive


def test_one_that_was_made_is_used_by_the_next_session(java: JavaRuntime) -> None:
    assert ClassArchive(java, "a.jar", Path("spark")).use() == ""
    make(java)
    again = ClassArchive(java, "a.jar", Path("spark"))
    assert again.exists
    assert shlex.split(again.use())[0].startswith("-XX:SharedArchiveFile=")


def test_another_class_path_or_another_java_has_its_own(java: JavaRuntime) -> None:
    make(java)
    assert not ClassArchive(java, "a.jar:b.jar", Path("spark")).exists
    assert not ClassArchive(java, "a.jar", Path("other spark")).exists
    (java.home / "release").write_text('JAVA_VERSION="17.0.16"')
    assert not ClassArchive(java, "a.jar", Path("spark")).exists


def test_another_jar_of_the_same_name_has_its_own(java: JavaRuntime, tmp_path: Path) -> None:
    """The JVM would refuse the old one, without a word, at every start."""
    jar = tmp_path / "penstock.jar"
    jar.write_text("one")
    make(java, str(jar))
    assert ClassArchive(java, str(jar), Path("spark")).exists
    jar.write_text("other")
    assert not ClassArchive(java, str(jar), Path("spark")).exists


def test_one_that_nobody_has_used_for_long_goes_when_another_comes(java: JavaRuntime) -> None:
    old, used = make(java, "a.jar"), make(java, "b.jar")
    for file in shlex.split(f"{old.use()} {used.use()}"):
        if file.startswith("-XX:SharedArchiveFile="):
            os.utime(file.partition("=")[2], (0, 0))
    used.use()
    other = make(java, "c.jar")
    assert (old.exists, used.exists, other.exists) == (False, True, True)


def test_what_a_jvm_left_that_did_not_end_by_itself_is_thrown_away(java: JavaRuntime) -> None:
    archive = ClassArchive(java, "a.jar", Path("spark"))
    half = written_by(archive.make())
    half.write_text("cla")
    archive.store(whole=False)
    assert not half.exists()
    assert not archive.exists


def test_a_jvm_that_wrote_none_is_no_error(java: JavaRuntime) -> None:
    archive = ClassArchive(java, "a.jar", Path("spark"))
    archive.make()
    archive.store(whole=True)
    assert not archive.exists


@pytest.mark.parametrize(("code", "damaged"), [(134, True), (0, False)])
def test_a_jvm_that_does_not_start_with_it_tells_that_it_is_damaged(
    java: JavaRuntime, code: int, *, damaged: bool
) -> None:
    archive = make(java)
    java.path.parent.mkdir()
    java.path.write_text(f"#!/bin/sh\ncase $1 in -XX:SharedArchiveFile=*) exit {code};; esac\n")
    java.path.chmod(0o755)
    assert archive.damaged() is damaged
    archive.remove()
    assert archive.use() == ""
    assert not archive.damaged(), "there is none"


def test_a_cache_that_cannot_be_written_is_no_error(java: JavaRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(java.home / "release"))
    assert ClassArchive(java, "a.jar", Path("spark")).make() == ""
