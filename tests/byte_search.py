"""A search that knows nothing of Penstock: every page of every Parquet file decompressed, all else byte by byte, and
the names of files and folders, for each way in which a name can be written."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from unicodedata import normalize
from urllib.parse import quote, quote_plus

from tests.parquet_pages import contents

_LONG = 5
_LZ4 = b"LZ4Block"
_KEPT = 32
"""What Delta's statistics keep of a text."""


def named(folder: Path, names: Sequence[str], others: Sequence[str] = ()) -> list[str]:
    """Where one of the names still is. `others` are names of somebody else that have one of these in them: there it
    does not count."""
    found = []
    patterns = {name: _pattern(name) for name in names}
    apart = [form for other in others for form in _forms(other)]
    apart += [
        bound for form in apart for bound in _bounds(form) if any(one.search(bound[:-1]) for one in patterns.values())
    ]
    for path in sorted(folder.rglob("*")):
        seen = {
            name for name, pattern in patterns.items() if _holds(str(path.relative_to(folder)).encode(), pattern, apart)
        }
        if path.is_file():
            for content in _contents(path):
                for name, pattern in patterns.items():
                    if name not in seen and _holds(content, pattern, apart):
                        seen.add(name)
        found += [f"{path}: {name}" for name in names if name in seen]
    return found


def _bounds(form: bytes) -> Iterator[bytes]:
    """As Parquet cuts the largest value of a page after 64 bytes: the last one that stays is one more than it was."""
    return (form[: end - 1] + bytes([form[end - 1] + 1]) for end in range(1, len(form)) if form[end - 1] < 255)


def _holds(content: bytes, pattern: re.Pattern[bytes], apart: Sequence[bytes]) -> bool:
    if pattern.search(content) is None:
        return False
    for other in apart:
        content = content.replace(other, b"\0")
    return pattern.search(content) is not None


def _contents(path: Path) -> Iterator[bytes]:
    content = path.read_bytes()
    if path.suffix == ".parquet" and content[-4:] == b"PAR1":
        yield from contents(path)
        return
    yield content
    if content[:2] == b"\x1f\x8b":
        yield gzip.decompress(content)
    if content[:8] == _LZ4:
        yield b"".join(_lz4_blocks(content))


def _lz4_blocks(content: bytes) -> Iterator[bytes]:
    """As Spark writes its state."""
    at = 0
    while at < len(content):
        assert content[at : at + 8] == _LZ4
        method, packed = content[at + 8] & 0xF0, int.from_bytes(content[at + 9 : at + 13], "little")
        block = content[at + 21 : at + 21 + packed]
        yield _lz4(block) if method == 0x20 else block
        at += 21 + packed


def _lz4(block: bytes) -> bytes:
    made, at = bytearray(), 0
    while at < len(block):
        token = block[at]
        length, at = _lz4_length(block, at + 1, token >> 4)
        made += block[at : at + length]
        at += length
        if at >= len(block):
            break
        back = int.from_bytes(block[at : at + 2], "little")
        length, at = _lz4_length(block, at + 2, token & 15)
        for _ in range(length + 4):
            made.append(made[-back])
    return bytes(made)


def _lz4_length(block: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:
        while True:
            length, at = length + block[at], at + 1
            if block[at - 1] != 255:
                break
    return length, at


def _pattern(name: str) -> re.Pattern[bytes]:
    forms = b"|".join(re.escape(form) for form in sorted(_forms(name), key=len, reverse=True))
    if not name.isdigit():
        return re.compile(forms)
    number = b""
    if str(int(name)) == name and len(name) >= _LONG:  # as a number of eight bytes
        number = b"|" + re.escape(int(name).to_bytes(8, "little"))
    # fewer digits are everywhere: only as text of their own, in quotes or as a value of a page
    plain = (
        rb'(?<=["=])' + name.encode() + rb'(?=["/])'
        if len(name) < _LONG
        else rb"(?<![0-9])(?:" + forms + rb")(?![0-9])"
    )
    return re.compile(plain + number, re.DOTALL)


def _forms(name: str) -> set[bytes]:
    texts = {name, normalize("NFC", name), normalize("NFD", name)}
    made = set(texts)
    for text in texts:
        escaped, plain = json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]
        made |= {escaped, plain, json.dumps(escaped)[1:-1], json.dumps(plain, ensure_ascii=False)[1:-1]}
        made |= {text.replace("/", "\\/"), quote(text), quote(text, safe=""), quote_plus(text), quote(quote(text))}
    forms = {one.encode() for one in made}
    raw = name.encode()
    if len(raw) > 6:
        forms |= {raw.hex().encode(), base64.b64encode(raw).rstrip(b"="), name.encode("utf-16-le")}
    if len(name) > _KEPT:
        forms.add(name[:_KEPT].encode())
    return forms
