"""Redis keys as a cache of a table.

Rows are written by scripts of a few hundred each, which Redis runs atomically. Every script first checks who sent last:
a runner that was replaced by another and does not know it yet is refused, and cannot put an old value over a new one.
If Redis has lost that mark (it was emptied, or evicts keys of any kind), the next script writes it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

from penstock.errors import TableChanged, Terminal, Transient, import_extra
from penstock.sinks.base import DELETED, REJECTION, TIMES, UNAVAILABLE_HINT, SendResult, as_json, is_nested
from penstock.spark.sql_text import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.errors import PenstockError
    from penstock.ledger.entry import Entry
    from penstock.plan.targets import RedisTarget
    from penstock.sinks.base import Shape

_ROWS, _BYTES = 500, 1 << 20
"""Limits of one script: Redis serves nothing else while it runs."""
_SCRIPT = """
local ledger, generation = ARGV[1], tonumber(ARGV[2])
local last = redis.call('GET', KEYS[1])
if last then
  local by, at = string.match(last, '^(.*)/(%d+)$')
  if by ~= ledger or tonumber(at) > generation then return redis.error_reply('FENCED ' .. last) end
end
redis.call('SET', KEYS[1], ledger .. '/' .. ARGV[2])
local ttl, from = tonumber(ARGV[3]), 4
for i = 2, #KEYS do
  local fields = tonumber(ARGV[from])
  if fields == -1 then
    redis.call('SET', KEYS[i], ARGV[from + 1])
    from = from + 1
  else
    redis.call('DEL', KEYS[i])
    if fields > 0 then redis.call('HSET', KEYS[i], unpack(ARGV, from + 1, from + fields)) end
    from = from + fields
  end
  if ttl > 0 then redis.call('PEXPIRE', KEYS[i], ttl) end
  from = from + 1
end
"""
_REBUILD_HINT = "a cache can be rebuilt at any time: `penstock checkpoints reset {sink} --to earliest`"


class RedisKeys:
    def __init__(self, sink: str, plan: RedisTarget, shape: Shape) -> None:
        self._sink, self._plan, self._shape = sink, plan, shape
        self._fence = f"penstock:{sink}:{plan.prefix}"

    def ready(self, last: Entry) -> None:
        with self._client() as client:
            mark = client.get(self._fence)
            ledger, _, generation = (mark or b"").decode().rpartition("/")
            if ledger == last.ledger and int(generation) > last.generation:
                raise TableChanged(
                    f"{self._plan.name}: generation {generation} of this sink has been there, and its ledger ends with "
                    f"generation {last.generation}: the lake was put back to an older state",
                    where=self._sink,
                    hint=f"remove the mark, DEL '{self._fence}'; {_REBUILD_HINT.format(sink=self._sink)}",
                )
            client.set(self._fence, f"{last.ledger}/{last.generation}")

    def send(self, changes: DataFrame, entry: Entry) -> SendResult:
        value = self._shape.value if self._plan.form == "json" else _field_pairs(self._shape)
        rows = changes.selectExpr(f"{self._shape.key} AS key", f"IF({DELETED}, NULL, {value}) AS value", REJECTION)
        sent = aside = 0
        with self._client() as client:
            script = client.register_script(_SCRIPT)
            for keys, arguments, left_out in self._chunks(rows):
                sent, aside = sent + len(keys), aside + left_out
                if keys:
                    head = [entry.ledger, entry.generation, self._plan.ttl_ms or 0]
                    script(keys=[self._fence, *keys], args=[*head, *arguments])
        return SendResult(sent, aside)

    def _chunks(self, rows: DataFrame) -> Iterator[tuple[list[str], list[Any], int]]:
        keys: list[str] = []
        arguments: list[Any] = []
        size = aside = 0
        for key, value, left_out in rows.toLocalIterator(prefetchPartitions=True):
            if left_out is not None:
                aside += 1
                continue
            keys.append(f"{self._plan.prefix}{key}")
            if isinstance(value, str):
                arguments += [-1, value]
                size += len(value)
            else:
                arguments += [len(value or ()), *(value or ())]
                size += sum(map(len, value or ()))
            if len(keys) == _ROWS or size > _BYTES:
                yield keys, arguments, aside
                keys, arguments, size, aside = [], [], 0, 0
        yield keys, arguments, aside

    @contextmanager
    def _client(self) -> Iterator[Any]:
        redis = import_extra("redis", "redis", "a sink to Redis")
        password = self._plan.password.get_secret_value() if self._plan.password is not None else None
        client = redis.Redis.from_url(
            self._plan.url,
            username=self._plan.user,
            password=password,
            socket_connect_timeout=10,
            socket_timeout=60,
            client_name="penstock",
        )
        try:
            yield client
        except redis.RedisError as error:
            raise self._explain(error) from None
        finally:
            client.close()

    def _explain(self, error: Exception) -> PenstockError:
        from redis import exceptions as wrong

        message = " ".join(str(error).split())[:400]
        if isinstance(error, wrong.AuthenticationError | wrong.AuthorizationError | wrong.NoPermissionError):
            hint = "check `user` and `password`; the sink needs GET, SET, DEL, HSET, PEXPIRE and EVALSHA on its keys"
            return Terminal(f"Redis refuses the login: {message}", where=self._sink, hint=hint)
        if "FENCED" in message:
            return TableChanged(
                f"{self._plan.name}: another runner has taken over",
                where=self._sink,
                hint=f"stop one of them. {_REBUILD_HINT.format(sink=self._sink)}",
            )
        transient_errors = (wrong.ConnectionError, wrong.TimeoutError, wrong.ReadOnlyError, wrong.OutOfMemoryError)
        if isinstance(error, transient_errors) or message.startswith(
            ("MASTERDOWN", "LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN")
        ):
            return Transient(f"Redis does not serve: {message}", where=self._sink, hint=UNAVAILABLE_HINT)
        return Terminal(
            f"Redis refuses: {message}", where=self._sink, hint="a sink writes to one server, not to a cluster"
        )


def _field_pairs(shape: Shape) -> str:
    """Names and texts alternating; a column that is NULL has no field."""
    pairs = ", ".join(f"array({literal(field.name)}, {_text(field)})" for field in shape.columns)
    return f"flatten(filter(array({pairs}), pair -> pair[1] IS NOT NULL))"


def _text(field: T.StructField) -> str:
    name = quote(field.name)
    if is_nested(field.dataType):
        return as_json(name)
    if isinstance(field.dataType, T.BinaryType):
        return f"base64({name})"
    return (
        f'date_format({name}, "{TIMES}")' if isinstance(field.dataType, T.TimestampType) else f"CAST({name} AS STRING)"
    )
