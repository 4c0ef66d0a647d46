"""Groups of a source table, recomputed whenever one of their rows arrives."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from penstock.spec.finding import wrong
from penstock.spec.part import Part, one_of, text_values
from penstock.spec.quantity import seconds

Duration = Annotated[float, BeforeValidator(seconds)]


class Window(Part):
    """Tumbling windows of `every`; sliding ones, each `size` long, if that is given."""

    time: str = Field(min_length=1, examples=["order_ts"])
    every: Duration = Field(examples=["1 day"])
    size: Duration | None = None

    shape: ClassVar[str] = "{time: order_ts, every: 1 day}"

    @model_validator(mode="after")
    def _fits(self) -> Window:
        if self.every <= 0:
            raise wrong("a window of no length holds nothing", "write every: 1 hour", "every")
        if self.size is not None and (self.size < self.every or self.size % self.every):
            raise wrong("a sliding window must be a multiple of its step", "write size: 1 hour, every: 15 min", "size")
        return self


def _emit(value: Any) -> str:
    return one_of(value, "way to emit", ("updates", "complete", "final"))


def _metrics(value: Any) -> dict[str, str]:
    made = text_values(value, "metrics")
    if not made:
        raise wrong("there are no metrics", "write metrics: {orders: count(*)}")
    return made


class Aggregate(Part):
    keys: tuple[str, ...] = Field(default=(), examples=["[product_category]"])
    window: Window | None = None
    metrics: Annotated[dict[str, str], BeforeValidator(_metrics)] = Field(examples=["{orders: count(*)}"])
    emit: Annotated[Literal["updates", "complete", "final"], BeforeValidator(_emit)] = "updates"
    watermark: Duration | None = None

    shape: ClassVar[str] = "{keys: [category], metrics: {orders: count(*)}}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, dict) and isinstance(data.get("keys"), str):
            return {**data, "keys": [data["keys"]]}
        return data

    @model_validator(mode="after")
    def _fits(self) -> Aggregate:
        if not self.keys and self.window is None:
            raise wrong("an aggregate needs groups", "write keys: [column], or a window", at_key=True)
        taken = {key.casefold() for key in self.keys} | ({"window_start", "window_end"} if self.window else set())
        for name in self.metrics:
            if name.casefold() in taken:
                raise wrong(f"'{name}' would be the name of two columns", "give the metric another", "metrics", name)
            taken.add(name.casefold())
        if self.emit == "final" and (self.window is None or self.watermark is None):
            raise wrong(
                "'emit: final' closes windows by a watermark, and needs both",
                "write window and watermark: 1 day",
                "emit",
            )
        if self.watermark is not None and self.emit != "final":
            raise wrong(
                "only 'emit: final' has a watermark", "remove it: late rows of any age are counted", "watermark"
            )
        return self
