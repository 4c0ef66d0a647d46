import json
import os
from pathlib import Path

from bench.progress import DeltaProgress, Marks, Offsets, ParquetProgress


def _commit(table: Path, version: int, at: float, *actions: dict[str, object]) -> None:
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    file = log / f"{version:020}.json"
    file.write_text("\n".join(json.dumps(action) for action in actions))
    os.utime(file, (at, at))


def _add(rows: int | None) -> dict[str, object]:
    return {"add": {"path": "x", "stats": None if rows is None else json.dumps({"numRecords": rows})}}


def test_commits_without_rows_do_not_count(tmp_path: Path) -> None:
    _commit(tmp_path, 0, 10.0, {"metaData": {}})
    _commit(tmp_path, 1, 12.0, _add(3), _add(4))
    progress = DeltaProgress(tmp_path, Marks(tmp_path / "marks.json"))
    assert [(commit.number, commit.at, commit.rows) for commit in progress.commits()] == [(1, 12.0, 7)]


def test_rows_of_files_without_statistics_come_from_the_commit(tmp_path: Path) -> None:
    _commit(tmp_path, 0, 10.0, {"commitInfo": {"operationMetrics": {"numOutputRows": "5"}}}, _add(None))
    progress = DeltaProgress(tmp_path, Marks(tmp_path / "marks.json"))
    assert [commit.rows for commit in progress.commits()] == [5]


def test_later_commits_are_added_to_those_already_read(tmp_path: Path) -> None:
    progress = DeltaProgress(tmp_path, Marks(tmp_path / "marks.json"))
    assert progress.commits() == []
    _commit(tmp_path, 0, 10.0, _add(1))
    assert len(progress.commits()) == 1
    _commit(tmp_path, 1, 11.0, _add(1))
    assert len(progress.commits()) == 2


def test_the_first_batch_is_remembered_after_spark_removed_its_file(tmp_path: Path) -> None:
    for number in (0, 1):
        (tmp_path / str(number)).write_text("v1")
        os.utime(tmp_path / str(number), (10.0 + number, 10.0 + number))
    offsets = Offsets(tmp_path, lowest=1)
    assert offsets.first_batch() == 11.0
    (tmp_path / "1").unlink()
    assert offsets.first_batch() == 11.0


def test_every_tenth_batch_of_a_parquet_sink_is_a_compacted_file(tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    for name in ("0", "1", "2.compact", "3"):
        (log / name).write_text("v1")
    progress = ParquetProgress(tmp_path, Offsets(tmp_path / "offsets"), rows_per_batch=10)
    assert [commit.rows for commit in progress.commits()] == [10, 10, 10, 10]
