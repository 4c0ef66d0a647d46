"""An audit table: one row for each change of another table, with what was there before and after."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field, ValidationInfo

from penstock.spec.part import Part


class Audit(Part):
    """`who` is an SQL expression over the changed row."""

    keys: tuple[str, ...] = Field(default=(), examples=["[customer_id]"])
    who: str | None = Field(default=None, min_length=1, examples=["updated_by"])

    shape: ClassVar[str] = "audit: {who: updated_by}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        if data is True:
            return {}
        if isinstance(data, dict) and isinstance(data.get("keys"), str):
            return {**data, "keys": [data["keys"]]}
        return data
