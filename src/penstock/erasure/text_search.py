"""Searches text for a name in clear, which is only ever in the memory of the command that received it.

A name counts where it stands as a separate word, with no letters or digits attached: 42 is not in 1042. It counts in
any notation: with JSON or URL escapes, in base64 or hexadecimal, in either normal form of Unicode.

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
NUMBER, TEXT, PREFIX = "number", "text", "cut"
"""Kinds of sightings: a number with the same digits, the name, the prefix of it that statistics keep."""
STATISTICS_PREFIX = 32
"""Characters of a text that Delta's statistics keep."""
_MIN_LENGTH, _MIN_DIGITS, _MIN_ENCODED, _MAX_DECODINGS = 4, 5, 8, 3
_NUMERIC_TEXT = re.compile(
    r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
    r"|\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
    r"|\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?|(?<!\d)\d+(?:\.\d+)+"
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_BREAK = re.compile(r"[ \t]*[\r\n]+[ \t]*")
_CONTROL_CHARACTERS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True)
class Sighting:
    """One occurrence of a name in a text."""

    kind: str
    alone: bool = False
    """The name is the whole text."""
    text: str = field(default="", repr=False)
    offset: int = 0
    """Offset in `text` at which it begins."""

    def is_name(self, others: Iterable[str] = ()) -> bool:
        """Whether it is a name as it is written, and not part of one of `others`."""
        return self.kind not in (NUMBER, PREFIX) and not self.within(others)

    def within(self, others: Iterable[str]) -> bool:
        """Whether it is part of one of these names, which belong to other subjects."""
        return any(
            position <= self.offset < position + len(other)
            for other in others
            for position in _occurrences(self.text, other)
        )


class NameSearch:
    def __init__(self, subject: str, value: str) -> None:
        self.subject, self.value = subject, value
        digits = re.fullmatch(r"[0-9.\-]+", value) is not None
        self.plain = digits or len(value) < _MIN_LENGTH
        self.is_unambiguous = not self.plain
        """It can stand for nothing else."""
        self.is_short_number = digits and len(value) < _MIN_DIGITS
        self.is_number = _is_number(value)
        written = normal_forms(value)
        self._words = {*written, *(form.replace(" ", "+") for form in written)}
        self._encoded_forms = _encodings(value)
        self._prefix = value[:STATISTICS_PREFIX] if len(value) > STATISTICS_PREFIX else None
        forms = sorted(_spellings(written), key=len, reverse=True)
        self._text_pattern = re.compile(_word_pattern(forms))
        self._bytes_pattern = re.compile(_word_pattern(forms).encode())
        self.longest = max(len(form.encode()) for form in forms) + 2

    def __repr__(self) -> str:
        return f"Needle({self.subject})"

    def sightings(self, text: str) -> Iterator[Sighting]:
        """Occurrences in any text that is not a JSON object."""
        for variant in variants(text):
            alone = variant.strip() in self._words
            for form in self._words:
                for start in _occurrences(variant, form):
                    end = start + len(form)
                    if _is_word_border(variant, start) and _is_word_border(variant, end):
                        number = (
                            self.plain and not alone and (self.is_short_number or _within_number(variant, start, end))
                        )
                        yield Sighting(NUMBER if number else TEXT, alone, variant, start)
            joined = _without_line_breaks(variant)
            for form in self._encoded_forms:
                for start in _occurrences(joined, form):
                    yield Sighting("base64 or hex", False, joined, start)
            if self._prefix is not None and self._prefix in variant and not alone:
                yield Sighting(PREFIX, False, variant, variant.index(self._prefix))

    def possible(self, texts: Iterable[str]) -> bool:
        """A quick test of whole files and their variants: false if the name is certainly in none of them."""
        forms = {*self._words, *([self._prefix] if self._prefix is not None else [])}
        return any(form in text for text in texts for form in forms) or any(
            form in joined for joined in map(_without_line_breaks, texts) for form in self._encoded_forms
        )

    def equals(self, number: object) -> bool:
        """Whether a JSON number is the name."""
        if not self.is_number or isinstance(number, bool) or not isinstance(number, int | float | Decimal):
            return False
        return canonical(number) == self.value

    def in_text(self, text: str, others: Iterable[str] = ()) -> bool:
        """Whether the text has the name outside the names of `others`."""
        return any(sighting.is_name(others) for sighting in self.sightings(text))

    def spans(self, content: bytes) -> list[tuple[int, int]]:
        return [match.span() for match in self._bytes_pattern.finditer(content)]

    def masked(self, text: str) -> str:
        """The text with the name overwritten in the same length; digits become digits, so a number stays a number."""
        filler = "0" if self.is_number else MASK.decode()
        return self._text_pattern.sub(lambda match: filler * len(match[0]), text)


def variants(text: str) -> list[str]:
    """The text, and the same text with its JSON and URL escapes decoded."""
    texts = [text]
    for _ in range(_MAX_DECODINGS):
        decoded = [_unescape(variant) for variant in texts if "\\" in variant] + [
            unquote(variant) for variant in texts if "%" in variant
        ]
        texts = list(dict.fromkeys([*texts, *decoded]))
    return texts


def _without_line_breaks(text: str) -> str:
    """Removes line breaks: base64 encoders break long lines, Spark's own after 76 characters."""
    return _BREAK.sub("", text) if "\n" in text or "\r" in text else text


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _CONTROL_CHARACTERS.get(match[2], match[2])

    unescaped = _ESCAPE.sub(character, text)
    return unescaped.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def normal_forms(value: str) -> list[str]:
    """The text as written and in both Unicode normal forms: they look alike but differ in their bytes."""
    return list(dict.fromkeys([value, normalize("NFC", value), normalize("NFD", value)]))


def _spellings(texts: Iterable[str]) -> set[str]:
    spellings: set[str] = set()
    for text in texts:
        escaped = {json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], text.replace("/", "\\/")}
        escaped_twice = {json.dumps(form, ensure_ascii=False)[1:-1] for form in escaped}
        escaped_thrice = {json.dumps(form, ensure_ascii=False)[1:-1] for form in escaped_twice}
        address = {quote(text), quote(text, safe=""), quote(quote(text, safe="")), quote_plus(text)}
        folder = {_partition_folder(text), quote(_partition_folder(text))}
        spellings |= {text} | escaped | escaped_twice | escaped_thrice | address | folder
    return spellings


def _partition_folder(text: str) -> str:
    """The value as Hive, and so Delta, writes it in the name of a partition's folder."""
    return "".join(f"%{ord(sign):02X}" if sign < " " or sign in "\"#%'*/:=?\\{[]^\x7f" else sign for sign in text)


def _encodings(value: str) -> set[str]:
    raw = value.encode()
    encodings = {raw.hex(), raw.hex().upper()} if len(raw) >= _MIN_LENGTH else set()
    for padding in range(3):
        coded = base64.b64encode(bytes(padding) + raw).decode()
        core = coded[(8 * padding + 5) // 6 : 8 * (padding + len(raw)) // 6]
        if len(core) >= _MIN_ENCODED:
            encodings |= {core, core.replace("+", "-").replace("/", "_")}
    return encodings


def _is_number(value: str) -> bool:
    return re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) is not None and canonical(Decimal(value)) == value


def _is_word_border(text: str, position: int) -> bool:
    return position in (0, len(text)) or not (text[position - 1].isalnum() and text[position].isalnum())


def _within_number(text: str, start: int, end: int) -> bool:
    spans = (match.span() for match in _NUMERIC_TEXT.finditer(text))
    return any(first <= start and last >= end and last - first > end - start for first, last in spans)


def _occurrences(text: str, part: str) -> Iterator[int]:
    start = text.find(part)
    while start >= 0:
        yield start
        start = text.find(part, start + 1)


def _word_pattern(forms: Sequence[str]) -> str:
    return f"(?<![0-9A-Za-z])(?:{'|'.join(map(re.escape, forms))})(?![0-9A-Za-z])"
