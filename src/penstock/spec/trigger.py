"""How often a table takes a batch."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import ValidationInfo, model_validator

from penstock.spec.finding import nearest, shown, wrong
from penstock.spec.part import Part
from penstock.spec.quantity import seconds

_CONTINUOUS = (
    "the continuous mode of Spark has no batches: it can neither write to Delta nor record exactly once what it wrote",
    "write trigger: 1s, which lands records about as soon as that mode would",
)


class Trigger(Part):
    """`30s`, `available-now`, `once` or `{sla: 1h}`. `seconds` is the interval, or the SLA itself."""

    kind: Literal["interval", "available-now", "once", "sla"]
    seconds: float | None = None

    python_only: ClassVar[frozenset[str]] = frozenset({"kind", "seconds"})
    shape: ClassVar[str] = "trigger: 30s, available-now, once or {sla: 1h}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, dict) and "kind" in data and info.context is None:
            return data
        if data == "continuous" or (isinstance(data, dict) and "continuous" in data):
            raise wrong(*_CONTINUOUS)
        if isinstance(data, dict):
            return cls._from_sla(data)
        if data in ("available-now", "once"):
            return {"kind": str(data)}
        if isinstance(data, str) and (meant := nearest(data, ("available-now", "once", "continuous"))):
            if meant == "continuous":
                raise wrong(*_CONTINUOUS)
            raise wrong(f"{shown(data)} is not a trigger", f"did you mean {meant}?")
        return {"kind": "interval", "seconds": seconds(data)}

    @classmethod
    def _from_sla(cls, data: dict[str, Any]) -> dict[str, Any]:
        if set(data) != {"sla"}:
            other = next((key for key in data if key != "sla"), None)
            raise wrong(f"{shown(other or data)} is not a trigger", f"write {cls.shape}")
        sla = seconds(data["sla"])
        if sla <= 0:
            raise wrong(f"{shown(data['sla'])} is too short", "write sla: 1h", "sla")
        return {"kind": "sla", "seconds": sla}

    @model_validator(mode="after")
    def _has_an_interval(self) -> Trigger:
        if (self.kind in ("interval", "sla")) != (self.seconds is not None):
            raise wrong(f"the trigger '{self.kind}' and the seconds {self.seconds} do not fit", f"write {self.shape}")
        return self
