"""The local file system of a session: the rights that Hadoop's own gives, without a process per file."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _file_system(spark: SparkSession, folder: Path) -> tuple[Any, Any]:
    jvm, conf = spark._jvm, spark._jsc.hadoopConfiguration()
    assert jvm is not None
    return jvm, jvm.org.apache.hadoop.fs.Path(str(folder)).getFileSystem(conf)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _children(pid: int) -> int:
    """Processor time of the processes that this one started and that have ended, in ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[13]) + int(fields[14])


def test_a_session_on_a_local_lake_has_it_and_it_writes_checksums(spark: SparkSession, tmp_path: Path) -> None:
    jvm, files = _file_system(spark, tmp_path)
    assert files.getClass().getName() == "penstock.LocalFiles"
    files.create(jvm.org.apache.hadoop.fs.Path(str(tmp_path / "one"))).close()
    assert (tmp_path / ".one.crc").exists()
    assert (_mode(tmp_path / "one"), _mode(tmp_path / ".one.crc")) == (0o644, 0o644)


def test_rights_are_set_as_asked(spark: SparkSession, tmp_path: Path) -> None:
    jvm, files = _file_system(spark, tmp_path)
    path = jvm.org.apache.hadoop.fs.Path(str(tmp_path / "one"))
    files.create(path).close()
    for wanted in ("600", "640", "777", "444"):
        files.setPermission(path, jvm.org.apache.hadoop.fs.permission.FsPermission(wanted))
        assert _mode(tmp_path / "one") == int(wanted, 8)


def test_a_folder_keeps_the_group_that_it_hands_on(spark: SparkSession, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o2775)
    jvm, files = _file_system(spark, tmp_path)
    assert files.mkdirs(jvm.org.apache.hadoop.fs.Path(str(shared / "lake")))
    assert _mode(shared / "lake") == 0o2755
    files.setPermission(
        jvm.org.apache.hadoop.fs.Path(str(shared)), jvm.org.apache.hadoop.fs.permission.FsPermission("700")
    )
    assert _mode(shared) == 0o2700


def test_no_process_is_started_for_the_files_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    assert spark._jvm is not None
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    spark.range(1).write.format("delta").save(str(tmp_path / "t"))
    before = _children(pid)
    for _ in range(5):
        spark.range(1).write.format("delta").mode("append").save(str(tmp_path / "t"))
    assert _children(pid) == before
