"""What goes on beside a running stream: readers that poll, and OPTIMIZE; neither sees a half nor makes one fail."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from penstock.storage.stores import LocalStore
from penstock.verify.table import verify
from tests.integration.run_plan import produce, rows, running, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS, PER_ROUND = 12, 12


class Reader:
    """Reads a table over and over, without Spark."""

    def __init__(self, uri: str) -> None:
        self.seen: dict[int, int] = {}
        self.errors: list[Exception] = []
        self._uri, self._stop = uri, threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self.errors

    def _read(self) -> None:
        from deltalake import DeltaTable, QueryBuilder

        while not self._stop.is_set():
            try:
                table = DeltaTable(self._uri)
                query = QueryBuilder().register("t", table).execute("SELECT count(*) AS n FROM t")
                self.seen[table.version()] = query.read_all().column("n")[0].as_py()
            except Exception as error:
                self.errors.append(error)
                return
            time.sleep(0.02)


@pytest.mark.deep
def test_optimize_and_readers_beside_two_streams(spark: SparkSession, broker: Any, topic: Any, project: Any) -> None:
    name = topic(partitions=2)
    plan = project(
        {
            "bronze.t": {"from": {"kafka": name}, "trigger": "200 ms"},
            "silver.t": {
                "from": {"table": "bronze.t"},
                "decode": {"json": "value", "schema": "id BIGINT NOT NULL"},
                "dedupe": {"keys": ["id"]},
                "trigger": "200 ms",
            },
        }
    )
    uris = {table.name: table.uri for table in plan.tables}
    with running(spark, plan, "bronze.t") as bronze:
        wait_for(lambda: len(bronze.messages) > 0)
        produce(broker.bootstrap, name, 1, value='{"id": -1}')
        wait_for(lambda: len(bronze.batches) > 0)
        with running(spark, plan, "silver.t") as silver:
            wait_for(lambda: len(silver.batches) > 0)
            readers = [Reader(uri) for uri in uris.values()]
            for number in range(ROUNDS):
                for one in range(PER_ROUND):
                    value = json.dumps({"id": number * PER_ROUND + one})
                    produce(broker.bootstrap, name, 1, partitions=[one % 2], value=value)
                if number % 4 == 3:
                    for uri in uris.values():
                        spark.sql(f"OPTIMIZE delta.`{uri}`")
            wanted = ROUNDS * PER_ROUND + 1
            wait_for(lambda: sum(one.rows for one in silver.batches) >= wanted)
            for reader in readers:
                reader.stop()
    assert not bronze.errors and not silver.errors
    assert Counter(row["id"] for row in rows(plan, "silver.t")) == Counter([-1, *range(ROUNDS * PER_ROUND)])
    for table, reader in zip(plan.tables, readers, strict=True):
        _no_partial_batch(table, reader)
    assert {report.verdict for report in verify(plan.tables, LocalStore())} == {"complete"}


def _no_partial_batch(table: Any, reader: Reader) -> None:
    """Every version that was read had the rows of whole batches, as the log counts them."""
    from tests.integration.run_plan import log

    total, by_version, optimised = 0, {}, 0
    for commit in log(table).since(-1):
        optimised += commit.operation == "OPTIMIZE"
        total += commit.rows if commit.operation != "OPTIMIZE" else 0
        by_version[commit.version] = total
    assert optimised, "it had something to do"
    assert len(reader.seen) > 3
    assert {version: by_version[version] for version in reader.seen} == reader.seen
