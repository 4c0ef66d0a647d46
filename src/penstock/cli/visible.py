"""What strangers wrote, for a terminal. A record of Kafka may hold anything: what could move the cursor, colour the
screen, hide itself or turn the direction of writing is shown as an escape."""

from __future__ import annotations

import unicodedata

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    """On one line, every character of it to be seen."""
    return text if text.isprintable() else "".join(one if _plain(one) else _escape(one) for one in text)


def visible_json(text: str) -> str:
    """The same of a JSON document, which stays the same document: such a character can only stand within a string."""
    if text.isprintable():
        return text
    return "".join(one if one == "\n" or _plain(one) else _unicode(one) for one in text)


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _plain(one: str) -> bool:
    return one.isprintable() or unicodedata.category(one) == "Zs"  # spaces of other scripts


def _escape(one: str) -> str:
    if one in _SHORT:
        return _SHORT[one]
    code = ord(one)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _unicode(one: str) -> str:
    """As JSON writes it: in halves where it is long."""
    units = one.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
