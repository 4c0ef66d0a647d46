"""The bytes of a Parquet file with its pages decompressed, by the format's description alone: no library that Penstock
uses takes part. What is left of a name anywhere in the file is in here: values, dictionaries, statistics, indexes."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_END = b"PAR1"
_SNAPPY, _GZIP, _PLAIN = 1, 2, 0


def contents(path: Path) -> Iterator[bytes]:
    """The file itself, then each of its pages."""
    whole = path.read_bytes()
    yield whole
    for about in _chunks(whole):
        yield from _pages(whole, about)


def largest_chunk(path: Path) -> tuple[int, int]:
    """Where the pages of the column with the most bytes begin and end."""
    return max(map(_span, _chunks(path.read_bytes())), key=lambda span: span[1] - span[0])


def _chunks(whole: bytes) -> Iterator[dict[int, Any]]:
    assert whole[:4] == _END and whole[-4:] == _END
    size = int.from_bytes(whole[-8:-4], "little")
    footer = _Thrift(whole, len(whole) - 8 - size).struct()
    for group in footer.get(4, []):
        for chunk in group[1]:
            yield chunk[3]


def _span(about: dict[int, Any]) -> tuple[int, int]:
    at = min(about[number] for number in (9, 11) if number in about and about[number] > 0)
    return at, at + about[7]


def _pages(whole: bytes, about: dict[int, Any]) -> Iterator[bytes]:
    at, end = _span(about)
    while at < end:
        thrift = _Thrift(whole, at)
        header = thrift.struct()
        content = whole[thrift.at : thrift.at + header[3]]
        at = thrift.at + header[3]
        second = header.get(8)
        levels = (second.get(5, 0) + second.get(6, 0)) if second else 0
        packed = second is None or second.get(7, True)
        yield content[:levels] + (_unpacked(content[levels:], about[4]) if packed else content[levels:])


def _unpacked(content: bytes, codec: int) -> bytes:
    if codec == _PLAIN or not content:
        return content
    if codec == _GZIP:
        return gzip.decompress(content)
    assert codec == _SNAPPY, f"codec {codec}"
    return _snappy(content)


def _snappy(content: bytes) -> bytes:
    at, size, shift = 0, 0, 0
    while True:
        size |= (content[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if content[at - 1] < 0x80:
            break
    made = bytearray()
    while at < len(content):
        tag = content[at]
        at += 1
        if tag & 3 == 0:
            length = (tag >> 2) + 1
            if length > 60:
                width = length - 60
                length = int.from_bytes(content[at : at + width], "little") + 1
                at += width
            made += content[at : at + length]
            at += length
            continue
        if tag & 3 == 1:
            length, back = ((tag >> 2) & 7) + 4, (tag >> 5) << 8 | content[at]
            at += 1
        else:
            width = 2 if tag & 3 == 2 else 4
            length, back = (tag >> 2) + 1, int.from_bytes(content[at : at + width], "little")
            at += width
        for _ in range(length):
            made.append(made[-back])
    assert len(made) == size
    return bytes(made)


class _Thrift:
    """Thrift's compact protocol: a struct is a dictionary by the numbers of its fields."""

    def __init__(self, content: bytes, at: int) -> None:
        self._content, self.at = content, at

    def struct(self) -> dict[int, Any]:
        made: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            kind = head & 15
            made[number] = kind == 1 if kind in (1, 2) else self._value(kind)
        return made

    def _value(self, kind: int) -> Any:
        if kind in (1, 2):
            return self._byte() == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 7:
            self.at += 8
            return None
        if kind == 8:
            size = self._varint()
            self.at += size
            return self._content[self.at - size : self.at]
        if kind in (9, 10):
            head = self._byte()
            count = head >> 4 if head >> 4 != 15 else self._varint()
            return [self._value(head & 15) for _ in range(count)]
        assert kind == 12, kind
        return self.struct()

    def _byte(self) -> int:
        self.at += 1
        return self._content[self.at - 1]

    def _varint(self) -> int:
        made, shift = 0, 0
        while True:
            one = self._byte()
            made |= (one & 0x7F) << shift
            shift += 7
            if one < 0x80:
                return made

    def _zigzag(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)
