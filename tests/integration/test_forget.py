"""Somebody forgotten is nowhere: in no version, no file, no log; and all that is made of his rows is as if they had
never been."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.integration.forgotten import ANN, Shop, forget, found
from tests.integration.runs import run_well

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.dev.broker import Broker


@pytest.fixture
def shop(spark: SparkSession, broker: Broker, topic: Callable[..., str], tmp_path: Path) -> Shop:
    return Shop(spark, broker.bootstrap, topic(1), tmp_path)


def test_somebody_forgotten_is_in_no_file_of_the_lake_and_gold_is_as_without_him(
    spark: SparkSession, shop: Shop
) -> None:
    plan = shop.plan()
    shop.send(90)
    run_well(spark, plan)
    shop.send(40)
    run_well(spark, plan)
    assert found(spark, shop.folder, ANN)

    done = forget(spark, plan, ANN)

    print(done)
    assert not done.problems, "\n".join(done.problems)
    assert not found(spark, shop.folder, ANN)
