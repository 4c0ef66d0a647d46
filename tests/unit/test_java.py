"""Which Java is taken, and what is said when there is none that serves. The `java` here only says what it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.errors import SetupError
from penstock.spark.java import JavaRuntime, NoJava, find_java, java_proxy, java_version


def pretend_java(home: Path, version: str, code: int = 0) -> Path:
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {code}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java: an empty PATH."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(empty))
    return tmp_path


def test_without_java_the_error_says_how_to_get_one(bare: Path) -> None:
    with pytest.raises(SetupError) as caught:
        find_java()
    assert "no Java was found" in caught.value.message
    assert "apt-get install openjdk-17-jre-headless" in str(caught.value.hint)


def test_a_java_on_the_path_that_is_too_old_is_refused_by_name(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = pretend_java(bare / "old", "11.0.2")
    monkeypatch.setenv("PATH", str(old.parent))
    with pytest.raises(SetupError, match=r"old/bin/java is Java 11; Spark needs 17"):
        find_java()


def test_java_home_that_points_nowhere_is_an_error(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = pretend_java(bare / "good", "17.0.15")
    monkeypatch.setenv("PATH", str(good.parent))
    monkeypatch.setenv("JAVA_HOME", str(bare / "gone"))
    with pytest.raises(SetupError, match=r"JAVA_HOME is .*gone, where there is no bin/java"):
        find_java()


def test_java_home_that_is_too_old_is_an_error_even_with_a_newer_one_on_the_path(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = pretend_java(bare / "good", "17.0.15")
    pretend_java(bare / "old", "1.8.0_301")
    monkeypatch.setenv("PATH", str(good.parent))
    monkeypatch.setenv("JAVA_HOME", str(bare / "old"))
    with pytest.raises(SetupError, match=r"JAVA_HOME is .*old, which is Java 8"):
        find_java()


def test_java_home_goes_before_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = pretend_java(bare / "path", "17.0.15")
    pretend_java(bare / "home", "21.0.1")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    assert find_java() == JavaRuntime(bare / "home" / "bin" / "java", bare / "home", 21)


def test_a_java_that_does_not_run_counts_as_none(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = pretend_java(bare / "stub", "17.0.15", code=1)
    monkeypatch.setenv("PATH", str(stub.parent))
    with pytest.raises(SetupError, match="no Java was found"):
        find_java()


def test_the_home_is_found_behind_links(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = pretend_java(bare / "jvm" / "java-17", "17.0.15")
    link = bare / "bin" / "java"
    link.parent.mkdir()
    link.symlink_to(real)
    monkeypatch.setenv("PATH", str(link.parent))
    assert find_java().home == bare / "jvm" / "java-17"


def test_a_version_that_spark_is_not_tested_on_is_a_warning() -> None:
    assert JavaRuntime(Path("java"), Path(), 17).warning is None
    assert JavaRuntime(Path("java"), Path(), 21).warning is None
    assert "tested on 17 and 21" in str(JavaRuntime(Path("java"), Path(), 24).warning)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_301"', 8),
        ('openjdk version "24-ea" 2025-03-18', 24),
        ("command not found", None),
    ],
)
def test_the_version_is_read_from_what_java_prints(text: str, version: int | None) -> None:
    assert java_version(text) == version


def test_the_proxy_of_the_environment_reaches_java(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    assert java_proxy() == []
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    monkeypatch.setenv("no_proxy", "localhost,.example")
    assert java_proxy() == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.example",
    ]


def test_a_java_that_a_signal_ends_is_not_taken_for_a_missing_one(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a stop of the whole process group, in its first second, would install another Java."""
    for signal in ("TERM", "KILL"):
        path = pretend_java(bare / signal, "17.0.15")
        path.write_text(f"#!/bin/sh\nkill -{signal} $$\n")
        monkeypatch.setenv("PATH", str(path.parent))
        with pytest.raises(SetupError, match=r"signal \d+ ended .*java") as caught:
            find_java()
        assert not isinstance(caught.value, NoJava)
