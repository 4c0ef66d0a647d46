"""Files that cannot be read: in quarantine by name, once, and the others of the batch are read."""

from __future__ import annotations

import base64
import gzip
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.sources.files.unreadable import UnreadableFile
from tests.integration.folders import Folder
from tests.integration.run_plan import quarantine_dies_once, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def truncated(text: str) -> bytes:
    whole = gzip.compress(text.encode())
    return whole[: len(whole) // 2]


@pytest.mark.deep
def test_json_a_truncated_file_among_good_ones(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    folder.put("a.json.gz", 5)
    lines = "".join(f'{{"id": {number}, "name": "{number * 7919}"}}\n' for number in range(2000))
    (folder.path / "b.json.gz").write_bytes(truncated(lines))
    (folder.path / "c.json.gz").write_bytes(b"this is no gzip at all")
    folder.put("d.json", 5, bad=(2,))
    heard = folder.run()
    folder.check()
    assert folder.unreadable() == Counter(["in/b.json.gz", "in/c.json.gz"])
    reasons = {row["_source"]["file"]: row["error_detail"] for row in folder.quarantine}
    assert "ends too early" in reasons["in/b.json.gz"]
    assert heard.heard("2 files could not be read and went to quarantine: in/b.json.gz (it ends too early")
    assert heard.batches[-1].row_counts["rejected"] == 3
    folder.run()
    folder.check()
    assert len(folder.quarantine) == 3


@pytest.mark.deep
def test_csv_a_truncated_file_and_one_without_the_header(spark: SparkSession, tmp_path: Path) -> None:
    source = {"format": "csv", "schema": "id BIGINT, name STRING", "options": {"header": True}}
    folder = Folder(spark, tmp_path, source)
    folder.write("a.csv", "id,name\n1,x\n2,y\n")
    (folder.path / "b.csv.gz").write_bytes(truncated("id,name\n" + "".join(f"{n},{n * 7919}\n" for n in range(5000))))
    folder.write("c.csv", "7,z\n8,z\n")
    folder.run()
    assert folder.ids() == Counter([1, 2])
    assert folder.unreadable() == Counter(["in/b.csv.gz", "in/c.csv"])
    reasons = {row["_source"]["file"]: row["error_detail"] for row in folder.quarantine}
    assert reasons["in/c.csv"] == "its first line names none of the table's columns: `7,z`"


@pytest.mark.parametrize("new_fields", [pytest.param("ignore", marks=pytest.mark.deep), "add"])
def test_parquet_broken_footers_broken_pages_and_other_types(
    spark: SparkSession, tmp_path: Path, new_fields: str
) -> None:
    folder = Folder(
        spark, tmp_path, {"format": "parquet", "schema": "id BIGINT, name STRING", "new_fields": new_fields}
    )
    folder.parquet("a.parquet", "id BIGINT, name STRING", (1, "x"), (2, "y"))
    broken = folder.parquet("b.parquet", "id BIGINT, name STRING", *((n, str(n)) for n in range(100)))
    broken.write_bytes(broken.read_bytes()[:-20])
    pages = folder.parquet("c.parquet", "id BIGINT, name STRING", *((n, str(n * 7919)) for n in range(5000)))
    content = bytearray(pages.read_bytes())
    content[4:600] = b"\x00" * 596
    pages.write_bytes(bytes(content))
    folder.write("d.parquet", "")
    folder.parquet("e.parquet", "id STRING, name STRING", ("three", "z"))
    folder.parquet("f.parquet", "id BIGINT, name STRING", (4, "z"))
    folder.run()
    assert folder.ids() == Counter([1, 2, 4])
    assert folder.unreadable() == Counter([f"in/{letter}.parquet" for letter in "bcde"])
    assert all(row["error_detail"] for row in folder.quarantine)
    folder.run()
    assert len(folder.quarantine) == 4


@pytest.mark.deep
def test_a_file_that_is_deleted_before_it_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.sources.files.manifest import Lister

    folder = Folder(spark, tmp_path)
    folder.put("a.json")
    gone = folder.write("b.json", '{"id": 9}\n')
    look = Lister.scan

    def deletes(self: Lister) -> list[str]:
        said = look(self)
        gone.unlink(missing_ok=True)
        return said

    monkeypatch.setattr(Lister, "scan", deletes)
    folder.run()
    folder.check()
    assert [(row["_source"]["file"], row["error_detail"]) for row in folder.quarantine] == [
        ("in/b.json", "it was deleted before it was read")
    ]


@pytest.mark.deep
def test_only_broken_files_move_on(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path)
    for number in range(5):
        (folder.path / f"{number}.json.gz").write_bytes(b"no gzip")
    folder.run()
    assert folder.rows() == []
    assert folder.unreadable() == Counter(f"in/{number}.json.gz" for number in range(5))
    folder.put("a.json")
    folder.run()
    folder.check()


def test_the_decision_survives_a_crash_before_the_quarantine(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken file is whole again when the batch is completed: it is not in the table, so it stays in quarantine."""
    folder = Folder(spark, tmp_path)
    folder.put("a.json", 4, bad=(1,))
    (folder.path / "b.json.gz").write_bytes(b"no gzip")
    quarantine_dies_once(monkeypatch)
    run(spark, folder.plan)
    monkeypatch.undo()
    (folder.path / "b.json.gz").write_bytes(gzip.compress(b'{"id": 5}\n'))
    folder.run()
    folder.check()
    assert folder.unreadable() == Counter(["in/b.json.gz"])
    assert len(folder.quarantine) == 2


@pytest.mark.deep
def test_a_file_that_goes_before_its_rejected_rows_are_kept_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.tables.quarantine import Quarantine

    folder = Folder(spark, tmp_path)
    folder.put("a.json", 4, bad=(1,))
    folder.put("b.json", 4, bad=(1,))
    monkeypatch.setattr("penstock.runtime.table_runner.TRIES_UNEXPLAINED", 1)

    def dies(self: Quarantine, *given: Any) -> int:
        raise RuntimeError("killed between the two commits")

    monkeypatch.setattr(Quarantine, "add", dies)
    run(spark, folder.plan)
    monkeypatch.undo()
    (folder.path / "a.json").unlink()
    folder.run()
    folder.check()
    assert folder.unreadable() == Counter(["in/a.json"])
    details = [row["error_detail"] for row in folder.quarantine if row["error_reason"] == "unreadable_file"]
    assert "its good rows are in the table" in details[0]
    assert len(folder.quarantine) == 2


@pytest.mark.deep
def test_a_file_that_is_away_for_a_moment_is_tried_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(spark, tmp_path)
    folder.put("a.json")
    away = folder.path / "b.json.gz"
    away.write_bytes(b"no gzip")
    times: list[int] = []

    def not_now(error: BaseException) -> UnreadableFile:
        times.append(1)
        if len(times) == 2:
            away.write_bytes(gzip.compress(b'{"id": 5, "name": "back"}\n'))
        return UnreadableFile("away", "the store does not answer")

    monkeypatch.setattr("penstock.sources.files.unreadable.classify_error", not_now)
    heard = folder.run()
    assert heard.heard("in/b.json.gz cannot be read now: the store does not answer")
    folder.there["in/b.json.gz", 0, 5] += 1
    folder.check()
    assert folder.quarantine == []


@pytest.mark.deep
def test_a_file_that_stays_away_is_given_up(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(spark, tmp_path)
    folder.put("a.json")
    (folder.path / "b.json.gz").write_bytes(b"no gzip")
    monkeypatch.setattr(
        "penstock.sources.files.unreadable.classify_error",
        lambda _: UnreadableFile("away", "the store does not answer"),
    )
    folder.run()
    folder.check()
    assert folder.unreadable() == Counter(["in/b.json.gz"])


@pytest.mark.deep
def test_what_is_wrong_with_the_definition_is_not_blamed_on_the_files(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, sql="SELECT *, 1 / (id - id) AS no FROM input")
    folder.put("a.json")
    folder.run()
    assert folder.rows() == [] and folder.unreadable() == Counter()
    assert [row["error_reason"] for row in folder.quarantine] == ["transform_failed"] * 3
    assert all("DIVIDE_BY_ZERO" in row["error_detail"] for row in folder.quarantine)


NANOS = (
    "UEFSMRUEFTAVLkwVBhUAEgAAGAQBAAkBPAIAAAAAAAAAAwAAAAAAAAAVABUUFRgsFQYVEBUGFQYcGAgDAAAAAAAAABgIAQAAAAAAAAAWACgIAw"
    "AAAAAAAAAYCAEAAAAAAAAAEREAAAAKJAIAAAAGAQIDJAAVBBUwFTRMFQYVABIAABhcAAAqNv6clxfoAyo2/pyXFwEAKjb+nJcXFQAVFBUYLBUG"
    "FRAVBhUGHBgI6AMqNv6clxcYCAAAKjb+nJcXFgAoCOgDKjb+nJcXGAgAACo2/pyXFxERAAAACiQCAAAABgECAyQAFQQZPDUAGAZzY2hlbWEVBA"
    "AVBCUCGAJpZAAVBCUCGAJhdGyMERw8AAAAAAAWBhkcGSwmABwVBBk1AAYQGRgCaWQVAhYGFt4BFuABJlImCBwYCAMAAAAAAAAAGAgBAAAAAAAA"
    "ABYAKAgDAAAAAAAAABgIAQAAAAAAAAAREQAZLBUEFQAVAgAVABUQFQIAPCkGGSYABgAAACYAHBUEGTUABhAZGAJhdBUCFgYW3gEW5gEmuAIm6A"
    "EcGAjoAyo2/pyXFxgIAAAqNv6clxcWACgI6AMqNv6clxcYCAAAKjb+nJcXEREAGSwVBBUAFQIAFQAVEBUCADwpBhkmAAYAAAAWvAMWBiYIFsYD"
    "ABkcGAxBUlJPVzpzY2hlbWEYgAIvLy8vLzdnQUFBQVFBQUFBQUFBS0FBd0FCZ0FGQUFnQUNnQUFBQUFCQkFBTUFBQUFDQUFJQUFBQUJBQUlBQU"
    "FBQkFBQUFBSUFBQUJVQUFBQUJBQUFBTVQvLy84QUFBRUtFQUFBQUJ3QUFBQUVBQUFBQUFBQUFBSUFBQUJoZEFBQUNBQU1BQVlBQ0FBSUFBQUFB"
    "QUFEQUFRQUFBQURBQUFBVlZSREFCQUFGQUFJQUFZQUJ3QU1BQUFBRUFBUUFBQUFBQUFCQWhBQUFBQWNBQUFBQkFBQUFBQUFBQUFDQUFBQWFXUU"
    "FBQWdBREFBSUFBY0FDQUFBQUFBQUFBRkFBQUFBABggcGFycXVldC1jcHAtYXJyb3cgdmVyc2lvbiAyNi4wLjEZLBwAABwAAABIAgAAUEFSMQ=="
)
"""Three rows, id BIGINT and at TIMESTAMP(NANOS): 1700000000 s, 1 µs later, and 1 ns later. Written by pyarrow."""


def test_nanoseconds_of_parquet_are_whole_numbers_and_stop_nothing(spark: SparkSession, tmp_path: Path) -> None:
    second = 1_700_000_000_000_000_000
    for schema in (None, "id BIGINT, at BIGINT", "id BIGINT, at TIMESTAMP"):
        folder = Folder(spark, tmp_path / str(schema).replace(" ", ""), {"format": "parquet", "schema": schema})
        (folder.path / "a.parquet").write_bytes(base64.b64decode(NANOS))
        folder.run()
        if schema is not None and "TIMESTAMP" in schema:
            assert folder.unreadable() == Counter(["in/a.parquet"])
            detail = folder.quarantine[0]["error_detail"]
            assert detail == "its column at is stored as INT64 and cannot be read as TIMESTAMP"
            continue
        assert Counter(row["at"] for row in folder.rows()) == Counter([second, second + 1000, second + 1])
