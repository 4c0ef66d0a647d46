"""A cache of jars is right, or it is refused with what is wrong. Works on a copy of the user's own cache."""

from __future__ import annotations

import hashlib
import select
import shutil
import signal
import subprocess
import zipfile
from pathlib import Path

import pytest

from penstock.errors import SetupError
from penstock.spark import jars


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of Spark's jars in a cache of this test's own."""
    source = jars.jar_folder("spark")
    if not source.is_dir():
        pytest.skip("the jars were not fetched: make setup")
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path))
    return Path(shutil.copytree(source, jars.jar_folder("spark")))


def test_the_list_names_the_jars_of_every_set_with_whole_hashes() -> None:
    sets = jars.jar_hashes()
    assert {name: len(sets[name]) for name in jars.SETS} == {
        "spark": 6,
        "broker": 46,
        "connect": 68,
        "postgres": 1,
        "search": 53,
    }
    assert all(len(digest) == 64 for jars_of_set in sets.values() for digest in jars_of_set.values())


def test_a_right_cache_is_used_without_fetching(cached: Path) -> None:
    assert [jar.name for jar in jars.spark_jars()] == list(jars.jar_hashes()["spark"])
    assert all(jar.parent == cached and jar.is_file() for jar in jars.spark_jars())


def test_a_jar_with_another_hash_is_refused_and_left_there(cached: Path) -> None:
    victim = cached / "delta-storage-4.4.0.jar"
    victim.write_bytes(victim.read_bytes() + b"x")
    with pytest.raises(SetupError) as caught:
        jars.spark_jars()
    assert "delta-storage-4.4.0.jar is not the right one" in caught.value.message
    assert jars.jar_hashes()["spark"]["delta-storage-4.4.0.jar"] in caught.value.message
    assert f"rm -r {cached} && penstock jars fetch" in str(caught.value.hint)
    assert victim.exists()


def test_a_jar_swapped_for_one_of_the_same_size_is_noticed(cached: Path) -> None:
    jars.spark_jars()
    victim = cached / "delta-storage-4.4.0.jar"
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    with pytest.raises(SetupError, match="is not the right one"):
        jars.spark_jars()


def test_a_missing_jar_is_said(cached: Path) -> None:
    (cached / "commons-pool2-2.12.0.jar").unlink()
    with pytest.raises(SetupError, match=r"commons-pool2-2\.12\.0\.jar is missing"):
        jars.spark_jars()


def test_an_unlisted_jar_is_refused(cached: Path) -> None:
    (cached / "extra-1.0.jar").write_bytes(b"not a jar")
    with pytest.raises(SetupError, match=r"extra-1\.0\.jar is there but not in Penstock's list"):
        jars.spark_jars()


def test_jars_with_a_new_time_are_hashed_again_and_then_trusted(cached: Path) -> None:
    (cached / "delta-storage-4.4.0.jar").touch()
    before = (cached / jars.VERIFIED).read_text()
    jars.spark_jars()
    assert (cached / jars.VERIFIED).read_text() != before


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"PENSTOCK_CACHE": "/c", "XDG_CACHE_HOME": "/x"}, "/c"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/penstock"),
        ({"HOME": "/home/someone"}, "/home/someone/.cache/penstock"),
    ],
)
def test_where_the_cache_is(environment: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PENSTOCK_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert jars.cache_folder() == Path(folder)


def test_our_own_jar_was_built_from_the_sources_beside_it() -> None:
    own = jars.own_jar()
    folder = own.with_name("java")
    sources = sorted(folder.rglob("*.java"), key=lambda file: file.relative_to(folder).as_posix())
    with zipfile.ZipFile(own) as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode().replace("\r\n ", "")
        assert {"penstock/LocalFiles.class", "penstock/json/Decoder.class"} <= set(jar.namelist())
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
    assert f"Sources-SHA256: {digest}" in manifest, "run `make jar`"


@pytest.mark.parametrize(("silence", "last"), [(30.0, []), (0.3, ["SERVER ERROR: nothing was heard for 0.3 s"])])
def test_a_last_line_without_a_newline_is_read(
    silence: float, last: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the process ended behind it, or fell silent and was killed."""
    monkeypatch.setattr(jars, "SILENCE", silence)
    script = "printf 'one\\ntwo\\n\\nthree'" + ("; exec sleep 60" if last else "")
    process = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        assert select.select([process.stdout], [], [], 30.0)[0]
        assert list(jars._lines(process)) == ["one", "two", "", "three", *last]
    assert process.wait() == (-signal.SIGKILL if last else 0)
