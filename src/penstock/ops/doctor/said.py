"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def span(seconds: float) -> str:
    """`3 d 4 h`, `2 h 5 min`, `40 s`, `0.3 s`: two units at most."""
    if seconds < 0:
        return f"-{span(-seconds)}"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    rest = round(seconds)
    for index, (size, unit) in enumerate(_SPANS):
        if rest >= size:
            whole, rest = divmod(rest, size)
            below, small = _SPANS[index + 1] if index + 1 < len(_SPANS) else (1, "s")
            return f"{whole} {unit} {rest // below} {small}" if rest // below else f"{whole} {unit}"
    return f"{rest} s"


def size(number: float) -> str:
    """`1.5 GiB`."""
    for unit in _SIZES[:-1]:
        if abs(number) < 1024:
            return f"{number:.0f} {unit}" if unit == "bytes" or abs(number) >= 100 else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} {_SIZES[-1]}"


def count(number: int, noun: str, nouns: str | None = None) -> str:
    """`1 record`, `1,200 records`."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def rate(per_second: float) -> str:
    """`12/s`; of slow things `3/h`."""
    if per_second >= 1:
        return f"{per_second:,.0f}/s"
    hourly = per_second * 3600
    return f"{hourly:,.0f}/h" if hourly >= 1 else f"{per_second * 86_400:.1f}/d"


def listed(names: Iterable[str], most: int = 5) -> str:
    """`a, b, c and 4 more`."""
    found: Sequence[str] = list(names)
    more = f" and {len(found) - most:,} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
