"""Sessions in which files are looked after: each with confs of its own, so that none of them reaches a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import SparkSession

from penstock.engine.protocol.upkeep import Upkeep, dump
from penstock.plan.model import Plan
from penstock.plan.quarantine import COMPANIONS

LOG_STORE = "spark.delta.logStore.file.impl"


def shared_log(lake: str) -> dict[str, str]:
    """What jar_data/java/penstock/delta/SharedLog.java has to know, as settings of Hadoop."""
    return {"penstock.lake": lake, "penstock.companions": ",".join(COMPANIONS)}


def beside_a_runner(plan: Plan) -> Plan:
    """The plan for the session of a command: on a local lake each of its commits waits for the table's commit lock."""
    if not plan.local:
        return plan
    about = {f"spark.hadoop.{name}": value for name, value in shared_log(plan.lake).items()}
    return replace(plan, conf={**plan.conf, LOG_STORE: "penstock.delta.SharedLog", **about})


def session_with(spark: SparkSession, confs: Mapping[str, str], upkeep: Upkeep | None = None) -> SparkSession:
    """`upkeep` goes with the commits of the session."""
    session = spark.newSession()
    for name, value in confs.items():
        session.conf.set(name, value)
    if upkeep is not None:
        session.conf.set("spark.databricks.delta.commitInfo.userMetadata", dump(upkeep))
    return session
