"""A lake with a table of every kind that the version before has made is continued by this one, and proven; what the
verbs say of it with --json has the shape of before (tests/golden)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from penstock.dev.broker import Broker
from tests.compatibility.feed import EACH, feed
from tests.compatibility.make_lake import penstock, unpack
from tests.e2e.tables import ask
from tests.golden import MAPS, golden, shape

EARLIEST = ("--to", "earliest", "--dry-run")
RATES = ("rows_per_second", "processed_rows_per_second")


def test_it_is_continued_and_every_table_is_complete(tmp_path: Path) -> None:
    project = unpack(tmp_path)
    with Broker(data_dir=tmp_path / "broker") as broker:
        before = _answer(project, broker.bootstrap, "verify", "--allow-behind")
        assert set(_verdicts(before).values()) == {"complete"}, before
        assert feed(broker.bootstrap, project, 2) == EACH
        run = _answer(project, broker.bootstrap, "run", "--once")
        after = _answer(project, broker.bootstrap, "verify", "--deep", "--allow-partial")
        status = _answer(project, broker.bootstrap, "status")
        reset = _answer(project, broker.bootstrap, "checkpoints", "reset", "bronze.orders", *EARLIEST)
    complete = dict.fromkeys(_verdicts(before), "complete")
    assert _verdicts(after) == {**complete, "silver.labelled": "partial"}, "its lookup has grown since"
    found = ask(project, "bronze.orders", 'SELECT count(*), count(DISTINCT ("partition", "offset")) FROM t')
    assert found == [(3 * EACH, 3 * EACH)]
    assert _generations(project) == {1}, "a start that opens a generation did not continue what was there"
    for table in status["tables"]:  # there are rates only for some minutes after a batch
        table |= {name: None for name in RATES if name in table}
    golden("documents/run", shape(run, maps=(*MAPS, "tables")))
    golden("documents/verify", shape(before, after))
    golden("documents/status-with-broker", shape(status))
    golden("documents/checkpoints-reset-of-a-topic", shape(reset))


def _answer(project: Path, bootstrap: str, *words: str) -> Any:
    done = penstock(project, bootstrap, *words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def _verdicts(document: Any) -> dict[str, str]:
    return {table["table"]: table["verdict"] for table in document["tables"]}


def _generations(project: Path) -> set[int]:
    found = set()
    for commit in (project / "lake" / "bronze" / "orders" / "_delta_log").glob("*.json"):
        for line in commit.read_text().splitlines():
            metadata = json.loads(line).get("commitInfo", {}).get("userMetadata")
            if metadata:
                found.add(json.loads(metadata)["generation"])
    return found
