"""How many listed files are not read yet, from the manifest's log."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.ledger.position import Version
from penstock.sources.files.backlog import unread
from penstock.storage.stores import LocalStore


def manifest(folder: Path, *commits: list[int], compaction: int | None = None) -> str:
    """A log whose versions, from 1 on, have data files that name so many files each."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    for version, counts in enumerate([[], *commits]):
        lines = [{"commitInfo": {}}]
        for count in counts:
            add = {"dataChange": version != compaction, "stats": json.dumps({"numRecords": count}), "size": 1}
            lines.append({"add": add})
        (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, lines)) + "\n")
    return str(folder)


def at(version: int, index: int = -1) -> str:
    return str(Version("id", version, index))


def test_whole_and_partly_read_versions_are_told_apart(tmp_path: Path) -> None:
    uri = manifest(tmp_path, [5, 5, 2], [3])
    assert unread(LocalStore(), uri, at(1)) == 15
    assert unread(LocalStore(), uri, at(1, 0)) == 10
    assert unread(LocalStore(), uri, at(1, 2)) == 3
    assert unread(LocalStore(), uri, at(2)) == 3
    assert unread(LocalStore(), uri, at(3)) == 0


def test_compaction_is_nothing_new(tmp_path: Path) -> None:
    assert unread(LocalStore(), manifest(tmp_path, [5], [5], [1], compaction=2), at(1)) == 6


def test_of_a_snapshot_it_is_not_known(tmp_path: Path) -> None:
    assert unread(LocalStore(), manifest(tmp_path, [5]), str(Version("id", 1, snapshot=True))) is None
