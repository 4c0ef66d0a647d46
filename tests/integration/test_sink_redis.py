"""Changes of a table followed into a real Redis."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import TableChanged, Terminal, Transient
from tests.integration.change_source import SINK, Followed, quarantined
from tests.integration.run_plan import commits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.servers.redis import Redis


@pytest.fixture
def followed(spark: SparkSession, project: Any) -> Followed:
    return Followed(spark, project, "id BIGINT, name STRING, at TIMESTAMP, tags ARRAY<STRING>")


def held(redis: Redis, prefix: str) -> dict[str, Any]:
    client = redis.connect(decode_responses=True)
    keys = sorted(client.scan_iter(f"{prefix}*"))
    kept = {key: client.get(key) if client.type(key) == "string" else client.hgetall(key) for key in keys}
    return {key.removeprefix(prefix): json.loads(one) if isinstance(one, str) else one for key, one in kept.items()}


def test_a_cache_holds_what_the_table_holds(followed: Followed, redis: Redis) -> None:
    prefix = f"{uuid.uuid4().hex}:"
    plan = followed.plan({"redis": redis.url, "prefix": prefix})
    at = "TIMESTAMP'2026-01-01 00:00:00.000001Z'"
    followed.sql(f"INSERT INTO T SELECT id, 'n' || id, {at}, array('a') FROM range(1200)")
    followed.run(plan)
    found = held(redis, prefix)
    assert len(found) == 1200
    assert found["7"] == {"id": 7, "name": "n7", "at": "2026-01-01T00:00:00.000001Z", "tags": ["a"]}
    followed.sql("DELETE FROM T WHERE id >= 10")
    followed.sql(
        "MERGE INTO T t USING (SELECT 1 AS i) ON t.id = 1 WHEN MATCHED THEN UPDATE SET name = 'é', tags = NULL"
    )
    followed.sql("INSERT INTO T VALUES (NULL, 'x', NULL, NULL)")
    redis.stop()
    assert isinstance(followed.error(plan), Transient)
    redis.start()
    followed.run(plan)
    found = held(redis, prefix)
    assert found == {"1": {"id": 1, "name": "é", "at": "2026-01-01T00:00:00.000001Z"}}, "what it lost comes by a reset"
    assert [row["error_reason"] for row in quarantined(plan)] == ["null_key"]


def test_hashes_lose_the_fields_that_are_null_and_keys_end_with_their_time(followed: Followed, redis: Redis) -> None:
    prefix = f"{uuid.uuid4().hex}:"
    plan = followed.plan({"redis": redis.url, "prefix": prefix, "as": "hash", "ttl": "1 hour"}, keys=["id", "name"])
    followed.sql(
        "INSERT INTO T VALUES (1, 'a', TIMESTAMP'2026-01-01 00:00:00Z', array('x', 'y')), (2, 'b', NULL, NULL)"
    )
    followed.run(plan)
    first = '{"id":1,"name":"a"}'
    time = "2026-01-01T00:00:00.000000Z"
    assert held(redis, prefix) == {
        first: {"id": "1", "name": "a", "at": time, "tags": '["x","y"]'},
        '{"id":2,"name":"b"}': {"id": "2", "name": "b"},
    }
    assert 3_500_000 < redis.connect().pttl(f"{prefix}{first}") <= 3_600_000
    followed.sql("UPDATE T SET at = NULL WHERE id = 1")
    followed.run(plan)
    assert held(redis, prefix)[first] == {"id": "1", "name": "a", "tags": '["x","y"]'}


def test_a_runner_that_was_replaced_is_turned_away_and_a_wrong_login_stops_the_sink(
    followed: Followed, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    from penstock.sinks.redis import RedisKeys
    from tests.servers.redis import Redis

    prefix = f"{uuid.uuid4().hex}:"
    plan = followed.plan({"redis": redis.url, "prefix": prefix})
    followed.sql("INSERT INTO T VALUES (1, 'a', NULL, NULL)")
    followed.run(plan)
    mark = f"penstock:{SINK}:{prefix}"
    ready = RedisKeys.ready

    def overtaken(self: RedisKeys, last: Any) -> None:
        ready(self, last)
        redis.connect().set(mark, f"{last.ledger}/{last.generation + 1}")

    followed.sql("UPDATE T SET name = 'b'")
    with monkeypatch.context() as patched:
        patched.setattr(RedisKeys, "ready", overtaken)
        error = followed.error(plan)
    assert isinstance(error, TableChanged) and "another runner" in error.message
    assert held(redis, prefix)["1"]["name"] == "a" and len(commits(plan, SINK)) == 2
    assert "put back to an older state" in followed.error(plan).message
    redis.connect().delete(mark)
    followed.run(plan)
    assert held(redis, prefix)["1"]["name"] == "b"
    with Redis("--requirepass", "zebra") as guarded:
        error = followed.error(followed.plan({"redis": guarded.url, "password": "wrong"}))
        assert isinstance(error, Terminal) and "refuses the login" in error.message and "zebra" not in str(error)
        followed.run(followed.plan({"redis": guarded.url, "password": "zebra"}))
