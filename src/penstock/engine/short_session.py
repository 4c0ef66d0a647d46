"""A session for a command that asks a few things and ends."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql import SparkSession

from penstock.engine.session import spark_session
from penstock.plan.model import Plan

_OPTIONS = "spark.driver.extraJavaOptions"


@contextmanager
def short_session(plan: Plan, *, log: str, say: Callable[[str], None] = lambda _: None) -> Iterator[SparkSession]:
    with tempfile.TemporaryDirectory(prefix=f"penstock-{log}-") as folder:
        # Most of the time of a short life goes into compiling: the quick compiler alone takes a third less of it, and
        # large queries are not slower. The warehouse is a folder that Spark makes wherever a user is.
        conf = {
            **plan.conf,
            _OPTIONS: f"{plan.conf.get(_OPTIONS, '')} -XX:TieredStopAtLevel=1".strip(),
            "spark.sql.warehouse.dir": folder,
        }
        with spark_session(replace(plan, conf=conf), log=log, say=say) as spark:
            yield spark
