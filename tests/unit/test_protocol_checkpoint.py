"""A checkpoint compared with the ledger: each kind of damage, and healing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from penstock.errors import TableChanged
from penstock.ledger.checkpoint import MARKER, heal, read_checkpoint, read_planned, why_rebuild
from penstock.ledger.entry import Entry
from penstock.storage.stores import LocalStore
from tests.unit.hand_ledgers import LEDGER, TABLE, at, entry, genesis

STORE = LocalStore()
ENDS = {0: at(0, 0), 1: at(2, 2), 2: at(5, 5), 3: at(9, 9), 4: at(12, 12), 5: at(15, 15), 6: at(20, 20)}
LAST = entry(4, ENDS[3], ENDS[4])


def offsets(after: str, time_ms: int = 5) -> str:
    meta = {"batchWatermarkMs": 0, "batchTimestampMs": time_ms, "conf": {"spark.sql.shuffle.partitions": "2"}}
    return "\n".join(["v1", json.dumps(meta), after])


class Folder:
    """A checkpoint as Spark leaves it: batches 0 to `planned`, committed up to `committed`."""

    def __init__(self, path: Path, planned: int, committed: int) -> None:
        self.path = path
        for batch in range(planned + 1):
            self.put("offsets", batch, offsets(ENDS[batch]))
        for batch in range(committed + 1):
            self.put("commits", batch, 'v1\n{"nextBatchWatermarkMs":0}')
        (path / "metadata").write_text('{"id":"0b1c"}')
        (path / MARKER).write_text(json.dumps({"table": TABLE, "ledger": LEDGER, "generation": 1}))

    def put(self, kind: str, batch: int, text: str) -> None:
        file = self.path / kind / str(batch)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.with_name(f".{batch}.crc").write_text("checksum")

    def remove(self, name: str) -> None:
        target = self.path / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    def why(self, last: Entry = LAST) -> str | None:
        return why_rebuild(read_checkpoint(STORE, str(self.path)), last)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """In step with LAST: batch 4 is committed."""
    return Folder(tmp_path / "1", planned=4, committed=4)


def test_a_checkpoint_in_step_is_kept(folder: Folder) -> None:
    assert folder.why() is None


def test_the_last_batch_written_but_not_committed_is_in_step(tmp_path: Path) -> None:
    assert Folder(tmp_path / "1", planned=4, committed=3).why() is None


def test_the_next_batch_planned_but_not_run_is_in_step(tmp_path: Path) -> None:
    assert Folder(tmp_path / "1", planned=5, committed=4).why() is None


def test_a_checkpoint_of_another_spelling_of_the_position_is_in_step(folder: Folder) -> None:
    folder.put("offsets", 4, offsets('{"orders":{"1":12,"0":12}}'))
    assert folder.why() is None


def test_a_missing_or_empty_folder_is_rebuilt(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty"):
        assert why_rebuild(read_checkpoint(STORE, str(tmp_path / name)), LAST) == "it is missing or empty"


@pytest.mark.parametrize("name", ["offsets", "commits", "metadata", MARKER])
def test_a_part_that_is_gone_is_rebuilt(folder: Folder, name: str) -> None:
    folder.remove(name)
    assert folder.why() is not None


@pytest.mark.parametrize("name", ["metadata", MARKER, "offsets/4", "offsets/3", "commits/4"])
def test_an_emptied_file_is_rebuilt(folder: Folder, name: str) -> None:
    (folder.path / name).write_text("")
    assert folder.why() is not None


@pytest.mark.parametrize(("planned", "committed"), [(4, 4), (4, 3), (5, 4)])
@pytest.mark.parametrize("back", [0, 1])
def test_an_offsets_file_cut_at_any_length_is_rebuilt(tmp_path: Path, planned: int, committed: int, back: int) -> None:
    """The last one and the one before it: Spark reads both at a start, and dies of either."""
    made = Folder(tmp_path / "1", planned, committed)
    file = made.path / "offsets" / str(planned - back)
    whole = file.read_text()
    for length in range(len(whole)):
        file.write_text(whole[:length])
        assert made.why() is not None, whole[:length]


@pytest.mark.parametrize(("planned", "committed"), [(4, 4), (4, 3), (5, 4)])
@pytest.mark.parametrize("back", [0, 1])
def test_an_offsets_file_that_is_gone_is_rebuilt(tmp_path: Path, planned: int, committed: int, back: int) -> None:
    made = Folder(tmp_path / "1", planned, committed)
    made.remove(f"offsets/{planned - back}")
    if (planned, back) == (5, 0):
        assert made.why() is None  # a batch that never ran: Spark plans it anew
    else:
        assert made.why() is not None


@pytest.mark.parametrize(("planned", "committed"), [(4, 4), (4, 3), (5, 4)])
def test_a_commit_file_cut_at_any_length_is_rebuilt(tmp_path: Path, planned: int, committed: int) -> None:
    made = Folder(tmp_path / "1", planned, committed)
    file = made.path / "commits" / str(committed)
    whole = file.read_text()
    for length in range(len(whole)):
        file.write_text(whole[:length])
        assert made.why() is not None, whole[:length]


def test_only_the_last_commit_gone_is_a_retry_of_that_batch(folder: Folder) -> None:
    folder.remove("commits/4")
    assert folder.why() is None
    folder.remove("commits/3")
    assert folder.why() is not None


def test_an_older_backup_is_rebuilt(tmp_path: Path) -> None:
    for planned, committed in ((3, 3), (3, 2), (2, 2), (0, 0)):
        made = Folder(tmp_path / f"{planned}-{committed}", planned, committed)
        assert "older than the ledger" in (made.why() or "")


def test_a_checkpoint_of_another_table_or_generation_is_rebuilt(folder: Folder) -> None:
    marker = {"table": "bronze.other", "ledger": "a1b2", "generation": 1}
    (folder.path / MARKER).write_text(json.dumps(marker))
    assert folder.why() == "it belongs to bronze.other, generation 1"
    (folder.path / MARKER).write_text(json.dumps({"table": TABLE, "ledger": LEDGER, "generation": 2}))
    assert folder.why() is not None


def test_a_checkpoint_of_an_earlier_table_of_the_same_name_is_rebuilt(folder: Folder) -> None:
    assert folder.why(entry(4, ENDS[3], ENDS[4], ledger="another")) is not None


@pytest.mark.parametrize("text", ["[]", "7", '"text"', "{}", "null", '{"table"', "\x00\x00\x00"])
def test_a_marker_of_anything_else_is_rebuilt(folder: Folder, text: str) -> None:
    (folder.path / MARKER).write_text(text)
    assert folder.why() is not None


@pytest.mark.parametrize("text", ["[]", "7", "{}", "null", '{"id":""}', '{"id"', "\x00\x00"])
def test_metadata_of_anything_else_is_rebuilt(folder: Folder, text: str) -> None:
    (folder.path / "metadata").write_text(text)
    assert folder.why() == "its metadata file is missing or empty"


def test_state_of_another_query_is_rebuilt(folder: Folder) -> None:
    (folder.path / "state").mkdir()
    assert folder.why() is not None


@pytest.mark.parametrize(("planned", "committed"), [(5, 5), (6, 5), (6, 6)])
def test_a_checkpoint_ahead_of_the_table_means_that_the_table_went_back(
    tmp_path: Path, planned: int, committed: int
) -> None:
    made = Folder(tmp_path / "1", planned, committed)
    with pytest.raises(TableChanged, match=r"Not in the table: orders-0 \[12, (15|20)\)"):
        made.why()


def test_offsets_that_say_another_position_than_the_ledger_are_rebuilt(folder: Folder) -> None:
    folder.put("offsets", 4, offsets(at(11, 12)))
    assert "the ledger" in (folder.why() or "")
    folder.put("offsets", 4, offsets(at(12, 12, 0)))
    assert folder.why() is not None


def test_a_start_of_the_last_batch_that_is_not_the_ledgers_is_rebuilt(tmp_path: Path) -> None:
    made = Folder(tmp_path / "1", planned=4, committed=3)
    made.put("offsets", 3, offsets(at(8, 9)))
    assert made.why() is not None


@pytest.mark.parametrize("after", [at(11, 12), at(20), at(20, 20, topic="refunds"), "{}", "-"])
def test_a_planned_batch_that_lies_before_the_ledger_is_rebuilt(tmp_path: Path, after: str) -> None:
    made = Folder(tmp_path / "1", planned=5, committed=4)
    made.put("offsets", 5, offsets(after))
    assert made.why() is not None


def test_a_planned_batch_with_new_partitions_and_topics_is_in_step(tmp_path: Path) -> None:
    made = Folder(tmp_path / "1", planned=5, committed=4)
    made.put("offsets", 5, offsets('{"new":{"0":4},"orders":{"0":12,"1":12,"2":7}}'))
    assert made.why() is None


def test_another_number_of_sources_is_rebuilt(folder: Folder) -> None:
    folder.put("offsets", 4, offsets(ENDS[4] + "\n" + at(3, topic="second")))
    assert folder.why() is not None


def test_files_of_an_unfinished_write_are_overlooked(folder: Folder) -> None:
    for name in ("offsets/.5.1b2c.tmp", "commits/.5.1b2c.tmp", "offsets/5.compact", "pins/5"):
        (folder.path / name).parent.mkdir(exist_ok=True)
        (folder.path / name).write_text("")
    assert folder.why() is None


@pytest.mark.parametrize(
    "last",
    [
        genesis(at(0, 0)),
        genesis("{}"),
        entry(1, at(0, 0), at(2, 2)),
        entry(1, "{}", at(2, 2)),
        LAST,
        entry(1_000_000, at(7, 7), at(8, 8)),
        LAST.carry_entry(LAST.counts, 9),
        entry(0, at(9, 9), at(0, 0), generation=3, kind="open"),
    ],
    ids=lambda e: f"{e.kind}-{e.generation}.{e.batch}",
)
def test_a_healed_checkpoint_is_in_step(tmp_path: Path, last: Entry) -> None:
    folder = str(tmp_path / "checkpoints" / TABLE / str(last.generation))
    heal(STORE, folder, last)
    assert why_rebuild(read_checkpoint(STORE, folder), last) is None
    planned = read_planned(STORE, folder, last.batch)
    assert planned is not None
    assert (planned.after, planned.time_ms) == (last.after, last.pins.time_ms)
    commits = sorted(path.name for path in (Path(folder) / "commits").iterdir())
    assert commits == [str(max(last.batch - 1, 0))]  # the batch itself is left to Spark to run again


def test_healing_replaces_whatever_was_there(folder: Folder) -> None:
    (folder.path / "sources" / "0").mkdir(parents=True)
    (folder.path / "sources" / "0" / "0").write_text("")
    (folder.path / "state").mkdir()
    heal(STORE, str(folder.path), LAST)
    assert folder.why() is None
    assert sorted(path.name for path in folder.path.iterdir()) == ["commits", "metadata", "offsets", MARKER]
    assert not list(folder.path.rglob("*.crc"))


def test_a_heal_that_died_halfway_leaves_nothing_that_is_mistaken_for_a_checkpoint(tmp_path: Path) -> None:
    """Killed before its rename: the folder is missing, the half-made one is swept by the next heal."""
    parent = tmp_path / TABLE
    half = Folder(parent / "1.0f0f.new", planned=4, committed=3)
    other = Folder(parent / "11.0f0f.new", planned=4, committed=3)
    assert why_rebuild(read_checkpoint(STORE, str(parent / "1")), LAST) is not None
    heal(STORE, str(parent / "1"), LAST)
    assert not half.path.exists()
    assert other.path.exists()  # of generation 11


@pytest.mark.parametrize("count", range(6))
def test_a_copy_that_stopped_after_any_of_its_files_is_rebuilt(tmp_path: Path, count: int) -> None:
    """What a rename of the folder leaves on an object store: some of its files, in the order of their names."""
    heal(STORE, str(tmp_path / "whole"), LAST)
    files = sorted(path for path in (tmp_path / "whole").rglob("*") if path.is_file())
    assert len(files) == 5
    for file in files[:count]:
        target = tmp_path / "copy" / file.relative_to(tmp_path / "whole")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    why = why_rebuild(read_checkpoint(STORE, str(tmp_path / "copy")), LAST)
    assert (why is None) == (count == len(files))
