"""Records like `id=7;name=Ann`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.formats.base import PARSED, Decoded, absent, case, reason
from penstock.spark.sql_text import literal, quote
from penstock.spec.stages import FormatRules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.plan.stages import DecodePlan


@dataclass(frozen=True)
class PairsDecoder:
    plan: DecodePlan
    binary: str | None

    def decode(self, records: DataFrame) -> Decoded:
        assert self.plan.schema is not None
        text, separator = quote(self.plan.column), self.plan.options.get("separator", ";")
        pairs = f"str_to_map({text}, {literal(separator)}, '=')"
        columns = tuple(
            (field.name, f"try_cast({PARSED}[{literal(field.name)}] AS {field.type})")
            for field in self.plan.schema.fields
        )
        missing = [(f"{PARSED}[{literal(name)}] IS NOT NULL AND {value} IS NULL", name) for name, value in columns]
        wrong = [(condition, reason("wrong_type", literal(f"{name} has another type"))) for condition, name in missing]
        malformed = f"NOT coalesce({text} LIKE '%=%', false)"
        bad = " OR ".join([malformed, *(condition for condition, _ in missing)])
        why = case([*absent(self.plan.column, self.binary), *wrong], reason("decode_failed", literal("no pairs")))
        return Decoded(records.selectExpr("*", f"{pairs} AS {PARSED}"), columns, f"({bad})", why)


class PairsFormat:
    rules = FormatRules(options=("separator",))

    def open(self, plan: DecodePlan, binary: str | None) -> PairsDecoder:
        return PairsDecoder(plan, binary)
