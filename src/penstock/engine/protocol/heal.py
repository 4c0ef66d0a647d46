"""A checkpoint made from the ledger: the log is the truth, the checkpoint its cache."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.engine.protocol import position
from penstock.engine.protocol.checkpoint import MARKER
from penstock.engine.protocol.entry import Entry
from penstock.engine.store import Store


def heal(store: Store, folder: str, entry: Entry) -> None:
    """Writes the checkpoint from which Spark goes on exactly after `entry`.

    A batch is planned again over its recorded range and left uncommitted, so that Spark runs it once more: its rows are
    skipped as a retry, and whatever else of it was not written is completed. An entry without rows (genesis, open) is
    batch 0, committed; one that stops at a position has its next batch planned up to there. Ids go on from the entry's:
    to begin again at 0 within a generation would make Delta take the next batches for old ones and skip them.
    """
    with _replaced(store, folder, entry) as temporary:
        if entry.batch == 0:
            _batch(store, temporary, 0, entry.pins.time_ms, entry.after, committed=True)
            if (end := entry.stops_at) is not None:
                _batch(store, temporary, 1, entry.pins.time_ms, (end,), committed=False)
        else:
            before = tuple(map(position.filled, entry.before, entry.after))
            _batch(store, temporary, entry.batch - 1, entry.pins.time_ms, before, committed=True)
            _batch(store, temporary, entry.batch, entry.pins.time_ms, entry.after, committed=False)


def seed(store: Store, folder: str, entry: Entry, metadata: str) -> None:
    """The same for a query that keeps state, of an entry without rows. Its batch 0 is planned over nothing and not yet
    done: Spark runs it, which makes the empty state that batch 1 begins with. `metadata` is what Spark writes of its
    settings."""
    assert entry.batch == 0
    with _replaced(store, folder, entry) as temporary:
        store.write(f"{temporary}/offsets/0", "\n".join(["v1", metadata, *entry.after]))


@contextmanager
def _replaced(store: Store, folder: str, entry: Entry) -> Iterator[str]:
    """A folder that takes the place of the checkpoint, whole."""
    parent, _, generation = folder.rpartition("/")
    for name in store.names(parent):
        if name.startswith(f"{generation}.") and name.endswith(".new"):  # left by a process that died while healing
            store.delete(f"{parent}/{name}")
    temporary = f"{folder}.{uuid.uuid4().hex}.new"
    yield temporary
    store.write(f"{temporary}/metadata", json.dumps({"id": str(uuid.uuid4())}))
    marker = {"table": entry.table, "ledger": entry.ledger, "generation": entry.generation}
    store.write(f"{temporary}/{MARKER}", json.dumps(marker))
    store.delete(folder)
    store.move(temporary, folder)


def _batch(store: Store, folder: str, batch: int, time_ms: int, after: tuple[str, ...], *, committed: bool) -> None:
    # Commits before offsets: on a store without an atomic rename of folders, a half-made copy then holds commits that
    # no offsets precede, which the comparison at start finds, and never offsets that seem to be uncommitted work.
    if committed:
        store.write(f"{folder}/commits/{batch}", 'v1\n{"nextBatchWatermarkMs":0}')
    meta = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": time_ms, "conf": {}}, separators=(",", ":"))
    store.write(f"{folder}/offsets/{batch}", "\n".join(["v1", meta, *after]))
