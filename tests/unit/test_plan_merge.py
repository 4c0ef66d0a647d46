"""What the plan of a merged table asks of its changes, and what it keeps with the table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from penstock.plan.build import build_plan
from penstock.plan.model import TablePlan
from penstock.spec.load import load_project
from penstock.spec.table_kinds import Merge


@pytest.fixture
def merged(tmp_path: Path) -> Callable[..., TablePlan]:
    def make(**write: Any) -> TablePlan:
        import yaml

        merge = {"keys": ["id", "Part"], "sequence": "seq"}
        tables = {
            "silver.t": {
                "from": {"kafka": "t"},
                "decode": {"json": "value", "schema": "id BIGINT, Part STRING, seq BIGINT"},
                "write": {"merge": merge, **write},
            }
        }
        document = {"name": "test", "lake": "./lake", "kafka": {"bootstrap": "127.0.0.1:1"}, "tables": tables}
        (tmp_path / "penstock.yml").write_text(yaml.safe_dump(document))
        return build_plan(load_project(tmp_path)).tables[0]

    return make


def asked(table: TablePlan) -> dict[str, str]:
    assert table.stages is not None
    return {one.name: one.check for one in table.stages.expect}


def test_a_key_and_the_sequence_must_be_there(merged: Callable[..., TablePlan]) -> None:
    assert asked(merged()) == {
        "merge.key": "`id` IS NOT NULL AND `Part` IS NOT NULL",
        "merge.sequence": "(seq) IS NOT NULL",
    }


def test_a_key_that_is_a_partition_must_not_be_a_text_that_delta_takes_for_null(
    merged: Callable[..., TablePlan],
) -> None:
    keys = asked(merged(partition_by=["part"]))["merge.key"]
    assert keys == "`id` IS NOT NULL AND CAST(`Part` AS STRING) NOT IN ('', '__HIVE_DEFAULT_PARTITION__')"


def test_keys_and_history_are_kept_with_the_table(merged: Callable[..., TablePlan]) -> None:
    assert merged().properties["penstock.merge"] == "scd1 by id, part"


def test_a_history_keeps_its_tombstones() -> None:
    with pytest.raises(ValidationError, match="tombstone says when a version ended"):
        Merge.model_validate({"keys": ["id"], "sequence": "seq", "history": "scd2", "keep_deleted": "30 days"})
