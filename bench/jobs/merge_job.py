"""Contenders h and h': foreachBatch with Delta's MERGE, as one would write it by hand after any guide."""

from __future__ import annotations

import sys

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql.functions import col, from_json, row_number

from bench.changes import COLUMNS, FIELDS
from bench.jobs.job import JobFile


def main() -> None:
    job = JobFile.read(sys.argv[1])
    builder = SparkSession.builder.master(job.master).appName("bench")
    for name, value in job.conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    records = (
        spark.readStream.format("kafka")
        .options(**job.kafka)
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", job.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", job.per_batch)
        .load()
    )
    schema = ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())
    changes = records.select(from_json(col("value").cast("string"), schema).alias("change")).select("change.*")

    def merge(batch: DataFrame, _: int) -> None:
        of_key = Window.partitionBy("id").orderBy(col("seq").desc())
        newest = batch.withColumn("rank", row_number().over(of_key)).where("rank = 1").drop("rank")
        columns: dict[str, str | Column] = {name: f"s.{name}" for name in COLUMNS}
        (
            DeltaTable.forPath(batch.sparkSession, job.table)
            .alias("t")
            .merge(newest.alias("s"), "t.id = s.id")
            .whenMatchedDelete("s.op = 'd' AND s.seq > t.seq")
            .whenMatchedUpdate("s.seq > t.seq", columns)
            .whenNotMatchedInsert("s.op <> 'd'", columns)
            .execute()
        )

    query = (
        changes.writeStream.foreachBatch(merge)
        .option("checkpointLocation", job.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
