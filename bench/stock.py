"""What any Spark job with Delta and Kafka needs, tuned or not: the jars, Delta's extension, loopback only."""

from __future__ import annotations

import os

from penstock.spark.jars import own_jar, spark_jars

_NEEDED = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Off for every contender: it would listen on all addresses. That can only help the stock job.
    "spark.ui.enabled": "false",
}


def stock_conf() -> dict[str, str]:
    """As the guides have it: jars by `spark.jars`."""
    return {**_NEEDED, "spark.jars": ",".join(map(str, spark_jars()))}


def tuned_conf(chosen: dict[str, str]) -> dict[str, str]:
    """Penstock's own settings, its way of giving the jars included: on the class path, where none is copied. Its file
    system is one of the settings."""
    jars = [*map(str, (*spark_jars(), own_jar())), chosen.get("spark.driver.extraClassPath", "")]
    return {**_NEEDED, **chosen, "spark.driver.extraClassPath": os.pathsep.join(filter(None, jars))}
