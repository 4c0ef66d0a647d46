"""Merged tables, their replicas and their audit, against the topic, against each other and against Delta's own feed."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from deltalake import DeltaTable, QueryBuilder

from penstock.ledger.delta_log import DeltaLog, Origin
from penstock.ledger.entry import Entry
from penstock.ledger.position import parse_version
from penstock.storage.stores import LocalStore
from tests.e2e.change_feed import change_feed
from tests.e2e.tables import place
from tests.integration.change_histories import Change, latest, versions

State = dict[tuple[int, str], dict[str, Any]]
_VALUES = ("name", "city", "seq")
MATCHES = 40
"""Versions of a replica that are compared with those of its source: evenly chosen where there are more."""


def check(folder: Path, bootstrap: str, topic: str) -> dict[str, int]:
    """After the run has caught up."""
    came = consumed(bootstrap, topic)
    wanted = latest(came)
    source = living(folder, "silver.c")
    assert source == wanted, _other(source, wanted)
    history = _history(folder)
    reference = Counter(versions(came))
    assert history == reference, (history - reference, reference - history)
    for replica in ("silver.copy", "silver.again"):
        found = living(folder, replica)
        assert found == wanted, (replica, _other(found, wanted))
    matched = sum(
        compare_versions(folder, replica, of)
        for replica, of in (("silver.copy", "silver.c"), ("silver.again", "silver.copy"))
    )
    audited = compare_audit(folder)
    return {
        "changes": len(came),
        "living": len(wanted),
        "versions": history.total(),
        "matching versions": matched,
        "audited": audited,
    }


def living(folder: Path, table: str, version: int | None = None) -> State:
    rows = [row for row in rows_at(place(folder, table), version) if not row["_deleted"]]
    made = {(row["id"], row["part"]): {name: row[name] for name in _VALUES} for row in rows}
    assert len(made) == len(rows), f"{table} at version {version}: {len(rows)} living rows of {len(made)} keys"
    return made


def rows_at(uri: Path, version: int | None = None) -> list[dict[str, Any]]:
    found = QueryBuilder().register("t", DeltaTable(str(uri), version=version)).execute("SELECT * FROM t").read_all()
    columns = {field.name: found.column(field.name).to_pylist() for field in found.schema}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def compare_versions(folder: Path, replica: str, source: str) -> int:
    """After each batch of the replica: its living rows are those of the source at the version it has read up to. How
    many batches ended with a whole version."""
    log = DeltaLog(LocalStore(), str(place(folder, replica)), replica)
    entries = [(commit.version, commit.entry) for commit in log.since(-1) if commit.origin is Origin.LEDGER]
    read = [(own, _whole(folder, source, entry)) for own, entry in entries if entry and entry.kind == "batch"]
    ends = [(own, version) for own, version in read if version is not None]
    assert ends, f"no batch of {replica} ends with a version"
    chosen = ends[:: max(1, len(ends) // MATCHES)]
    for own, version in chosen:
        found, wanted = living(folder, replica, own), living(folder, source, version)
        assert found == wanted, f"{replica}@{own} is not {source}@{version}: {_other(found, wanted)}"
    return len(chosen)


def _whole(folder: Path, source: str, entry: Entry) -> int | None:
    """The version up to whose end a batch has read; None if it stopped within one. Delta counts the files of a version
    from 0: those of its feed, or those that were added if it has none."""
    at = parse_version(entry.after[0])
    if at.whole or at.snapshot:
        return at.read_up_to if at.whole else None
    text = (place(folder, source) / f"_delta_log/{at.version:020d}.json").read_text()
    kinds = Counter(next(iter(json.loads(line))) for line in text.splitlines() if line)
    return at.version if at.index >= (kinds["cdc"] or kinds["add"]) - 1 else None


def compare_audit(folder: Path) -> int:
    """Every change once: as many and the same as in Delta's feed, and each begins with what the one before it left."""
    rows = rows_at(place(folder, "silver.audit"))
    told = Counter(
        (row["version"], row["id"], row["part"], _image(row["before"]), _image(row["after"])) for row in rows
    )
    fed = _fed(folder)
    assert told == fed, f"audit has {told - fed} too much, lacks {fed - told}"
    state: dict[tuple[int, str], Any] = {}
    for row in sorted(rows, key=lambda one: one["version"]):
        key, before, after = (row["id"], row["part"]), _image(row["before"]), _image(row["after"])
        assert state.get(key) == before, row
        assert (before, after) != (None, None), row
        state[key] = after
    left = {key: dict(zip(_VALUES, after, strict=True)) for key, after in state.items() if after is not None}
    source = living(folder, "silver.c")
    assert left == source, _other(left, source)
    return len(rows)


def _fed(folder: Path) -> Counter[tuple[Any, ...]]:
    """What Delta's own reader says of each version, the two images of an update as one change."""
    images: dict[tuple[int, int, str], dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for row in change_feed(folder, "silver.c"):
        if not row["_deleted"]:
            at = (row["_commit_version"], row["id"], row["part"])
            images[at][row["_change_type"]].append(_image(row))
    found: Counter[tuple[Any, ...]] = Counter()
    for at, kinds in images.items():
        assert len(kinds["update_preimage"]) == len(kinds["update_postimage"]), (at, kinds)
        pairs = [
            *((one, None) for one in kinds["delete"]),
            *zip(kinds["update_preimage"], kinds["update_postimage"], strict=True),
            *((None, one) for one in kinds["insert"]),
        ]
        assert len(pairs) == 1, (at, dict(kinds))  # a key changes at most once in a version
        found.update((*at, before, after) for before, after in pairs)
    return found


def _image(row: dict[str, Any] | None) -> tuple[Any, ...] | None:
    return None if row is None else tuple(row[name] for name in _VALUES)


def _history(folder: Path) -> Counter[tuple[Any, ...]]:
    columns = ("id", "part", *_VALUES[:2], "valid_from", "valid_to", "is_current")
    rows = rows_at(place(folder, "silver.h"))
    return Counter(tuple(row[column] for column in columns) for row in rows if not row["_deleted"])


def _other(found: State, wanted: State) -> str:
    missing = [key for key in wanted if key not in found]
    more = [key for key in found if key not in wanted]
    differ = [(key, found[key], wanted[key]) for key in found if key in wanted and found[key] != wanted[key]]
    return (
        f"missing {missing[:5]} ({len(missing)}), too many {more[:5]} ({len(more)}), other {differ[:5]} ({len(differ)})"
    )


def consumed(bootstrap: str, topic: str) -> list[Change]:
    """All changes of the topic, with their places."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "check",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    found: list[Change] = []
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        left = len(partitions)
        while left:
            message = consumer.poll(20)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                left -= 1
                continue
            fields = {"name": None, "city": None, **json.loads(message.value())}
            found.append(Change(**fields, place=(message.partition(), message.offset())))
    finally:
        consumer.close()
    return found
