"""A name in clear, looked for in text: only ever in the memory of the command that was given it.

It counts where it stands as a word of its own, neither glued to letters nor to digits: 42 is not in 1042. However it is
written: with the escapes of JSON or of an address, in base64 or hexadecimal, in either normal form of Unicode.

A *plain* name is often something else: digits alone, or fewer than four characters. It counts in text that comes from
rows, and in no position, count or size; not within a date, a time, a fraction, an address or a UUID. Fewer than five
digits count only where they are the whole text. The same rules in Java: penstock/forget/Sightings.java.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from unicodedata import normalize
from urllib.parse import quote, quote_plus, unquote

from penstock.tables.suppression_list import canonical

MASK = b"x"
NUMBER, TEXT, CUT = "number", "text", "cut"
"""A number with the same digits; the name; the part of it that statistics keep."""
KEPT = 32
"""Characters of a text that Delta's statistics have."""
_LEAST, _BRIEF, _CODED, _DEPTH = 4, 5, 8, 3
_NUMBERS = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
    r"|\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
    r"|\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?|(?<!\d)\d+(?:\.\d+)+"
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_BREAK = re.compile(r"[ \t]*[\r\n]+[ \t]*")
_SIGNS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True)
class Sighting:
    """Of one name in one text."""

    kind: str
    alone: bool = False
    """The name is the whole text."""
    around: str = field(default="", repr=False)
    at: int = 0
    """Where in `around` it begins."""

    def within(self, others: Iterable[str]) -> bool:
        """Whether it is a part of one of these, which are names of somebody else."""
        return any(start <= self.at < start + len(other) for other in others for start in _all(self.around, other))


class NameSearch:
    def __init__(self, subject: str, value: str) -> None:
        self.subject, self.value = subject, value
        digits = re.fullmatch(r"[0-9.\-]+", value) is not None
        self.plain = digits or len(value) < _LEAST
        self.brief = digits and len(value) < _BRIEF
        self.number = _number(value)
        written = _written(value)
        self._words = written | {one.replace(" ", "+") for one in written}
        self._coded = _codes(value)
        self._cut = value[:KEPT] if len(value) > KEPT else None
        forms = sorted(_escaped(written), key=len, reverse=True)
        self._text = re.compile(_pattern(forms))
        self._bytes = re.compile(_pattern(forms).encode())
        self.longest = max(len(form.encode()) for form in forms) + 2

    @property
    def telling(self) -> bool:
        """Whether it can stand for nothing else."""
        return not self.plain

    def __repr__(self) -> str:
        return f"Needle({self.subject})"

    def sightings(self, text: str) -> Iterator[Sighting]:
        """In text, of which nothing is known but that it is no JSON object."""
        for variant in variants(text):
            alone = variant.strip() in self._words
            for form in self._words:
                for at in _all(variant, form):
                    end = at + len(form)
                    if _border(variant, at) and _border(variant, end):
                        number = self.plain and not alone and (self.brief or _within_number(variant, at, end))
                        yield Sighting(NUMBER if number else TEXT, alone, variant, at)
            whole = _joined(variant)
            for form in self._coded:
                for at in _all(whole, form):
                    yield Sighting("base64 or hex", False, whole, at)
            if self._cut is not None and self._cut in variant and not alone:
                yield Sighting(CUT, False, variant, variant.index(self._cut))

    def possible(self, texts: Iterable[str]) -> bool:
        """A quick look at whole files and their variants: false if it is certainly in none of them."""
        forms = {*self._words, *([self._cut] if self._cut is not None else [])}
        return any(form in text for text in texts for form in forms) or any(
            form in whole for whole in map(_joined, texts) for form in self._coded
        )

    def equals(self, number: object) -> bool:
        """A number as JSON has it."""
        if self.number is None or isinstance(number, bool) or not isinstance(number, int | float | Decimal):
            return False
        return canonical(number) == self.value

    def in_text(self, text: str) -> bool:
        return any(one.kind not in (NUMBER, CUT) for one in self.sightings(text))

    def spans(self, content: bytes) -> list[tuple[int, int]]:
        return [match.span() for match in self._bytes.finditer(content)]

    def masked(self, text: str) -> str:
        """As long as it was. Digits become digits: a number stays one."""
        sign = "0" if self.number is not None else MASK.decode()
        return self._text.sub(lambda match: sign * len(match[0]), text)


def variants(text: str) -> list[str]:
    """The text, and what it says behind escapes of JSON and of addresses."""
    found = [text]
    for _ in range(_DEPTH):
        more = [_unescaped(one) for one in found if "\\" in one] + [unquote(one) for one in found if "%" in one]
        found = list(dict.fromkeys([*found, *more]))
    return found


def _joined(text: str) -> str:
    """Without line breaks: encoders of base64 break long lines, Spark's own after 76 characters."""
    return _BREAK.sub("", text) if "\n" in text or "\r" in text else text


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _SIGNS.get(match[2], match[2])

    made = _ESCAPE.sub(plain, text)
    return made.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _written(value: str) -> set[str]:
    return {value, normalize("NFC", value), normalize("NFD", value)}


def _escaped(texts: Iterable[str]) -> set[str]:
    made: set[str] = set()
    for text in texts:
        once = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], text.replace("/", "\\/")}
        twice = {json.dumps(one, ensure_ascii=False)[1:-1] for one in once}
        address = {quote(text), quote(text, safe=""), quote(quote(text, safe="")), quote_plus(text)}
        made |= {text, *once, *twice, *(json.dumps(one, ensure_ascii=False)[1:-1] for one in twice), *address}
        made |= {_as_folder(text), quote(_as_folder(text))}
    return made


def _as_folder(text: str) -> str:
    """As Hive, and so Delta, names the folder of a partition."""
    return "".join(f"%{ord(sign):02X}" if sign < " " or sign in "\"#%'*/:=?\\{[]^\x7f" else sign for sign in text)


def _codes(value: str) -> set[str]:
    raw = value.encode()
    found = {raw.hex(), raw.hex().upper()} if len(raw) >= _LEAST else set()
    for before in range(3):
        coded = base64.b64encode(bytes(before) + raw).decode()
        core = coded[(8 * before + 5) // 6 : 8 * (before + len(raw)) // 6]
        if len(core) >= _CODED:
            found |= {core, core.replace("+", "-").replace("/", "_")}
    return found


def _number(value: str) -> Decimal | None:
    if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) is None or canonical(Decimal(value)) != value:
        return None
    return Decimal(value)


def _border(text: str, at: int) -> bool:
    return at in (0, len(text)) or not (text[at - 1].isalnum() and text[at].isalnum())


def _within_number(text: str, at: int, end: int) -> bool:
    found = (match.span() for match in _NUMBERS.finditer(text))
    return any(first <= at and last >= end and last - first > end - at for first, last in found)


def _all(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _pattern(forms: Sequence[str]) -> str:
    return f"(?<![0-9A-Za-z])(?:{'|'.join(map(re.escape, forms))})(?![0-9A-Za-z])"
