"""A lake on S3, read without a JVM. The store is moto, a server that speaks S3."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest
from arro3.core import Array, DataType, Table
from deltalake import write_deltalake

from penstock.dev.process import free_port, is_taken
from penstock.errors import PenstockError, UsageError
from penstock.ledger.checkpoint import heal
from penstock.operations import status as status_ops
from penstock.operations.checkpoint_state import inspect_checkpoint
from penstock.operations.checkpoints import checkpoint_summaries
from penstock.operations.heal import run_heal
from penstock.operations.history import history
from penstock.operations.quarantine_rows import count_kinds
from penstock.operations.staleness import definition_drifts
from penstock.operations.status import status
from penstock.plan.model import Plan
from penstock.storage.stores import Store, open_store, size_of, storage_options
from penstock.verify import table as verify_ops
from penstock.verify.table import verify
from tests.bronze_table import BronzeTable, plan_of, table_plan

LAKE = "s3a://lake/a-folder"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    # A process of its own: deltalake keeps Python's lock while it reads, so a thread could not answer it.
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(300):
        if is_taken(port):
            break
        time.sleep(0.1)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("AWS_REGION", raising=False)
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="lake")
    monkeypatch.setattr(status_ops, "BROKER_TIMEOUT", 0.05)
    monkeypatch.setattr(verify_ops, "BROKER_TIMEOUT", 0.05)
    yield open_store(LAKE)
    running.kill()
    running.wait()


def upload(folder: Path, prefix: str) -> None:
    s3 = boto3.client("s3", region_name="us-east-1")
    for path in folder.rglob("*"):
        if path.is_file():
            s3.upload_file(str(path), "lake", f"{prefix}/{path.relative_to(folder)}")


def test_files_are_written_read_listed_moved_and_deleted(store: Store) -> None:
    assert store.read(f"{LAKE}/x/none") is None
    assert store.names(f"{LAKE}/x") == []
    for number in range(1005):  # more than one page of a listing
        store.write(f"{LAKE}/x/{number}", f"text ü {number}")
    store.write(f"{LAKE}/x/below/file", "deep")
    assert len(store.names(f"{LAKE}/x")) == 1006
    assert "below" in store.names(f"{LAKE}/x")
    assert store.read(f"{LAKE}/x/7") == "text ü 7"
    store.move(f"{LAKE}/x", f"{LAKE}/y/z")
    assert (store.names(f"{LAKE}/x"), len(store.names(f"{LAKE}/y/z"))) == ([], 1006)
    store.delete(f"{LAKE}/y/z/7")
    assert store.read(f"{LAKE}/y/z/7") is None
    store.delete(f"{LAKE}/y")
    assert store.names(f"{LAKE}/y") == []
    store.delete(f"{LAKE}/y")


def test_a_lake_on_s3_is_shown_and_verified_like_a_local_one(store: Store, tmp_path: Path) -> None:
    table = BronzeTable(table_plan(str(tmp_path / "orders"))).genesis({"orders": {0: 0}}).batch({"orders": {0: 100}})
    table.batch({"orders": {0: 120}}, [("orders", 0, o) for o in range(100, 120) if o != 110])
    upload(tmp_path / "orders", "a-folder/orders")
    there = replace(table.plan, uri=f"{LAKE}/orders")
    plan: Plan = replace(plan_of(tmp_path, there), lake=LAKE)
    (shown,) = status(plan, plan.tables, store)
    assert (shown.state, shown.batch, shown.rows) == ("stopped", 2, 119)
    assert [line.kind for line in history(there, store)] == ["batch", "batch", "genesis"]
    (report,) = verify([there], store)
    assert (report.verdict, report.rows) == ("partial", 119)
    assert list(report.partitions[0].unverifiable) == [(110, 111)]


def test_rejected_rows_and_checkpoints_on_s3_are_shown_and_healed(store: Store, tmp_path: Path) -> None:
    table = BronzeTable(table_plan(str(tmp_path / "orders"))).genesis({"orders": {0: 0}}).batch({"orders": {0: 5}})
    assert table.last is not None
    upload(tmp_path / "orders", "a-folder/orders")
    rejected = Table.from_pydict(
        {
            **{name: Array(["x"], type=DataType.string()) for name in ("error_reason", "error_detail", "value")},
            **{name: Array([1], type=DataType.int64()) for name in ("generation", "batch")},
            "error_timestamp": Array([0], type=DataType.int64()).cast(DataType.timestamp("us", tz="UTC")),
        }
    )
    write_deltalake(f"{LAKE}/orders__quarantine", rejected, storage_options=storage_options(LAKE))
    there = replace(table.plan, uri=f"{LAKE}/orders", checkpoints=f"{LAKE}/_penstock/checkpoints/bronze.orders")
    plan: Plan = replace(plan_of(tmp_path, there), lake=LAKE)
    counted = count_kinds(there, store)
    assert counted.reasons == {"x": 1}
    assert counted.kinds[0].sample is not None and counted.kinds[0].sample.source is None

    heal(store, f"{there.checkpoints}/1", table.last)
    store.delete(f"{there.checkpoints}/1/metadata")
    (standing,) = checkpoint_summaries(plan, plan.tables, store)
    assert standing.inspection.why == "its metadata file is missing or empty"
    assert standing.size.total == size_of(store, f"{there.checkpoints}/1")
    assert (standing.size.total.files, standing.size.batches) == (4, 2)
    done = run_heal(plan, there, store)
    assert done is not None and done.why is not None
    assert inspect_checkpoint(there, store).in_step
    assert definition_drifts(plan, plan.tables)["bronze.orders"].kind == "unchanged"


def test_a_store_that_is_away_or_unknown_is_a_clear_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PenstockError, match="could not be read") as away:
        store.names("s3://no-such-bucket/x")
    assert away.value.hint
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(PenstockError, match="could not be read"):
        open_store(LAKE).read(f"{LAKE}/x")
    with pytest.raises(UsageError, match="only be read by Spark"):
        open_store("hdfs://name:8020/lake").read("hdfs://name:8020/lake/x")
