"""What a sink needs from a target system: the payload of a row, net changes, and the target's position."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote as url_quoted

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, MapType, NullType, StringType, StructType, VariantType

from penstock.errors import TableChanged, Terminal
from penstock.ledger.position import same_positions
from penstock.plan.targets import RowSink
from penstock.sources.columns import CHANGE, FILE, SOURCE, TIME, VERSION
from penstock.spark.jvm import java_frame
from penstock.spark.sql_text import literal, quote
from penstock.spec.base_model import did_you_mean
from penstock.spec.sink import ID_HEADER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField

    from penstock.ledger.entry import Entry
    from penstock.plan.model import TablePlan
    from penstock.plan.targets import SinkPlan

# The net effect of a batch of changes: for every key its last row, or that it was deleted.
#
# A batch holds whole versions of the table, several of them perhaps, and many changes of one key. Within a version
# there is no order: the rows at its end are those that were inserted or updated, whatever else was deleted (an
# overwrite deletes every row and inserts some again). The image before an update counts as a delete, which the image
# after it overrides; only where the update gave the row another key does it count, and removes the old key.


DELETED, REJECTION = "__deleted", "__aside"
"""Columns that `net_changes` adds: whether the row was deleted, and why it cannot be sent."""
NULL_KEY, AMBIGUOUS_KEY = "null_key", "ambiguous_key"
_LIVE, _NUMBER, _NEXT = "__live", "__number", "__next"


def net_changes(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The table's columns; VERSION and TIME of the change that decides; DELETED, true or false; REJECTION, NULL, or why
    the row cannot be sent: its key has a NULL, or several rows of the same version have the same key, so that it does
    not identify a row. A row whose key is NULL has never been sent, so its deletion is not sent either."""
    names = [F.col(quote(key)) for key in keys]
    no_key = " OR ".join(f"{quote(key)} IS NULL" for key in keys)
    flagged = changes.selectExpr("*", f"{CHANGE} IN ('insert', 'update_postimage') AS {_LIVE}")
    newest_first = Window.partitionBy(*names).orderBy(F.desc(VERSION), F.desc(_LIVE))
    ranked = flagged.withColumns(
        {
            _NUMBER: F.row_number().over(newest_first),
            _NEXT: F.lead(F.struct(VERSION, _LIVE)).over(newest_first),
        }
    )
    last = ranked.where(f"IF({no_key}, {_LIVE}, {_NUMBER} = 1)")
    aside = (
        f"CASE WHEN {no_key} THEN '{NULL_KEY}' "
        f"WHEN {_LIVE} AND {_NEXT}.{_LIVE} AND {_NEXT}.{VERSION} = {VERSION} THEN '{AMBIGUOUS_KEY}' END"
    )
    decided = last.selectExpr("*", f"NOT {_LIVE} AS {DELETED}", f"{aside} AS {REJECTION}")
    return decided.drop(CHANGE, _LIVE, _NUMBER, _NEXT)


UNAVAILABLE_HINT = "is it running, and is `to` of the sink right? Nothing is lost: the sink continues where it is"


@dataclass(frozen=True)
class Refused:
    """A row that the target refuses, however often it is tried."""

    key: str
    """The text that `Shape.key` gives."""
    reason: str
    detail: str


@dataclass(frozen=True)
class SendResult:
    changes: int
    not_tried: int | None
    """Rows that were not tried at all, because of their key; None: they were not counted."""
    refused: Sequence[Refused] = ()


class SinkPayload(Protocol):
    def rows(self, batch: DataFrame, files: int) -> DataFrame:
        """What the target gets of a batch: records, or the net changes of its keys. `files` limits the tasks."""


class SinkTarget(Protocol):
    def ready(self, last: Entry) -> None:
        """Called at a start: raises Transient while the target is unavailable, Terminal if it does not fit the sink or
        its ledger, which ends with `last`."""

    def send(self, changes: DataFrame, entry: Entry) -> SendResult:
        """Returns when the target has all rows of its payload. A batch that was sent before may be sent again, the same
        or longer; then none of its rows is there twice."""


# A target's position, according to the target itself, compared with the sink's ledger.
#
# The target's position is written with the rows; the ledger follows. So the target may be one batch ahead: the process
# died in between. Anything else was caused from outside: a restored backup, a second runner, an emptied table.


_SEND_AGAIN = (
    "`penstock checkpoints reset {sink} --to earliest` sends all of the table again, --to version:N from there on"
)


@dataclass(frozen=True)
class TargetPosition:
    ledger: str
    generation: int
    batch: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    changes: int
    """The number of changes that its last batch sent."""

    @property
    def key(self) -> tuple[int, int]:
        return (self.generation, self.batch)


def parse_position(parts: Sequence[str]) -> TargetPosition | None:
    """From ledger, generation, batch, before, after, changes; None if there are none."""
    if not parts or not parts[0]:
        return None
    ledger, generation, batch, before, after, changes = parts
    return TargetPosition(
        ledger, int(generation), int(batch), tuple(json.loads(before)), tuple(json.loads(after)), int(changes)
    )


def dump_position(position: tuple[str, ...]) -> str:
    return json.dumps(position, separators=(",", ":"))


def refuse_unexpected_position(position: TargetPosition | None, last: Entry, target: str) -> None:
    """Called at a start: raises TableChanged unless the target's position is the end of the ledger, or one batch
    further."""
    sink = last.table
    if position is None:
        moved = not same_positions(last.before, last.after)
        if last.batch == 0 and (moved or last.counts.total == 0):  # nothing was sent, or a person chose where to begin
            return
        raise TableChanged(
            f"{target} does not know this sink, which has sent it {last.counts.total:,} changes or more: it was "
            "replaced or emptied",
            where=sink,
            hint=_SEND_AGAIN.format(sink=sink),
        )
    _refuse_other_ledger(position, last, target)
    ahead = same_positions(position.before, last.after)
    if position.generation == last.generation:
        if position.batch == last.batch and same_positions(position.after, last.after):
            return
        if position.batch == last.batch + 1 and ahead:
            return
    elif position.generation < last.generation and last.batch == 0:
        chosen = not same_positions(last.before, last.after)
        if chosen or ahead or same_positions(position.after, last.after):
            return
    raise TableChanged(
        f"{target} stands at batch {position.generation}.{position.batch}, and the sink's ledger ends with batch "
        f"{last.generation}.{last.batch}: one of them was put back to an older state, or another process writes there",
        where=sink,
        hint=_SEND_AGAIN.format(sink=sink),
    )


def already_there(position: TargetPosition | None, entry: Entry, target: str) -> bool:
    """Called before a batch: whether it is already in the target. Raises TableChanged if the target is not where the
    batch begins."""
    if position is None:
        return False
    _refuse_other_ledger(position, entry, target)
    if position.key == entry.key and same_positions(position.before, entry.before):
        # With another end, it was planned again after its checkpoint was lost. Sent over the rows in the target, every
        # key in it reaches its last state; if it became shorter, the batches after it bring the rest again.
        return same_positions(position.after, entry.after)
    follows = position.key == (entry.generation, entry.batch - 1) and same_positions(position.after, entry.before)
    if follows or (position.generation < entry.generation and entry.batch == 1):
        return False
    raise TableChanged(
        f"{target} stands at batch {position.generation}.{position.batch}, so batch "
        f"{entry.generation}.{entry.batch} was not sent: another process writes there",
        where=entry.table,
        hint="stop the other one; then start this sink again",
    )


def _refuse_other_ledger(position: TargetPosition, entry: Entry, target: str) -> None:
    if position.ledger != entry.ledger:
        raise TableChanged(
            f"{target} belongs to another sink {entry.table}: that of another lake, or of this one before it was "
            "recreated",
            where=entry.table,
            hint="give one of them another name or another target; or, if the other one is gone, empty the target and "
            f"remove its line: DELETE FROM penstock_positions WHERE sink = '{entry.table}'",
        )


# The record of a row: key, value and headers, each an SQL expression over the row, and its id.


_STAR = re.compile(r"(?<=[(,])\s*\*\s*(?=[,)])")
_WHOLE_ROW = "to_json(struct(*))"
_HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
_HASH, _PLACE, _ROW_NUMBER = "__hash", "__place", "__number"
_FINGERPRINT = "hex(xxhash64(key IS NULL, key, value IS NULL, value, headers))"


@dataclass(frozen=True)
class Message:
    """The expressions of a record's parts, built once; `records` is called in every batch."""

    sink: str
    parts: tuple[str, ...]
    place: str | None
    """The place in Kafka of the row's source record, if that identifies one row."""
    file: str

    def rows(self, batch: DataFrame, files: int) -> DataFrame:
        return self.records(batch).coalesce(files)

    def records(self, rows: DataFrame) -> DataFrame:
        """key, value and headers, the id first among these. The id is the same whenever the row is sent: the place of
        its record; or the file that holds it and what is sent, with a number where a file holds several identical rows:
        these are indistinguishable, so it does not matter which of them gets which number."""
        records = rows.selectExpr(*self.parts, f"{self.place or 'NULL'} AS {_PLACE}", f"{self.file} AS {FILE}")
        hashed = records.selectExpr("*", f"{_FINGERPRINT} AS {_HASH}")
        # Rows that others added to a table have no place. Each gets its own id, though it may differ the next time.
        number = "monotonically_increasing_id()"
        if self.place is None:
            number = f"row_number() OVER (PARTITION BY {FILE}, {_HASH} ORDER BY {_HASH})"
        numbered = hashed.selectExpr("*", f"CAST({number} AS STRING) AS {_ROW_NUMBER}")
        record_id = (
            f"concat({literal(f'{self.sink}/')}, coalesce({_PLACE}, concat_ws('/', {FILE}, {_HASH}, {_ROW_NUMBER})))"
        )
        return numbered.selectExpr("key", "value", f"concat(array({header(ID_HEADER, record_id)}), headers) AS headers")


def message(rows: DataFrame, table: TablePlan) -> Message:
    """`rows` has the columns of the source; none of its rows is read. Raises if an expression cannot be part of a
    record."""
    plan, source = table.sink, table.delta
    assert isinstance(plan, RowSink) and source is not None
    key = part(rows, table.name, "key", plan.key) if plan.key is not None else "CAST(NULL AS STRING)"
    value = part(rows, table.name, "value", plan.value if plan.value is not None else _WHOLE_ROW)
    values = {name: part(rows, table.name, f"headers: {name}", text) for name, text in plan.headers.items()}
    headers = ", ".join(header(name, text) for name, text in values.items())
    parts = (f"{key} AS key", f"{value} AS value", f"CAST(array({headers}) AS {_HEADERS}) AS headers")
    refuse_other_rows(rows, parts, table.name)
    place = None
    if plan.coordinates is not None:
        place = ", '/', ".join(f"CAST({'.'.join(map(quote, path))} AS STRING)" for path in plan.coordinates)
        place = f"concat({place})"
    # By its path within the table: the lake may move.
    folder = literal(f"/{url_quoted(source.uri.rstrip('/').rpartition('/')[2])}/")
    return Message(table.name, parts, place, f"substring_index({FILE}, {folder}, -1)")


def part(rows: DataFrame, sink: str, name: str, text: str) -> str:
    columns = [column for column in rows.columns if column not in (FILE, SOURCE)]
    expression = _STAR.sub(lambda _: ", ".join(map(quote, columns)), text)
    kind: DataType = rows.selectExpr(f"({expression}) AS part").schema["part"].dataType
    if isinstance(kind, StringType | BinaryType):
        return f"({expression})"
    if is_nested(kind):
        raise Terminal(
            f"`{name}` gives {kind.simpleString()}; a record of Kafka holds text or bytes",
            where=sink,
            hint=f"write {name}: to_json({text})",
        )
    return "CAST(NULL AS STRING)" if isinstance(kind, NullType) else f"CAST(({expression}) AS STRING)"


def header(name: str, value: str) -> str:
    return f"named_struct('key', {literal(name)}, 'value', CAST({value} AS BINARY))"


def refuse_other_rows(rows: DataFrame, parts: tuple[str, ...], sink: str) -> None:
    """Raises if an expression yields rows other than the table's: explode, window functions, aggregates and the
    like."""
    before = java_frame(rows).queryExecution().analyzed()
    after = java_frame(rows.selectExpr(*parts)).queryExecution().analyzed()
    if after.nodeName() != "Project" or not after.children().head().equals(before):
        raise Terminal(
            "`key`, `value` and `headers` are computed from one row: no explode, no window and no aggregate",
            where=sink,
            hint="make those rows in a table, and send that",
        )
    if not after.deterministic():
        raise Terminal(
            "`key`, `value` or `headers` gives something else each time; a row that is sent again must be the same",
            where=sink,
            hint="compute it in a table, where it is kept, and send that",
        )


# What is sent of a row: its columns, and its key as text; each an SQL expression over the row.


_INTERNAL_COLUMNS = (CHANGE, VERSION, TIME, SOURCE)
"""Columns of Penstock or Delta: sent only if they are named."""
TIMES = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
_JSON = f"map('timestampFormat', \"{TIMES}\", 'timestampNTZFormat', \"{TIMES.removesuffix('XXX')}\")"
"""Spark by default writes a time in JSON only to the millisecond."""
_NESTED = (ArrayType, MapType, StructType, VariantType)


@dataclass(frozen=True)
class Shape:
    keys: tuple[StructField, ...]
    columns: tuple[StructField, ...]
    """Those that are sent."""
    own: tuple[StructField, ...] = ()
    """All columns of the table."""

    def rows(self, batch: DataFrame, files: int) -> DataFrame:
        return net_changes(batch, self.key_names)

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.keys)

    @property
    def key(self) -> str:
        """Text that is unique to the key: one column as it is, several as a JSON object."""
        if len(self.keys) > 1:
            return to_json(self.keys)
        name = quote(self.keys[0].name)
        return f"base64({name})" if isinstance(self.keys[0].dataType, BinaryType) else f"CAST({name} AS STRING)"

    @property
    def value(self) -> str:
        return to_json(self.columns)


def to_json(fields: Sequence[StructField]) -> str:
    return as_json(f"struct({', '.join(quote(field.name) for field in fields)})")


def as_json(nested: str) -> str:
    """`nested` is an expression that gives a struct, an array, a map or a variant."""
    return f"to_json({nested}, {_JSON})"


def change_shape(schema: StructType, sink: SinkPlan, where: str) -> Shape:
    """`schema` is that of the changes. Terminal if a column that the sink names is missing, or cannot be a key."""
    own = [field for field in schema.fields if field.name not in _INTERNAL_COLUMNS]
    keys = [_find_column(name, schema, "keys", where) for name in sink.key_columns]
    columns = [_find_column(name, schema, "columns", where) for name in sink.sent_columns] or own
    for field in keys:
        if is_nested(field.dataType):
            raise Terminal(
                f"`keys`: {field.name} is {field.dataType.simpleString()}, which cannot name a row",
                where=where,
                hint="name columns of text, numbers or times",
            )
    return Shape(tuple(keys), tuple(columns), tuple(own))


def _find_column(name: str, schema: StructType, key: str, where: str) -> StructField:
    matches = [field for field in schema.fields if field.name.casefold() == name.casefold()]
    exact = [field for field in matches if field.name == name] or matches
    if not exact:
        names = [field.name for field in schema.fields if field.name not in _INTERNAL_COLUMNS]
        raise Terminal(f"`{key}`: the table has no column {name}", where=where, hint=did_you_mean(name, names))
    return exact[0]


def is_nested(kind: DataType) -> bool:
    return isinstance(kind, _NESTED)


def sink_payload(rows: DataFrame, table: TablePlan) -> SinkPayload:
    """What the sink sends of a batch; `rows` has the columns of the source."""
    assert table.sink is not None
    return change_shape(rows.schema, table.sink, table.name) if table.sink.follows_changes else message(rows, table)
