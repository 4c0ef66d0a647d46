"""Changes of a table followed into a topic: what a compacted topic holds in the end is the table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import Terminal, Transient
from tests.integration.change_source import SINK, Followed, dies, quarantined
from tests.integration.run_plan import whole_chain
from tests.integration.topic_records import Record, consume

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def followed(spark: SparkSession, project: Any) -> Followed:
    return Followed(spark, project)


def compacted(records: list[Record]) -> dict[str, Any]:
    """The last record of every key; one partition keeps all of a key, in their order."""
    last: dict[bytes, Record] = {}
    partitions: dict[bytes, int] = {}
    for record in records:
        assert record.key is not None and partitions.setdefault(record.key, record.partition) == record.partition
        last[record.key] = record
    return {key.decode(): json.loads(one.value) for key, one in last.items() if one.value is not None}


def test_a_compacted_topic_holds_what_the_table_holds(
    followed: Followed, broker: Any, topic: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes = topic(partitions=3)
    plan = followed.plan({"kafka": goes, "options": {"max.request.size": "100KB"}}, headers={"kind": "'c'"})
    followed.sql("INSERT INTO T SELECT id, 'n' || id, 1 FROM range(300)")
    dies(monkeypatch, "append", after=False)
    assert followed.run(plan).heard("killed")
    sent = consume(broker.bootstrap, goes)
    assert len(sent) == 600 and len({record.id for record in sent}) == 300, "again, under the same ids"
    followed.sql("DELETE FROM T WHERE id >= 10")
    followed.sql("MERGE INTO T t USING (SELECT 1 AS i) ON t.id = 1 WHEN MATCHED THEN UPDATE SET name = 'é', n = NULL")
    followed.sql("INSERT INTO T VALUES (NULL, 'x', 1), (50, 'again', 2), (400, repeat('x', 200000), 2)")
    followed.run(plan)
    records = consume(broker.bootstrap, goes)
    there = compacted(records)
    assert there["1"] == {"id": 1, "name": "é"}
    table = {str(row["id"]): row for row in followed.rows if row["id"] not in (None, 400)}
    assert {key: {"n": None, **value} for key, value in there.items()} == table
    gone = next(record for record in records if record.key == b"299" and record.value is None)
    assert gone.headers == {
        "penstock-id": b"out/2/299",
        "penstock-change": b"delete",
        "penstock-version": b"2",
        "kind": b"c",
    }
    told = {row["key"]: row["error_reason"] for row in quarantined(plan)}
    assert told == {None: "null_key", "400": "too_large"}
    assert [entry.sent for entry in whole_chain(plan, SINK)[1:]] == [300, 291]


def test_keys_of_several_columns_are_an_object_and_a_value_is_an_expression(
    followed: Followed, broker: Any, topic: Any
) -> None:
    goes = topic()
    followed.sql("INSERT INTO T VALUES (1, 'a', 7), (1, 'b', 8)")
    followed.run(followed.plan({"kafka": goes}, keys=["name", "ID"], value="n + 1"))
    found = {(record.key, record.value) for record in consume(broker.bootstrap, goes)}
    assert found == {(b'{"name":"a","id":1}', b"8"), (b'{"name":"b","id":1}', b"9")}
    for to, more, kind, said in (
        ({"kafka": goes}, {"value": "struct(n)"}, Terminal, "holds text or bytes"),
        ({"kafka": goes}, {"value": "uuid()"}, Terminal, "something else each time"),
        ({"kafka": f"{goes}x"}, {}, Transient, "does not exist"),
    ):
        error = followed.error(followed.plan(to, **more))
        assert isinstance(error, kind) and said in error.message, error
