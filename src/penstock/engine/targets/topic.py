"""A topic of Kafka: of every key that changed one record, its row; or none, a tombstone, if the row is gone."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.engine.changes.net import ASIDE, DELETED, VERSION
from penstock.engine.changes.shape import Shape
from penstock.engine.kafka.admin import Admin
from penstock.engine.kafka.produce import SIZE, produce
from penstock.engine.kafka.target import require_topic
from penstock.engine.protocol.entry import Entry
from penstock.engine.sink_message import header, part, refuse_other_rows
from penstock.engine.stages.decode import literal
from penstock.engine.stages.observed import Observed
from penstock.engine.targets.target import Refused, Sent
from penstock.errors import Terminal
from penstock.plan.target import KafkaTarget
from penstock.spec.sink import ID

CHANGE, AT = "penstock-change", "penstock-version"
"""Headers beside the id: upsert or delete, and the version of the table that it is of."""
_REQUEST = 1_048_576
"""What Kafka's producer sends at most, if it is not told otherwise."""
_AROUND = 200
"""Bytes that a record takes besides its parts, at most."""
_MOST_REFUSED = 10_000
_GOOD, _LARGE = "__good", "__large"


class Topic:
    def __init__(self, spark: SparkSession, sink: str, plan: KafkaTarget, shape: Shape, admin: Admin) -> None:
        """Terminal if `value` or `headers` cannot be part of a record."""
        self._sink, self._plan, self._admin, self._shape = sink, plan, admin, shape
        rows = spark.createDataFrame([], StructType(list(shape.own)))
        value = shape.value if plan.value is None else part(rows, sink, "value", plan.value)
        named = {name: part(rows, sink, f"headers: {name}", text) for name, text in plan.headers.items()}
        refuse_other_rows(rows, (f"{value} AS value", *(f"{text} AS h" for text in named.values())), sink)
        change, version = f"IF({DELETED}, 'delete', 'upsert')", f"CAST({VERSION} AS STRING)"
        name = f"concat({literal(f'{sink}/')}, {version}, '/', {shape.key})"
        headers = {ID: name, CHANGE: change, AT: version, **named}
        listed = ", ".join(header(name, text) for name, text in headers.items())
        self._parts = (
            f"CAST({shape.key} AS BINARY) AS key",
            f"IF({DELETED}, NULL, CAST({value} AS BINARY)) AS value",
            f"array({listed}) AS headers",
        )
        self._limit = int(plan.options.get("max.request.size", _REQUEST))

    def ready(self, last: Entry) -> None:
        require_topic(self._admin, self._plan, self._sink)

    def send(self, changes: DataFrame, entry: Entry) -> Sent:
        require_topic(self._admin, self._plan, self._sink)
        made = changes.selectExpr(*self._parts, ASIDE)
        large = f"{ASIDE} IS NULL AND {SIZE} + {_AROUND} + 20 * size(headers) > {self._limit}"
        records = made.selectExpr("*", f"{large} AS {_LARGE}").selectExpr(
            "*", f"{ASIDE} IS NULL AND NOT {_LARGE} AS {_GOOD}"
        )
        observed = Observed()
        metrics = [F.count_if(F.expr(text)).alias(name) for name, text in _COUNTED.items()]
        good = observed.on(records, *metrics).where(_GOOD).select("key", "value", "headers")
        produce(good, self._plan, self._sink)
        told: Any = observed.result()
        if told is None:
            told = records.agg(*metrics).first().asDict()  # type: ignore[union-attr]
        return Sent(int(told["sent"]), int(told["aside"]), self._too_large(records) if told["large"] else ())

    def _too_large(self, records: DataFrame) -> list[Refused]:
        found = records.where(_LARGE).selectExpr("CAST(key AS STRING)", SIZE).limit(_MOST_REFUSED + 1).collect()
        if len(found) > _MOST_REFUSED:
            raise Terminal(
                f"more than {_MOST_REFUSED:,} rows of one batch are too large for Kafka",
                where=self._sink,
                hint="send less of them by `columns` or `value`, or let both sides take more: "
                "`to: {options: {max.request.size: 4MB}}` here, max.message.bytes at the topic",
            )
        limit = f"max.request.size is {self._limit:,}"
        return [Refused(key, "too_large", f"the record has {size:,} bytes; {limit}") for key, size in found]


_COUNTED = {"sent": _GOOD, "aside": f"{ASIDE} IS NOT NULL", "large": _LARGE}
