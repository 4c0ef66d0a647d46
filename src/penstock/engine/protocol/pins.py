"""What a batch has pinned, stored beside `offsets/N` before its first write."""

from __future__ import annotations

from penstock.engine.protocol.beside import read_beside, write_beside
from penstock.engine.protocol.entry import Pins, parse_pins, pins_document
from penstock.engine.store import Store


def store_pins(store: Store, folder: str, batch: int, pins: Pins) -> None:
    write_beside(store, folder, "pins", batch, pins_document(pins))


def read_pins(store: Store, folder: str, batch: int) -> Pins | None:
    """The pins of a batch that was begun before; None if it never came to its first write."""
    document = read_beside(store, folder, "pins", batch)
    try:
        return parse_pins(document) if document else None
    except KeyError:
        return None
