"""Whether the files are there that a table would read again, while its source goes on growing."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.ledger.position import Version
from penstock.operations.rewind import _missing
from penstock.plan.sources import DeltaSource, VersionStartPlan
from penstock.storage.stores import LocalStore


def add(folder: Path, version: int) -> None:
    """A commit of one file."""
    (folder / "_delta_log").mkdir(exist_ok=True)
    (folder / f"part-{version}.parquet").touch()
    added = {"add": {"path": f"part-{version}.parquet", "dataChange": True}}
    (folder / f"_delta_log/{version:020d}.json").write_text(json.dumps(added))


class Growing(LocalStore):
    """A batch commits while the log is read."""

    def read(self, path: str) -> str | None:
        if path.endswith("02.json") and not Path(path).exists():
            add(Path(path).parent.parent, 2)
        return super().read(path)


def missing(store: LocalStore, folder: Path) -> list[str]:
    source = DeltaSource(str(folder), "bronze.t", None, VersionStartPlan("earliest"), None, None)
    spark: Any = None
    return list(_missing(spark, store, source, Version("id", 0)))


def test_a_file_that_was_added_meanwhile_is_there(tmp_path: Path) -> None:
    add(tmp_path, 0)
    add(tmp_path, 1)
    assert missing(Growing(), tmp_path) == []


def test_a_file_that_a_vacuum_has_taken_is_missing(tmp_path: Path) -> None:
    add(tmp_path, 0)
    add(tmp_path, 1)
    (tmp_path / "part-1.parquet").unlink()
    assert missing(LocalStore(), tmp_path) == ["part-1.parquet"]


class Snapshot:
    """What Spark says of a table at a version: its files as Hadoop writes paths, names as they are on disk."""

    def __init__(self, *files: str) -> None:
        self._files = files
        self.read = self

    def format(self, _: str) -> Snapshot:
        return self

    def option(self, *_: Any) -> Snapshot:
        return self

    def load(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(inputFiles=lambda: list(self._files))


@pytest.mark.parametrize(
    "name",
    [
        "kind=orders/part-0.parquet",
        "kind=reorders/part-0.parquet",
        "orders/orders/part-0.parquet",
        "kind=a%2Fb/part-0.parquet",
        "kind=50%25/part 0.parquet",
        "part-0.parquet",
    ],
)
@pytest.mark.parametrize("scheme", ["file:", "file://"])
def test_files_of_a_snapshot_are_found_whatever_their_folders_are_called(
    tmp_path: Path, name: str, scheme: str
) -> None:
    folder = tmp_path / "my orders%20/orders"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).touch()
    source = DeltaSource(str(folder), "bronze.orders", None, VersionStartPlan("earliest"), None, None)
    spark: Any = Snapshot(f"{scheme}{folder}/{name}", f"{scheme}{folder}/{name}.gone")
    position = Version("id", 0, snapshot=True)
    assert list(_missing(spark, LocalStore(), source, position)) == [f"{name}.gone"]


def test_files_of_a_snapshot_on_an_object_store_are_found() -> None:
    store: Any = SimpleNamespace(read=lambda _: None, listing=lambda _: {"kind=reorders/a": 1})
    source = DeltaSource("s3a://orders/lake/orders", "orders", None, VersionStartPlan("earliest"), None, None)
    spark: Any = Snapshot(*(f"s3a://orders/lake/orders/{name}" for name in ("kind=reorders/a", "orders/b")))
    assert list(_missing(spark, store, source, Version("id", 0, snapshot=True))) == ["orders/b"]


def test_files_outside_the_folder_are_not_looked_for(tmp_path: Path) -> None:
    """A shallow clone reads the files of another table."""
    (tmp_path / "_delta_log").mkdir()
    actions = [
        {"add": {"path": path, "dataChange": True}}
        for path in ("file:/lake/a", "file:///lake/b", "/lake/c", "s3a://bucket/d", "kind=a%252Fb/e")
    ]
    (tmp_path / f"_delta_log/{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    assert missing(LocalStore(), tmp_path) == ["kind=a%2Fb/e"]
