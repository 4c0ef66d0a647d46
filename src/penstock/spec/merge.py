"""A table whose rows are changed by what arrives: the newest change of a key wins, whatever the order of arrival."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from penstock.spec.finding import wrong
from penstock.spec.part import Part, one_of
from penstock.spec.quantity import seconds

OWN = ("_sequence", "_deleted", "_deleted_at")
"""Columns that a merged table has besides those of its rows."""
SINCE = "_since"
"""And that of one that ignores nulls."""
VALID = ("valid_from", "valid_to", "is_current")
"""And those of one that keeps its history."""


KEEP_DELETED = 90 * 86_400.0
"""Seconds for which a tombstone is kept unless the project says otherwise: longer than a change is late."""


def _keep_deleted(value: Any) -> float:
    return math.inf if value in ("forever", math.inf) else seconds(value)


def _history(value: Any) -> str:
    return one_of(value, "way to keep history", ("scd1", "scd2"))


class Columns(Part):
    """Which columns of the changes become columns of the table: these, or all but some."""

    only: tuple[str, ...] = ()
    but: tuple[str, ...] = Field(default=(), alias="except", examples=["[op, ts_ms]"])

    python_only: ClassVar[frozenset[str]] = frozenset({"only"})
    shape: ClassVar[str] = "columns: [name, city], or columns: {except: [op]}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, list | tuple):
            return {"only": data}
        if isinstance(data, dict) and isinstance(data.get("except"), str):
            return {**data, "except": [data["except"]]}
        return data


class Merge(Part):
    """`sequence`, `delete_when` and `time` are SQL expressions over a change."""

    keys: tuple[str, ...] = Field(default=(), examples=["[customer_id]"])
    sequence: str | None = Field(default=None, min_length=1, examples=["updated_at"])
    delete_when: str | None = Field(default=None, min_length=1, examples=["op = 'd'"])
    history: Annotated[Literal["scd1", "scd2"], BeforeValidator(_history)] = "scd1"
    ignore_null_updates: bool = False
    columns: Columns = Columns()
    time: str | None = Field(default=None, min_length=1, examples=["updated_at"])
    from_snapshot: str | None = Field(default=None, min_length=1, examples=["extract_date"])
    """Rows are full extracts, each a file, and this says when each was taken."""
    keep_deleted: Annotated[float, BeforeValidator(_keep_deleted)] | None = Field(
        default=None, examples=["30 days", "forever"]
    )
    """None: 90 days; infinity: forever, as always with a history."""

    shape: ClassVar[str] = "{keys: [customer_id], sequence: updated_at, delete_when: \"op = 'd'\"}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, dict) and isinstance(data.get("keys"), str):
            return {**data, "keys": [data["keys"]]}
        return data

    @model_validator(mode="after")
    def _fits(self) -> Merge:
        if self.time is not None and self.history != "scd2":
            raise wrong("'time' says since when a version is valid", "write history: scd2, or remove it", "time")
        if self.ignore_null_updates and self.history == "scd2":
            raise wrong(
                "'ignore_null_updates' is for history: scd1",
                "fill the gaps in a table with scd1, and keep the history of that: from: {changes: …}",
                "ignore_null_updates",
                at_key=True,
            )
        if self.keep_deleted not in (None, math.inf) and self.history == "scd2":
            # Without it the version before the delete would last until the next change of its key.
            raise wrong(
                "'keep_deleted' is for history: scd1; here the tombstone says when a version ended",
                "remove it: a history keeps its deletes",
                "keep_deleted",
                at_key=True,
            )
        for name in ("sequence", "delete_when", "ignore_null_updates"):
            if self.from_snapshot is not None and getattr(self, name):
                raise wrong(
                    f"'{name}' is for changes: an extract says by itself what is new, and what is gone",
                    "remove it",
                    name,
                    at_key=True,
                )
        folded = [key.casefold() for key in self.keys]
        if len(set(folded)) < len(folded):
            raise wrong("a key is there twice", "name each once", "keys")
        left_out = {name.casefold() for name in self.columns.but}
        if gone := [key for key in self.keys if key.casefold() in left_out]:
            raise wrong(f"the key {gone[0]} cannot be left out", "remove it from except", "columns", "except")
        return self
