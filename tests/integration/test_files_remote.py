"""Folders and lakes that are not on this machine's disk: listed by Spark, and by two at once each file once."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import Transient
from penstock.sources.files.listing import File, list_files
from penstock.sources.files.manifest import Lister, Manifest
from penstock.storage.stores import HadoopStore
from tests.integration.folders import TABLE, Folder, manifest, source_of
from tests.integration.run_plan import run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.plan.model import Plan


def by_uri(plan: Plan) -> Plan:
    """The lake reached by a `file:` URI: every step takes the way that an object store takes."""

    def uri(path: str) -> str:
        return f"file://{path}"

    source = source_of(plan)
    there = replace(source, uri=uri(source.uri), stored=uri(source.stored), reads=uri(source.reads))
    tables = tuple(replace(t, uri=uri(t.uri), checkpoints=uri(t.checkpoints), source=there) for t in plan.tables)
    return replace(plan, lake=uri(plan.lake), tables=tables)


@pytest.mark.deep
def test_on_an_object_store(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, {"max_files": 2})
    for number in range(3):
        folder.put(f"{number}.json")
    run_well(spark, by_uri(folder.plan))
    folder.put("3.json", bad=(0,))
    (folder.path / "4.json.gz").write_bytes(b"not gzip")
    run_well(spark, by_uri(folder.plan))
    run_well(spark, by_uri(folder.plan))
    folder.check()
    assert folder.unreadable() == Counter(["in/4.json.gz"])


@pytest.mark.deep
def test_two_that_list_at_once_list_a_file_once(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, {"max_files": 3})
    for number in range(7):
        folder.put(f"{number}.json", 1)
    source = source_of(by_uri(folder.plan))
    listers = [Lister(spark, HadoopStore(spark), source, TABLE) for _ in range(3)]
    threads = [threading.Thread(target=one.scan) for one in listers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert manifest(folder) == Counter(f"in/{number}.json" for number in range(7))


@pytest.mark.deep
def test_a_remote_folder_is_listed_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, {"pattern": "*.json"})
    for name in ("a b.json", "x/ü.json", "x/_no.json", "_x/no.json", "c.txt"):
        folder.write(name, "{}\n")
    there = source_of(folder.plan)
    remote = replace(there, folder=f"file://{there.folder}")
    found = list_files(spark, remote, TABLE).files
    assert sorted(file.name.rpartition("/in/")[2] for file in found) == ["a b.json", "x/ü.json"]
    by_name = {file.name.rpartition("/in/")[2]: (file.size, file.modified_ms) for file in found}
    mine = {
        file.name.removeprefix("in/"): (file.size, file.modified_ms) for file in list_files(spark, there, TABLE).files
    }
    assert by_name == mine
    with pytest.raises(Transient):
        list_files(spark, replace(remote, folder=f"file://{tmp_path}/nowhere"), TABLE)


def test_a_file_is_listed_once_by_two_of_which_one_has_seen_a_compaction(spark: SparkSession, tmp_path: Path) -> None:
    """It adds no file, and is a version: whoever has seen it has not seen what is added after it."""
    folder = Folder(spark, tmp_path)
    source = source_of(by_uri(folder.plan))
    listed = Manifest(spark, HadoopStore(spark), source.uri, TABLE)
    listed.create()
    listed.add([File("in/0.json", 1, 0)], 3, 0, alone=False)
    spark.sql(f"ALTER TABLE delta.`{source.uri}` SET TBLPROPERTIES ('a' = 'b')")
    for seen in (1, 2):
        listed.add([File("in/1.json", 1, 0)], 3, seen, alone=False)
    assert manifest(folder) == Counter(["in/0.json", "in/1.json"])
