"""A lake with a table of every kind that the version before has made is continued by this one, and proven."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path

from penstock.dev.broker import Broker
from tests.compatibility.feed import EACH, feed
from tests.compatibility.make_lake import ARCHIVE, HERE, penstock
from tests.e2e.tables import ask


def test_it_is_continued_and_every_table_is_complete(tmp_path: Path) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    project = tmp_path / "project"
    shutil.copytree(HERE / "project", project, dirs_exist_ok=True)
    with Broker(data_dir=tmp_path / "broker") as broker:
        before = _verified(project, broker.bootstrap, "--allow-behind")
        assert set(before.values()) == {"complete"}, before
        assert feed(broker.bootstrap, project, 2) == EACH
        run = penstock(project, broker.bootstrap, "run", "--once")
        assert run.returncode == 0, run.stdout + run.stderr
        after = _verified(project, broker.bootstrap, "--deep", "--allow-partial")
    assert after == {**dict.fromkeys(before, "complete"), "silver.labelled": "partial"}, "its lookup has grown since"
    found = ask(project, "bronze.orders", 'SELECT count(*), count(DISTINCT ("partition", "offset")) FROM t')
    assert found == [(3 * EACH, 3 * EACH)]
    assert _generations(project) == {1}, "a start that opens a generation did not continue what was there"


def _verified(project: Path, bootstrap: str, *options: str) -> dict[str, str]:
    done = penstock(project, bootstrap, "verify", "--json", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return {table["table"]: table["verdict"] for table in json.loads(done.stdout)["tables"]}


def _generations(project: Path) -> set[int]:
    found = set()
    for commit in (project / "lake" / "bronze" / "orders" / "_delta_log").glob("*.json"):
        for line in commit.read_text().splitlines():
            metadata = json.loads(line).get("commitInfo", {}).get("userMetadata")
            if metadata:
                found.add(json.loads(metadata)["generation"])
    return found
