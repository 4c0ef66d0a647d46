"""Which texts each type takes, and as which value: docs/types.md again, in plain Python, by nothing of Penstock's."""

from __future__ import annotations

import base64
import json
import re
import struct
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

NUMBER = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:[eE]([+-]?)([0-9]+))?")
TIME = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(?:([Zz])|([+-])([0-9]{2}):?([0-9]{2})?)?)?"
)
DECIMAL = re.compile(r"DECIMAL\(([0-9]+),([0-9]+)\)")
BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
DEEPEST = 1000
ENDLESS = 10**12
EPOCH = datetime(1970, 1, 1)
FIRST, LAST = (
    (datetime(1, 1, 1) - EPOCH) // timedelta(microseconds=1),
    (datetime.max - EPOCH) // timedelta(microseconds=1),
)


class Refused(Exception):
    pass


class Number(NamedTuple):
    """digits * 10^exponent; no zero stands at either end of the digits."""

    negative: bool
    digits: str
    exponent: int


class Written(str):
    """A number of JSON, as it stands there."""


def of_line(kind: str, text: str, zone: str = "UTC") -> Any:
    """A field of CSV."""
    if kind == "STRING":
        return text
    text = text.strip(" \t")
    if not text:
        return None
    if kind == "BOOLEAN":
        word = text.lower() if text.isascii() else ""
        if word in ("true", "t", "yes", "y", "1", "false", "f", "no", "n", "0"):
            return word in ("true", "t", "yes", "y", "1")
        raise Refused
    return of_text(kind, text, zone)


def of_json(kind: str, value: Any, zone: str = "UTC") -> Any:
    """A value as `parsed` gives it."""
    if value is None:
        return None
    if kind == "BOOLEAN":
        if isinstance(value, bool):
            return value
        raise Refused
    if kind == "STRING":
        if isinstance(value, dict | list):
            raise Refused
        return json.dumps(value) if isinstance(value, bool) else str(whole(value))
    if not isinstance(value, str):
        raise Refused
    if isinstance(value, Written) != (kind in BITS or kind in ("FLOAT", "DOUBLE")) and not DECIMAL.match(kind):
        raise Refused
    return of_text(kind, value, zone)


def parsed(text: str) -> dict[str, Any]:
    """A JSON object in which no field is twice; numbers as they are written."""
    if depth(text) > DEEPEST:
        raise Refused
    try:
        found = json.loads(text, object_pairs_hook=once, parse_constant=never, parse_int=Written, parse_float=Written)
    except (ValueError, RecursionError):
        raise Refused from None
    if not isinstance(found, dict):
        raise Refused
    return found


def depth(text: str) -> int:
    """As far as it goes until the text is no longer JSON; outside of strings."""
    deepest = now = 0
    for sign in re.sub(r'"(?:[^"\\]|\\.)*"', '""', text):
        now += (sign in "[{") - (sign in "]}")
        deepest = max(deepest, now)
    return deepest


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise Refused
    return made


def never(_: str) -> Any:
    raise Refused


def whole(text: str) -> str:
    if any(0xD800 <= ord(one) < 0xE000 for one in text):
        raise Refused
    return text


def of_text(kind: str, text: str, zone: str) -> Any:
    if kind in BITS:
        return integer(text, BITS[kind])
    if sizes := DECIMAL.fullmatch(kind):
        return decimal(text, int(sizes[1]), int(sizes[2]))
    match kind:
        case "DOUBLE":
            return double(text)
        case "FLOAT":
            return single(text)
        case "BINARY":
            return binary(text)
        case "DATE":
            return day(text)
        case "TIMESTAMP":
            return moment(text, zone)
        case "TIMESTAMP_NTZ":
            return moment(text, None)
    raise AssertionError(kind)


def number(text: str) -> Number:
    found = NUMBER.fullmatch(text)
    if found is None:
        raise Refused
    sign, before, behind, alone, minus, power = found.groups(default="")
    behind = behind + alone
    power = power.lstrip("0")
    exponent = ENDLESS if len(power) > 12 else int(power or "0")
    exponent = (-exponent if minus == "-" else exponent) - len(behind)
    digits = (before + behind).lstrip("0")
    kept = digits.rstrip("0")
    return Number(sign == "-", kept, exponent + len(digits) - len(kept) if kept else 0)


def integer(text: str, bits: int) -> int:
    found = number(text)
    if found.exponent < 0 or len(found.digits) + found.exponent > 20:
        raise Refused
    value = int(found.digits or "0") * 10**found.exponent * (-1 if found.negative else 1)
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise Refused
    return value


def decimal(text: str, precision: int, scale: int) -> Decimal:
    found = number(text)
    if found.digits and (-found.exponent > scale or len(found.digits) + found.exponent > precision - scale):
        raise Refused
    return Decimal((found.negative, tuple(map(int, found.digits or "0")), found.exponent))


def double(text: str) -> float:
    return bounded(float(text) if number(text) else 0, number(text), 2**53)


def single(text: str) -> float:
    found = number(text)
    if not found.digits:
        return -0.0 if found.negative else 0.0
    size = len(found.digits) + found.exponent
    if not -60 < size < 60:
        raise Refused
    exact = Fraction(int(found.digits[:5000])) * Fraction(10) ** (found.exponent + len(found.digits[5000:]))
    return bounded(nearest(exact) * (-1 if found.negative else 1), found, 2**24)


def nearest(exact: Fraction) -> float:
    """The 32-bit number that is nearest; of two the even one."""
    below, above = 0, 0x7F800000
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (middle, above) if of_bits(middle) <= exact else (below, middle)
    top = Fraction(2) ** 128 if above == 0x7F800000 else of_bits(above)
    low, high = exact - of_bits(below), top - exact
    chosen = below if low < high or (low == high and below % 2 == 0) else above
    return float(struct.unpack("f", struct.pack("I", chosen))[0])


def of_bits(bits: int) -> Fraction:
    return Fraction(struct.unpack("f", struct.pack("I", bits))[0])


def bounded(value: float, found: Number, every: int) -> float:
    if value in (float("inf"), float("-inf")) or (value == 0 and found.digits):
        raise Refused
    if abs(value) >= every:
        if len(found.digits) > 400:
            raise Refused
        back = Context(prec=len(found.digits)).create_decimal(Decimal(value))
        if back != Decimal((found.negative, tuple(map(int, found.digits)), found.exponent)):
            raise Refused
    return value


def binary(text: str) -> bytes:
    text = re.sub("[ \t\r\n]", "", text)
    try:
        made = base64.b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        raise Refused from None
    if base64.b64encode(made).decode() != text:
        raise Refused
    return made


def day(text: str) -> int:
    found = re.fullmatch("([0-9]{4})-([0-9]{2})-([0-9]{2})", text)
    if found is None:
        raise Refused
    try:
        return date(*map(int, found.groups())).toordinal() - EPOCH.toordinal()
    except ValueError:
        raise Refused from None


def moment(text: str, zone: str | None) -> int:
    """Microseconds. Without a zone: a local time."""
    found = TIME.fullmatch(text)
    if found is None:
        raise Refused
    written, hour, minute, second, fraction, zulu, sign, hours, minutes = found.groups(default="")
    if sign and found[0].endswith(":"):
        raise Refused
    if (zulu or sign) and zone is None:
        raise Refused
    fraction = fraction.ljust(9, "0")
    if fraction[6:].strip("0"):
        raise Refused
    try:
        local = datetime.fromordinal(day(written) + EPOCH.toordinal()).replace(
            hour=int(hour or "0"), minute=int(minute or "0"), second=int(second or "0"), microsecond=int(fraction[:6])
        )
    except ValueError:
        raise Refused from None
    offset = timedelta(0)
    if sign:
        if int(minutes or "0") > 59:
            raise Refused
        offset = timedelta(hours=int(hours), minutes=int(minutes or "0"))
        if offset > timedelta(hours=18):
            raise Refused
        offset = -offset if sign == "-" else offset
    elif not zulu and zone not in (None, "UTC"):
        offset = of_zone(local, ZoneInfo(str(zone)))
    value = (local - EPOCH - offset) // timedelta(microseconds=1)
    if not FIRST <= value <= LAST:
        raise Refused
    return value


def of_zone(local: datetime, zone: ZoneInfo) -> timedelta:
    early, late = (zone.utcoffset(local.replace(fold=fold)) for fold in (0, 1))
    assert early is not None and late is not None
    if early < late:  # clocks were set forward over it
        raise Refused
    return early
