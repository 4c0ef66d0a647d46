"""Text from a table, which anybody may have written, for a terminal: what would steer it is shown instead."""

from __future__ import annotations

import re

STEERS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_KNOWN = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def visible(text: str) -> str:
    return STEERS.sub(lambda found: _KNOWN.get(found[0], f"\\u{ord(found[0]):04x}"), text)
