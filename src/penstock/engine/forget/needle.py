"""A name in clear, looked for in text: only ever in the memory of the command that was given it.

It counts where it stands as a word of its own, neither glued to letters nor to digits: 42 is not in 1042. A name of
digits alone can be anything else as well, an offset or a size: it is looked for only where rows could have left it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from urllib.parse import quote

MASK = b"x"
_LEAST = 4


class Needle:
    def __init__(self, subject: str, value: str) -> None:
        self.subject = subject
        escaped = json.dumps(value)[1:-1]
        forms = {value, escaped, json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(escaped)[1:-1], quote(value)}
        self._text = re.compile(_pattern(sorted(forms, key=len, reverse=True)))
        self._bytes = re.compile(_pattern(sorted(forms, key=len, reverse=True)).encode())
        self.longest = max(len(form.encode()) for form in forms) + 2
        self.telling = len(value) >= _LEAST and not value.replace(".", "").replace("-", "").isdigit()
        """Whether it can stand for nothing else."""

    def __repr__(self) -> str:
        return f"Needle({self.subject})"

    def in_text(self, text: str) -> bool:
        return self._text.search(text) is not None

    def spans(self, content: bytes) -> list[tuple[int, int]]:
        return [match.span() for match in self._bytes.finditer(content)]

    def masked(self, text: str) -> str:
        """As long as it was."""
        return self._text.sub(lambda match: MASK.decode() * len(match[0]), text)


def _pattern(forms: Sequence[str]) -> str:
    return f"(?<![0-9A-Za-z])(?:{'|'.join(map(re.escape, forms))})(?![0-9A-Za-z])"


def any_in(needles: Sequence[Needle], text: str) -> bool:
    return any(one.in_text(text) for one in needles)
