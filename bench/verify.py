"""Whether a table holds exactly the records of its topics: no rate counts without it.

Independent of Penstock's own `verify`: DataFusion over the Delta log counts, for each partition, rows, distinct
offsets, lowest and highest. If rows = distinct = highest - lowest + 1 and both ends are the broker's, the multiset of
(topic, partition, offset) is the broker's: the bench's producer leaves no gaps (no transactions, no compaction).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from deltalake import DeltaTable, QueryBuilder, convert_to_deltalake

from bench.changes import Changes
from bench.load import BAD_EVERY, ERRORS_ONLY

Offsets = Mapping[tuple[str, int], tuple[int, int]]
"""(topic, partition) -> earliest offset and the one after the last."""

_COUNTS = """
    SELECT topic, "partition" AS p, count(*) AS n, count(DISTINCT "offset") AS d, min("offset") AS low,
           max("offset") AS high
    FROM landed GROUP BY topic, "partition"
"""


_PLACE = "_source['topic'] AS topic, _source['partition'] AS \"partition\", _source['offset'] AS \"offset\""
_BOTH = f"(SELECT {_PLACE} FROM good UNION ALL SELECT {_PLACE} FROM bad)"


def broker_offsets(bootstrap: str, topics: Sequence[str]) -> Offsets:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-offsets", "log_level": ERRORS_ONLY})
    try:
        found: dict[tuple[str, int], tuple[int, int]] = {}
        for topic in topics:
            for partition in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
                found[topic, partition] = (low, high)
        return found
    finally:
        consumer.close()


def records(expected: Offsets) -> int:
    return sum(high - low for low, high in expected.values())


def check_delta(table: Path, expected: Offsets) -> str | None:
    """None if the table holds every record once, else what is wrong with it."""
    if not DeltaTable.is_deltatable(str(table)):
        return "no table"
    return _compared(QueryBuilder().register("landed", DeltaTable(table)), _COUNTS, expected)


def check_typed(table: Path, expected: Offsets) -> str | None:
    """None if every record is once in the table or in its quarantine, and the bad ones in the latter."""
    quarantine = Path(f"{table}__quarantine")
    if not DeltaTable.is_deltatable(str(table)) or not DeltaTable.is_deltatable(str(quarantine)):
        return "no table, or no quarantine"
    both = QueryBuilder().register("good", DeltaTable(table)).register("bad", DeltaTable(quarantine))
    rejected = both.execute("SELECT count(*) AS n FROM bad").read_all().column("n")[0].as_py()
    wanted = sum(1 for n in range(records(expected)) if n % BAD_EVERY == 0)
    if rejected != wanted:
        return f"{rejected} records in quarantine, {wanted} are bad"
    return _compared(both, _COUNTS.replace("FROM landed", f"FROM {_BOTH}"), expected)


def _compared(engine: QueryBuilder, query: str, expected: Offsets) -> str | None:
    counts = engine.execute(query).read_all()
    columns = [counts.column(name).to_pylist() for name in ("topic", "p", "n", "d", "low", "high")]
    landed = {(str(topic), int(p)): tuple(map(int, rest)) for topic, p, *rest in zip(*columns, strict=True)}
    wrong = [f"{topic}/{p}: not of this topic" for topic, p in landed.keys() - expected.keys()]
    for (topic, p), (low, end) in expected.items():
        if low == end:
            continue
        rows, distinct, lowest, highest = landed.get((topic, p), (0, 0, -1, -1))
        if rows != distinct:
            wrong.append(f"{topic}/{p}: {rows - distinct} doubled")
        if (distinct, lowest, highest) != (end - low, low, end - 1):
            wrong.append(f"{topic}/{p}: {distinct} of {end - low} records, offsets {lowest} to {highest}")
    return "; ".join(sorted(wrong)) or None


def check_parquet(table: Path, expected: Offsets) -> str | None:
    """The same for Spark's Parquet sink: its own log names the files, and a Delta log over them makes them readable."""
    committed = _committed_files(table / "_spark_metadata")
    found = {file.name for file in table.glob("*.parquet")}
    if committed != found:
        return f"{len(found ^ committed)} files differ from the sink's log"
    convert_to_deltalake(table)
    return check_delta(table, expected)


def _committed_files(log: Path) -> set[str]:
    """A `.compact` file repeats everything before it, so the union over all files is the sink's state."""
    files: set[str] = set()
    for file in log.iterdir():
        if file.name.split(".")[0].isdigit():
            lines = file.read_text().splitlines()[1:]
            files |= {Path(json.loads(line)["path"]).name for line in lines}
    return files


_MERGED = """
    SELECT id, seq, customer, status, CAST(changed_at AS BIGINT) / 1000000 AS seconds, CAST(quantity AS BIGINT) AS n,
           CAST(amount * 100 AS BIGINT) AS hundredths, note
    FROM merged WHERE id >= {oldest} AND {living}
"""
_UNCHANGED = """
    SELECT count(*) AS n, count(DISTINCT id) AS d, min(id) AS low, max(id) AS high, sum(abs(seq - id)) AS other
    FROM merged WHERE id < {oldest} AND {living}
"""


def check_merged(table: Path, rows: int, changes: int) -> str | None:
    """None if the living rows are those that the changes leave of the `rows` that were there, column by column: so the
    tables of all contenders agree."""
    if not DeltaTable.is_deltatable(str(table)):
        return "no table"
    expected = Changes(rows)
    landed = DeltaTable(table)
    engine = QueryBuilder().register("merged", landed)
    names = [field.name for field in landed.schema().fields]
    asked = {"oldest": expected.oldest, "living": "NOT _deleted" if "_deleted" in names else "true"}
    below = engine.execute(_UNCHANGED.format(**asked)).read_all()
    found = [below.column(name)[0].as_py() for name in ("n", "d", "low", "high", "other")]
    if found != [expected.oldest, expected.oldest, 0, expected.oldest - 1, 0]:
        return f"rows that no change is about: {found[0]} of {expected.oldest}, {found[1]} distinct"
    above = engine.execute(_MERGED.format(**asked)).read_all()
    there = Counter(zip(*(above.column(name).to_pylist() for name in above.schema.names), strict=True))
    wanted = Counter(expected.after(changes))
    missing, surplus = wanted - there, there - wanted
    if missing or surplus:
        return f"{missing.total()} rows are missing, {surplus.total()} should not be there"
    return None
