"""Contenders b, b+, b0 and e: the batch job that one would write by hand to make a silver table anew from bronze."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql.functions import col, expr, from_json, row_number, struct

from bench.jobs.job import FIELDS, now

CORRUPT = "_corrupt_record"


@dataclass(frozen=True)
class ReplayFile:
    master: str
    conf: Mapping[str, str]
    bronze: str
    version: int
    rule: str
    """What a good row meets."""
    table: str
    quarantine: str
    properties: Mapping[str, str]
    marks: str
    rejected: Literal["read again", "kept", "left out"]
    """How the rejected rows are had after the good ones: by a second pass, from rows that were kept, or not at all."""
    unique: bool = False

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: str) -> ReplayFile:
        return cls(**json.loads(Path(file).read_text()))


def main() -> None:
    job = ReplayFile.read(sys.argv[1])
    builder = SparkSession.builder.master(job.master).appName("bench")
    for name, value in job.conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    parsed = _parsed(spark, job)
    begun = now()  # the version is known and nothing of it has been read: as a replay, once it is open
    if job.rejected == "kept":
        parsed = parsed.persist(StorageLevel.MEMORY_AND_DISK)
    _overwrite(_good(parsed, job), job.table, job.properties)
    if job.rejected != "left out":
        _overwrite(_bad(parsed, job), job.quarantine, {})
    Path(job.marks).write_text(json.dumps({"first": begun, "last": now(), "rows": 1}))
    spark.stop()


def _parsed(spark: SparkSession, job: ReplayFile) -> DataFrame:
    schema = ", ".join(f"{name} {kind}" for name, kind in (*FIELDS.items(), (CORRUPT, "STRING")))
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    records = spark.read.format("delta").option("versionAsOf", job.version).load(job.bronze)
    source = struct("topic", "partition", "offset").alias("_source")
    return records.select("value", source, from_json(col("value"), schema, options).alias("parsed")).withColumn(
        "good", expr(f"coalesce(parsed.{CORRUPT} IS NULL AND {job.rule}, false)")
    )


def _good(parsed: DataFrame, job: ReplayFile) -> DataFrame:
    rows = parsed.where("good").select(*(f"parsed.{name}" for name in FIELDS), "_source")
    if not job.unique:
        return rows
    first = row_number().over(Window.partitionBy("order_id").orderBy("_source"))
    return rows.withColumn("place", first).where("place = 1").drop("place")


def _bad(parsed: DataFrame, job: ReplayFile) -> DataFrame:
    reason = f"CASE WHEN parsed.{CORRUPT} IS NOT NULL THEN 'no JSON' ELSE 'rule' END AS reason"
    return parsed.where("NOT good").selectExpr("value", "_source", reason, "current_timestamp() AS rejected_at")


def _overwrite(rows: DataFrame, table: str, properties: Mapping[str, str]) -> None:
    writer = rows.write.format("delta").mode("overwrite")
    for name, value in properties.items():
        writer = writer.option(name, value)
    writer.save(table)


if __name__ == "__main__":
    main()
