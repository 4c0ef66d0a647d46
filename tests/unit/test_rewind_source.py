"""Whether the files are there that a table would read again, while its source goes on growing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
