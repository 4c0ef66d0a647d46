from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def labelled(orders: DataFrame, names: DataFrame) -> DataFrame:
    labels = names.select("key", "label")
    return orders.join(F.broadcast(labels), orders.k == labels.key, "left").drop("key")


def sessions(orders: DataFrame) -> DataFrame:
    seen = orders.withWatermark("at", "1 day")
    return seen.groupBy(F.window("at", "1 day"), "name").agg(F.count("*").alias("c"))
