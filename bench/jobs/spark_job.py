"""Contenders a, a' and parquet: the PySpark job that one would write by hand, with a native sink."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, current_timestamp

from bench.jobs.job import JobFile

COLUMNS = """key STRING, value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, topic STRING,
    `partition` INT, `offset` BIGINT, kafka_timestamp TIMESTAMP, ingestion_timestamp TIMESTAMP"""


def main() -> None:
    job = JobFile.read(sys.argv[1])
    builder = SparkSession.builder.master(job.master).appName("bench")
    for name, value in job.conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if job.properties is not None:
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in job.properties.items())
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.`{job.table}` ({COLUMNS}) USING delta"
            + (f" TBLPROPERTIES ({properties})" if properties else "")
        )
    records = (
        spark.readStream.format("kafka")
        .options(**job.kafka)
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", job.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", job.per_batch)
        .option("includeHeaders", "true")
        .load()
        .select(
            col("key").cast("string"),
            col("value").cast("string"),
            "headers",
            "topic",
            "partition",
            "offset",
            col("timestamp").alias("kafka_timestamp"),
            current_timestamp().alias("ingestion_timestamp"),
        )
    )
    query = (
        records.writeStream.format(job.sink)
        .outputMode("append")
        .option("checkpointLocation", job.checkpoint)
        .trigger(availableNow=True)
        .start(job.table)
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
