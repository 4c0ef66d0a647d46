"""`maintenance`: what a runner does to the files of its tables, between their batches, and how often."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from penstock.spec.base_model import Finding, SpecModel, did_you_mean, quote_value, wrong
from penstock.spec.quantity import duration_text, seconds, size

MIN_INTERVAL = 60.0
LEAST_SIZE, MOST_SIZE = 1024 * 1024, 4 * 1024**3
LONGEST = 10 * 365 * 86400.0
"""The longest time in seconds for which anything can be kept: more is a typing error."""
DAY = 86400.0


def _every(value: Any) -> float:
    span = seconds(value)
    if not MIN_INTERVAL <= span <= LONGEST:
        raise wrong(
            f"{quote_value(value)} is not how often files can be looked after", "write 1 minute or more: 1 hour"
        )
    return span


def _retention(value: Any) -> float:
    span = seconds(value)
    if span > LONGEST:
        raise wrong(
            f"{quote_value(value)} is longer than anything can be kept", f"write {duration_text(LONGEST)} or less"
        )
    return span


def _target_size(value: Any) -> int:
    byte_count = size(value)
    if not LEAST_SIZE <= byte_count <= MOST_SIZE:
        raise wrong(f"{quote_value(value)} is no size to aim at for a file", "write 1MiB to 4GiB: 256MiB")
    return byte_count


Every = Annotated[float, BeforeValidator(_every)]
Retention = Annotated[float, BeforeValidator(_retention)]


class Optimize(SpecModel):
    """Small files become large ones. `optimize: 1 hour` is short for `{every: 1 hour}`."""

    every: Every = Field(default=3600.0, examples=["1 hour"])
    target_size: Annotated[int, BeforeValidator(_target_size)] | None = Field(default=None, examples=["256MiB"])

    shape: ClassVar[str] = "optimize: 1 hour, or {every: 1 hour, target_size: 256MiB}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        return {"every": data} if isinstance(data, str | int | float) else data


class ExternalReader(SpecModel):
    """Somebody outside the project who reads a table: he may be so far behind."""

    name: str = Field(min_length=1, examples=["bi"])
    table: str = Field(min_length=1, examples=["silver.orders"])
    lag: Retention = Field(examples=["2 days"])

    shape: ClassVar[str] = "{name: bi, table: silver.orders, lag: 2 days}"


class Vacuum(SpecModel):
    """Files that no version needs any more go, but never one that a stream still needs."""

    every: Every = Field(default=DAY, examples=["1 day"])
    retain: Retention | None = Field(default=None, examples=["7 days"])
    replay_window: Retention | None = Field(default=None, examples=["14 days"])
    external_readers: tuple[ExternalReader, ...] = Field(default=(), examples=[f"[{ExternalReader.shape}]"])

    shape: ClassVar[str] = "vacuum: {retain: 7 days}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, str | int | float):
            hint = "write vacuum: {retain: 7 days}; `every` says how often"
            raise wrong(
                f"{quote_value(data)}: is that how long files are kept, or how often they are looked after?", hint
            )
        return data

    @model_validator(mode="after")
    def _check_unique_names(self) -> Vacuum:
        names = [reader.name for reader in self.external_readers]
        duplicate = next((name for name in names if names.count(name) > 1), None)
        if duplicate is not None:
            index = len(names) - 1 - names[::-1].index(duplicate)
            message = f"there are two external readers called {quote_value(duplicate)}"
            raise wrong(message, "give each a name of its own", "external_readers", index, "name")
        return self


class Maintenance(SpecModel):
    optimize: Optimize | None = None
    vacuum: Vacuum | None = None

    moved: ClassVar[dict[str, str]] = {
        "retain": "it is part of vacuum: {retain: 7 days}",
        "external_readers": "it is part of vacuum: {external_readers: […]}",
        "replay_window": "it is part of vacuum: {replay_window: 14 days}",
    }
    shape: ClassVar[str] = "maintenance: {optimize: 1 hour, vacuum: {retain: 7 days}}"


def maintenance_findings(maintenance: Maintenance, tables: Collection[str]) -> list[Finding]:
    """External readers must read tables that exist."""
    readers = maintenance.vacuum.external_readers if maintenance.vacuum else ()
    return [
        Finding(
            ("vacuum", "external_readers", index, "table"),
            f"there is no table {quote_value(reader.table)} in this project",
            did_you_mean(reader.table, list(tables)),
        )
        for index, reader in enumerate(readers)
        if reader.table not in tables
    ]
