"""The one bridge to the JVM: whatever is not in PySpark's own API goes through these functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # verbs that start no JVM load this module, and must not load PySpark
    from pyspark.sql import Column, DataFrame, SparkSession


def jvm_of(spark: SparkSession) -> Any:
    """The packages of the session's JVM: `jvm_of(spark).java.util.HashMap()`."""
    return spark.sparkContext._jvm


def running_jvm() -> Any:
    """The same without a session; None if no JVM runs."""
    from pyspark import SparkContext

    return SparkContext._jvm


def gateway_of(spark: SparkSession) -> Any:
    """Py4J's connection to it."""
    return spark.sparkContext._gateway


def java_session(spark: SparkSession) -> Any:
    """The session as the JVM knows it."""
    return spark._jsparkSession


def java_frame(rows: DataFrame) -> Any:
    """The Dataset behind a DataFrame."""
    return rows._jdf


def java_column(column: Column) -> Any:
    """The Column of the JVM behind one of Python."""
    return column._jc


def hadoop_conf(spark: SparkSession) -> Any:
    """Hadoop's configuration of the session's context."""
    return spark.sparkContext._jsc.hadoopConfiguration()
