"""Where the rejected rows of a table lie."""

from __future__ import annotations

from dataclasses import dataclass

SUFFIX = "__quarantine"


@dataclass(frozen=True)
class Place:
    table: str
    uri: str


def quarantine_of(table: str, uri: str) -> Place:
    return Place(f"{table}{SUFFIX}", f"{uri}{SUFFIX}")
