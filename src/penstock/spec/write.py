"""How the rows of a table are kept: schema, layout, change feed."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from penstock.spec.finding import wrong
from penstock.spec.merge import Merge
from penstock.spec.part import Part, one_of
from penstock.spec.properties import table_properties

NOT_APPEND_ONLY = ("rows of this table are replaced by others, which delta.appendOnly forbids", "remove it")
_LISTS = ("partition_by", "cluster_by", "zorder_by")


def _mode(value: Any) -> str:
    return one_of(value, "schema mode", ("strict", "evolve"))


class Write(Part):
    schema_: Annotated[Literal["strict", "evolve"], BeforeValidator(_mode)] = Field(default="strict", alias="schema")
    partition_by: tuple[str, ...] = Field(default=(), examples=["[order_date]"])
    cluster_by: tuple[str, ...] = Field(default=(), examples=["[customer_id]"])
    zorder_by: tuple[str, ...] = Field(default=(), examples=["[customer_id]"])
    auto_compact: bool = False
    change_feed: bool = False
    source: bool = True
    """Each row keeps the coordinates of the record it came from, in the column _source."""
    merge: Merge | None = None
    """None: rows are appended."""
    properties: Annotated[dict[str, str], BeforeValidator(table_properties)] = Field(default={})

    shape: ClassVar[str] = "{schema: strict, partition_by: [order_date]}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, dict):
            return {key: [value] if key in _LISTS and isinstance(value, str) else value for key, value in data.items()}
        return data

    @property
    def has_change_feed(self) -> bool:
        return self.change_feed or self.properties.get("delta.enableChangeDataFeed", "").casefold() == "true"

    @property
    def append_only(self) -> bool:
        return self.properties.get("delta.appendOnly", "").casefold() == "true"

    @model_validator(mode="after")
    def _fits(self) -> Write:
        if self.merge is not None and not self.source:
            message = "a merged table needs to know which of two changes came later: its rows keep their coordinates"
            raise wrong(message, "remove source: false", "source", at_key=True)
        if self.merge is not None and self.append_only:
            raise wrong(*NOT_APPEND_ONLY, "properties", "delta.appendOnly", at_key=True)
        if self.cluster_by and (self.partition_by or self.zorder_by):
            other = "partition_by" if self.partition_by else "zorder_by"
            raise wrong(
                f"a table is laid out by cluster_by or by {other}, not by both", "keep one", "cluster_by", at_key=True
            )
        return self
