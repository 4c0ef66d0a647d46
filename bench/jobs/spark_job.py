"""Contenders a, a', t, t', g' and parquet: the PySpark job that one would write by hand, with a native sink."""

from __future__ import annotations

import sys

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, current_timestamp, from_json, get_json_object

from bench.jobs.job import FIELDS, JobFile

COLUMNS = """key STRING, value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, topic STRING,
    `partition` INT, `offset` BIGINT, kafka_timestamp TIMESTAMP, ingestion_timestamp TIMESTAMP"""
PLACE = "topic STRING, `partition` INT, `offset` BIGINT"
"""Beside the fields of a decoded record: what the bench counts by."""


def main() -> None:
    job = JobFile.read(sys.argv[1])
    builder = SparkSession.builder.master(job.master).appName("bench")
    for name, value in job.conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if job.properties is not None:
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in job.properties.items())
        columns = COLUMNS if job.decode is None else f"{_ddl()}, {PLACE}"
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.`{job.table}` ({columns}) USING delta"
            + (f" TBLPROPERTIES ({properties})" if properties else "")
        )
    query = (
        _rows(_records(spark, job), job)
        .writeStream.format(job.sink)
        .outputMode("append")
        .option("checkpointLocation", job.checkpoint)
        .trigger(availableNow=True)
        .start(job.table)
    )
    query.awaitTermination()
    spark.stop()


def _records(spark: SparkSession, job: JobFile) -> DataFrame:
    return (
        spark.readStream.format("kafka")
        .options(**job.kafka)
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", job.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", job.per_batch)
        .option("includeHeaders", str(job.decode is None).lower())
        .load()
    )


def _rows(records: DataFrame, job: JobFile) -> DataFrame:
    if job.decode is None:
        return records.select(
            col("key").cast("string"),
            col("value").cast("string"),
            "headers",
            "topic",
            "partition",
            "offset",
            col("timestamp").alias("kafka_timestamp"),
            current_timestamp().alias("ingestion_timestamp"),
        )
    value = col("value").cast("string")
    if job.decode == "from_json":
        parsed = records.withColumn("parsed", from_json(value, _ddl()))
        return parsed.select("parsed.*", "topic", "partition", "offset")
    return records.select(*(_field(value, name, kind) for name, kind in FIELDS.items()), "topic", "partition", "offset")


def _field(value: Column, name: str, kind: str) -> Column:
    # By try_cast: with a plain cast one bad record would end the job, as ANSI mode has it.
    return get_json_object(value, f"$.{name}").try_cast(kind).alias(name)


def _ddl() -> str:
    return ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())


if __name__ == "__main__":
    main()
