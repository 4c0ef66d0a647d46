"""How much, how fast and how faulty, as people write it on a command line. Wrong text is a UsageError."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from penstock.errors import UsageError
from penstock.spec.finding import Wrong, shown
from penstock.spec.quantity import instant, seconds

_NUMBER = re.compile(r"(\d[\d_,]*(?:\.\d+)?)\s*([kKmM]?)")
_THOUSANDS = {"": 1, "k": 1_000, "m": 1_000_000}
_PER = {"s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600}
_SHARES = "write a percentage from 0% to 100%, for example 1% or 0.5%"
_COUNTS = "write a whole number, for example 10000, 50k or 2M"
_RATES = "write events per time, for example 500/s, 20k/s or 90/min"

T = TypeVar("T")


def share(text: str, option: str) -> float:
    """'1%' -> 0.01."""
    number, sign, rest = text.strip().partition("%")
    try:
        percent = float(number)
    except ValueError:
        percent = -1.0
    # Without the sign it could be 1% or all of them.
    if not sign or rest or not 0 <= percent <= 100:
        raise UsageError(f"{option} {shown(text)} is not a share", hint=_SHARES)
    return percent / 100


def count(text: str, option: str) -> int:
    """'50k' -> 50000."""
    number = _number(text)
    if number is None or number < 1 or number != int(number):
        raise UsageError(f"{option} {shown(text)} is not a number of events", hint=_COUNTS)
    return int(number)


def rate(text: str, option: str) -> float:
    """'20k/s' -> 20000.0 events per second; without a unit of time it is per second."""
    amount, slash, per = (part.strip() for part in text.partition("/"))
    number = _number(amount)
    if number is None or number <= 0 or (slash and per.casefold() not in _PER):
        raise UsageError(f"{option} {shown(text)} is not a rate", hint=_RATES)
    return number / (_PER[per.casefold()] if slash else 1)


def duration(text: str, option: str) -> float:
    """'1m' -> 60.0 seconds, more than none."""
    span = _read(seconds, text, option)
    if span <= 0:
        raise UsageError(f"{option} {shown(text)} is no time at all", hint="write for example 30s or 5m")
    return span


def moment(text: str, option: str) -> datetime:
    return _read(instant, text, option)


def _number(text: str) -> float | None:
    match = _NUMBER.fullmatch(text.strip())
    return float(re.sub("[_,]", "", match[1])) * _THOUSANDS[match[2].casefold()] if match else None


def _read(reader: Callable[[object], T], text: str, option: str) -> T:
    try:
        return reader(text)
    except Wrong as error:
        finding = error.findings[0]
        raise UsageError(f"{option}: {finding.message}", hint=finding.hint) from None
