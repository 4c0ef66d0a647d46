"""Columns that this version gives to the tables beside tables, and the documents of verbs that need Spark, over the
lake that the version before has made. tests/golden says how its files are rewritten."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.plan.build import build_plan
from penstock.spec.load import load_project
from tests.compatibility.make_lake import HERE, unpack
from tests.golden import MAPS, answered, companions, golden, shape
from tests.integration.forget_shop import ANN, Shop
from tests.integration.run_plan import run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker

CALLS = {
    "sql": "sql 'SELECT name, count(*) AS c FROM silver.orders VERSION AS OF 3 GROUP BY name'",
    "replay": "replay silver.labelled --yes",
    "rewind-dry-run": "rewind silver.labelled --version 1 --dry-run",
    "rewind": "rewind silver.labelled --version 1 --yes",
    "optimize": "optimize silver.orders --full --yes",
    "vacuum": "vacuum silver.history --retain 0s --yes",
}


@pytest.fixture(autouse=True)
def _one_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verbs work in the session of the tests: no JVM is started for them."""

    @contextmanager
    def shared(*_: Any, **__: Any) -> Iterator[SparkSession]:
        yield spark

    for name in ("penstock.spark.session.spark_session", "penstock.sql.reader.short_session"):
        monkeypatch.setattr(name, shared)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project that the version before has run; its broker is away."""
    monkeypatch.setenv("COMPAT_KAFKA", "127.0.0.1:1")
    return unpack(tmp_path)


@pytest.mark.parametrize("name", CALLS)
def test_documents_of_a_lake(name: str, lake: Path) -> None:
    golden(f"documents/{name}", shape(answered(lake, CALLS[name])))


def test_document_of_a_replay_that_would_change_rows(lake: Path) -> None:
    file = lake / "penstock.yml"
    file.write_text(file.read_text().replace("check: n > 0", "check: n > 5"))
    document = answered(lake, "replay silver.orders --dry-run")
    for sample in document["difference"]["samples"]:  # which rows, and what is in them, is no matter
        sample |= {side: sample[side] and {} for side in ("now", "then")}
    golden("documents/replay-dry-run", shape(document))


@pytest.mark.parametrize(("name", "option"), [("dlq-redrive-dry-run", "--dry-run"), ("dlq-redrive", "--yes")])
def test_documents_of_a_redrive(name: str, option: str, lake: Path) -> None:
    document = answered(lake, f"dlq redrive bronze.csv_files {option}")
    golden(f"documents/{name}", shape(document, maps=(*MAPS, "rows")))


def test_documents_of_an_erasure(
    spark: SparkSession, broker: Broker, topic: Callable[..., str], tmp_path: Path
) -> None:
    shop = Shop(spark, broker.bootstrap, topic(1), tmp_path)
    shop.send(40)
    run_well(spark, shop.plan("bronze.orders", "silver.orders"))
    call = f"forget --subject customer={ANN}"
    golden("documents/forget-dry-run", shape(answered(tmp_path, f"{call} --dry-run")))
    golden("documents/forget", shape(answered(tmp_path, f"{call} --yes")))
    golden("documents/forget-list", shape(answered(tmp_path, "forget --list")))


def test_columns_beside_tables_of_this_version(
    spark: SparkSession, broker: Broker, topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are made with their tables, before there is a row."""
    monkeypatch.setenv("COMPAT_KAFKA", broker.bootstrap)
    shutil.copytree(HERE / "project", tmp_path, dirs_exist_ok=True)
    names = {name: topic(1) for name in ("orders", "orders_out", "current_out")}
    file = tmp_path / "penstock.yml"
    file.write_text(re.sub(r"(?<=kafka: )(\w+)", lambda match: names[match[1]], file.read_text()))
    for name in ("json", "csv"):
        (tmp_path / "in" / name).mkdir(parents=True)
    run_well(spark, build_plan(load_project(tmp_path)))
    golden("companions", companions(tmp_path))
