"""An order to forget somebody: who it is, as a keyed hash. The name itself is kept nowhere."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any

FORMAT = 1
_LARGEST_EXPONENT = 400
"""Of a number that is written out: 1e400 and beyond stays as it is, or one record could fill the memory."""


@dataclass(frozen=True)
class Order:
    subject: str
    """What kind of name it is, as the project calls it: customer."""
    hash: str
    length: int
    """Of the name, in UTF-16 units: where a record is not JSON, only words of that length are compared."""
    time_ms: int
    key: str
    """Tells the key apart by which the hash was made."""

    @property
    def id(self) -> str:
        return f"{self.subject}-{self.hash[:20]}"


def canonical(value: object) -> str:
    """One text for one subject, however it is typed: text as it is, numbers in plain form."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return _plain(Decimal(str(value)))
    return str(value)


def _plain(number: Decimal) -> str:
    """42, 42.0 and 4.2E1 are one number."""
    if not number.is_finite():
        return str(number)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    if not any(digits):
        return "0"
    if abs(exponent) > _LARGEST_EXPONENT:
        return str(number)
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def hashed(key: bytes, subject: str, value: object) -> str:
    return hmac.new(key, f"{subject}={canonical(value)}".encode(), hashlib.sha256).hexdigest()


def fingerprint(key: bytes) -> str:
    """Tells keys apart and says nothing of them."""
    return hmac.new(key, b"penstock forget", hashlib.sha256).hexdigest()[:16]


def order_of(key: bytes, subject: str, value: object, time_ms: int) -> Order:
    length = len(canonical(value).encode("utf-16-le")) // 2
    return Order(subject, hashed(key, subject, value), length, time_ms, fingerprint(key))


def dump(order: Order) -> str:
    return json.dumps({"penstock": FORMAT, **asdict(order)})


def parse(text: str) -> Order | None:
    """None if it is not whole: such a file was never an order."""
    try:
        found: Any = json.loads(text)
        if not isinstance(found, dict) or found.pop("penstock", None) != FORMAT:
            return None
        return Order(**found)
    except (ValueError, TypeError):
        return None
