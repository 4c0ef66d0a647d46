"""What the clickstream adds to a click. Plain functions on DataFrames: a test can call them with ten rows."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def clean(clicks: DataFrame) -> DataFrame:
    """With the day, by which the table is partitioned, and the part of the shop that the page belongs to."""
    section = F.split_part("page", F.lit("/"), F.lit(2))
    return clicks.withColumns(
        {
            "event_date": F.to_date("event_timestamp"),
            "section": F.when(section == "", "home").otherwise(section),
        }
    )
