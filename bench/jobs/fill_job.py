"""Fills tables with the rows that scenario merge changes: in the order of their keys, file by file, as time would."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from bench.changes import COLUMNS

OWN = {
    "_sequence": "seq",
    "_deleted": "false",
    "_deleted_at": "CAST(NULL AS TIMESTAMP)",
    "_source": "named_struct('topic', 'filled', 'partition', 0, 'offset', id)",
}
"""What a table has besides, if Penstock merges into it."""


@dataclass(frozen=True)
class Fill:
    table: str
    rows: int
    per_file: int
    properties: Mapping[str, str] | None
    """Delta properties of a table that is to be made; None: it is there already, made by Penstock."""


@dataclass(frozen=True)
class FillFile:
    master: str
    conf: Mapping[str, str]
    fills: Sequence[Fill]

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: str) -> FillFile:
        found = json.loads(Path(file).read_text())
        return cls(found["master"], found["conf"], [Fill(**one) for one in found["fills"]])


def main() -> None:
    job = FillFile.read(sys.argv[1])
    builder = SparkSession.builder.master(job.master).appName("bench")
    for name, value in job.conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for one in job.fills:
        _fill(spark, one)
    spark.stop()


def _fill(spark: SparkSession, one: Fill) -> None:
    columns = {name: expression for name, (_, expression) in COLUMNS.items()}
    if one.properties is None:
        columns |= OWN
    else:
        ddl = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in one.properties.items())
        spark.sql(
            f"CREATE TABLE delta.`{one.table}` ({ddl}) USING delta"
            + (f" TBLPROPERTIES ({properties})" if properties else "")
        )
    files = -(-one.rows // one.per_file)
    rows = spark.range(0, one.rows, 1, files).selectExpr("id", "id AS seq")
    made = rows.selectExpr(*(f"{expression} AS {name}" for name, expression in columns.items()))
    made.write.format("delta").mode("append").save(one.table)


if __name__ == "__main__":
    main()
