"""Commits that change rows of a table upstream: what they did, told from the log, and what each option makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.plan.build import build_plan
from penstock.sources.delta_changes import UpstreamChange, effect, passed_over, read_change, refusal
from penstock.spec.load import load_project
from penstock.storage.stores import LocalStore
from tests.unit.hand_ledgers import HandLog
from tests.unit.project_file import HEAD, one, problems

DELTA_RS = {"num_deleted_rows": 3, "num_added_files": 1}


def change(folder: Path, operation: str, **made: Any) -> UpstreamChange | None:
    log = HandLog(folder / "t")
    log.commit("CREATE TABLE")
    version = log.commit(operation, **made)
    return read_change(LocalStore(), log.uri, version)


@pytest.mark.parametrize(
    ("operation", "made", "did"),
    [
        ("DELETE", {"removes": 1, "adds": 1, "metrics": {"numDeletedRows": "120"}}, "deleted 120 rows"),
        ("DELETE", {"removes": 1, "adds": 1, "metrics": DELTA_RS}, "deleted 3 rows"),
        ("DELETE", {"removes": 2}, "removed 2 files and added 0"),
        ("UPDATE", {"removes": 1, "adds": 1, "metrics": {"numUpdatedRows": "1"}}, "updated 1 row"),
        (
            "MERGE",
            {
                "removes": 1,
                "adds": 2,
                "metrics": {"numTargetRowsUpdated": "3", "numTargetRowsInserted": "5", "numTargetRowsDeleted": "0"},
            },
            "updated 3 rows and inserted 5 rows",
        ),
        ("WRITE", {"removes": 4, "adds": 1, "metrics": {"numOutputRows": "7"}}, "inserted 7 rows"),
        ("RESTORE", {"removes": 4, "adds": 1}, "removed 4 files and added 1"),
    ],
)
def test_what_a_commit_did_is_told_as_its_writer_counted_it(
    tmp_path: Path, operation: str, made: dict[str, Any], did: str
) -> None:
    found = change(tmp_path, operation, **made)
    assert found is not None and (found.operation, found.summary) == (operation, did)


@pytest.mark.parametrize("made", [{"adds": 1}, {"adds": 1, "removes": 3, "change": False}])
def test_what_adds_or_compacts_changes_nothing(tmp_path: Path, made: dict[str, Any]) -> None:
    assert change(tmp_path, "WRITE", **made) is None
    assert read_change(LocalStore(), str(tmp_path / "t"), 9) is None


def told(found: UpstreamChange, **options: str) -> Any:
    return refusal("silver.t", "/data/t", found, options, recomputed=False, stateful=False)


ROWS = UpstreamChange(3, "DELETE", 2, None, None, 1, 1, 8)
FILES = UpstreamChange(3, "DELETE", 10, None, None, 1, 0, 0)
MERGE = UpstreamChange(4, "MERGE", None, 1, 5, 1, 2, 14)


def test_an_error_offers_what_helps_and_never_what_is_set() -> None:
    for found, options, offered in (
        (FILES, {}, {"ignore_deletes", "ignore_changes", "skip_change_commits"}),
        (ROWS, {}, {"ignore_changes", "skip_change_commits"}),
        (ROWS, {"ignoreDeletes": "true"}, {"ignore_changes", "skip_change_commits"}),
        (MERGE, {"ignoreDeletes": "true"}, {"ignore_changes", "skip_change_commits"}),
    ):
        error = told(found, **options)
        assert {line.split(":")[0].strip() for line in error.hint.splitlines() if ": true" in line} == offered
        assert f"version {found.version} of /data/t ({found.operation})" in error.message
        assert ("is set, but" in error.message) == bool(options)
        assert f"--to source:{found.version + 1}" in error.hint


def test_each_option_says_what_it_loses_or_doubles() -> None:
    assert effect("skip_change_commits", ROWS, recomputed=False) == "the deleted rows stay in this table"
    assert "all 8 rows of the rewritten files come again" in effect("ignore_changes", ROWS, recomputed=False)
    skipped = effect("skip_change_commits", MERGE, recomputed=False)
    assert skipped == "updated rows keep their old values here and its 5 new rows are not read"
    assert effect("ignore_deletes", FILES, recomputed=False) == "the deleted rows stay in this table"
    assert "computed again" in effect("skip_change_commits", MERGE, recomputed=True)
    overwrite = UpstreamChange(5, "WRITE", None, None, None, 3, 1, None)
    assert "new rows in it are not read" in effect("skip_change_commits", overwrite, recomputed=False)


def test_what_was_passed_over_is_counted() -> None:
    said = passed_over("/data/t", "skip_change_commits", [ROWS, MERGE])
    assert said == (
        "2 versions of /data/t that changed rows were skipped: 3 (DELETE: deleted 2 rows), "
        "4 (MERGE: updated 1 row and inserted 5 rows); 5 new rows in them not read"
    )
    assert ", …" in passed_over("/data/t", "ignore_changes", [ROWS] * 6)


def source(options: str) -> str:
    return f"{HEAD}tables:\n  t:\n    from:\n      delta: /data/t\n{options}"


@pytest.mark.parametrize("other", ["ignore_changes", "ignore_deletes"])
def test_options_that_contradict_each_other_are_refused_with_their_line(tmp_path: Path, other: str) -> None:
    text = source(f"      {other}: true\n      skip_change_commits: true\n")
    problem = one(problems(tmp_path, text))
    assert f"'skip_change_commits' and '{other}' cannot be used together" in problem.message
    assert problem.line == len(text.splitlines())


@pytest.mark.parametrize("key", ["ignore_deletes", "ignore_changes", "skip_change_commits"])
@pytest.mark.parametrize("reads", ["table: a", "changes: a"])
def test_a_reader_of_a_table_of_the_project_is_told_that_it_needs_none(tmp_path: Path, key: str, reads: str) -> None:
    text = (
        f"{HEAD}tables:\n  a: {{from: {{kafka: x}}, write: {{change_feed: true}}}}\n"
        f"  b: {{from: {{{reads}, {key}: true}}}}\n"
    )
    problem = one(problems(tmp_path, text))
    assert f"'{key}' does not belong here" in problem.message
    assert ("skipped already" if "table" in reads else "every change") in (problem.hint or "")


def test_deltas_own_spelling_is_answered_with_ours(tmp_path: Path) -> None:
    problem = one(problems(tmp_path, source("      skipChangeCommits: true\n")))
    assert problem.hint == "write skip_change_commits: true"


@pytest.mark.parametrize(
    ("options", "delta"),
    [
        ("", {}),
        ("      ignore_deletes: true\n", {"ignoreDeletes": "true"}),
        ("      ignore_changes: true\n", {"ignoreChanges": "true"}),
        ("      ignore_changes: true\n      ignore_deletes: true\n", {"ignoreChanges": "true"}),
        ("      skip_change_commits: true\n", {"skipChangeCommits": "true"}),
    ],
)
def test_the_plan_has_the_option_of_delta_and_only_that(tmp_path: Path, options: str, delta: dict[str, str]) -> None:
    (tmp_path / "penstock.yml").write_text(source(options))
    plan = build_plan(load_project(tmp_path))
    assert dict(plan.tables[0].source.options) == delta  # type: ignore[union-attr]


def test_definitions_from_before_the_third_option_keep_their_hash(tmp_path: Path) -> None:
    """As the version before wrote them into ledgers."""
    found = []
    for options in ("", "      ignore_deletes: true\n", "      ignore_changes: true\n"):
        (tmp_path / "penstock.yml").write_text(source(options))
        found.append(build_plan(load_project(tmp_path)).tables[0].definition)
    assert found == ["7f20c239cd03fe8a", "e349fbb25cb54bc1", "8d0e804df0f65888"]
