"""The one bridge to the JVM: whatever is not in PySpark's own API goes through these functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.errors import SetupError

if TYPE_CHECKING:  # verbs that start no JVM load this module, and must not load PySpark
    from pyspark.sql import Column, DataFrame, SparkSession


def jvm_of(spark: SparkSession) -> Any:
    """The packages of the session's JVM: `jvm_of(spark).java.util.HashMap()`."""
    return spark.sparkContext._jvm


def penstock_class(spark: SparkSession, name: str, package: str = "json") -> Any:
    """A class of penstock.json, or of another package of Penstock's own."""
    from py4j.java_gateway import JavaClass

    java_class = getattr(getattr(jvm_of(spark).penstock, package), name)
    if not isinstance(java_class, JavaClass):
        from penstock.spark.jars import own_jar

        raise SetupError(
            "this Spark session lacks Penstock's own jar",
            hint=f"let Penstock make the session, or put {own_jar()} onto the driver's class path: "
            "spark.driver.extraClassPath",
        )
    return java_class


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


def java_causes(error: BaseException) -> Iterator[Any]:
    """The exception of the JVM behind an error of Python, and its causes; nothing if there is none."""
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while cause is not None:
        yield cause
        cause = cause.getCause()


def hadoop_conf(spark: SparkSession) -> Any:
    """Hadoop's configuration of the session's context."""
    return spark.sparkContext._jsc.hadoopConfiguration()
