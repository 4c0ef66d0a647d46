"""A few rows that this process knows already, as a DataFrame.

`createDataFrame` hands them through a Python process of the executor, which takes a second to start, and fails if the
machine's `python3` is another one than this.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.engine.schema import sql_type


def known_rows(spark: SparkSession, columns: str, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """In one partition. `columns` as `path: STRING, size: BIGINT`."""
    return spark.sql(
        f"SELECT inline(from_json(:rows, 'ARRAY<STRUCT<{columns}>>'))", args={"rows": json.dumps(list(rows))}
    )


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    columns = [F.lit(None).cast(sql_type(field.dataType)).alias(field.name) for field in schema.fields]
    return spark.range(0, numPartitions=1).select(*columns)
