"""What a sink asks of a target system: the payload of a row, net changes, and how far the target has come."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote as url_quoted

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    MapType,
    NullType,
    StringType,
    StructType,
    VariantType,
)

from penstock.errors import TableChanged, Terminal
from penstock.ledger.position import same
from penstock.plan.targets import RowSink, SinkPlan
from penstock.sources.columns import CHANGE, FILE, SOURCE, TIME, VERSION
from penstock.spark.jvm import java_frame
from penstock.spark.sql_text import literal, quote
from penstock.spec.base_model import did_you_mean
from penstock.spec.sink import ID

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import (
        DataType,
        StructField,
    )

    from penstock.ledger.entry import Entry
    from penstock.plan.model import TablePlan
    from penstock.plan.targets import SinkPlan

# What a batch of changes comes to: of every key the last row, or that it is gone.
#
# A batch holds whole versions of the table, several of them perhaps, and many changes of one key. Within a version
# there is no order: what is there at its end is what was inserted or updated, whatever else was deleted (an overwrite
# deletes every row and inserts some again). The image before an update counts as a delete, which the image after it
# beats; only where the update gave the row another key does it stay, and takes the old key away.


"""What Delta's change feed adds to the columns of a table."""
DELETED, ASIDE = "__deleted", "__aside"
NULL_KEY, AMBIGUOUS_KEY = "null_key", "ambiguous_key"
_LIVE, _NUMBER, _NEXT = "__live", "__number", "__next"


def net(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The columns of the table and, of the change that decides, VERSION and TIME; DELETED, true or false; ASIDE, NULL,
    or why the row cannot be sent: its key has a NULL, or more rows of the same version have the same key, so that
    nobody can say which of them it names. A row whose key is NULL has never been sent, so its end is no news."""
    names = [F.col(quote(key)) for key in keys]
    no_key = " OR ".join(f"{quote(key)} IS NULL" for key in keys)
    known = changes.selectExpr("*", f"{CHANGE} IN ('insert', 'update_postimage') AS {_LIVE}")
    newest_first = Window.partitionBy(*names).orderBy(F.desc(VERSION), F.desc(_LIVE))
    ranked = known.withColumns(
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
    marked = last.selectExpr("*", f"NOT {_LIVE} AS {DELETED}", f"{aside} AS {ASIDE}")
    return marked.drop(CHANGE, _LIVE, _NUMBER, _NEXT)


# What a sink that follows changes asks of the system that it sends them to.


AWAY = "is it running, and is `to` of the sink right? Nothing is lost: the sink goes on where it is"


@dataclass(frozen=True)
class Refused:
    """A row that the target does not take, whatever is tried."""

    key: str
    """As `Shape.key` gives it."""
    reason: str
    detail: str


@dataclass(frozen=True)
class SendResult:
    changes: int
    aside: int | None
    """Rows that were not even tried, because of their key; None: nobody counted them."""
    refused: Sequence[Refused] = ()


class SinkPayload(Protocol):
    def rows(self, batch: DataFrame, files: int) -> DataFrame:
        """What of a batch the target is given: records, or the net changes of its keys. `files` bounds the tasks."""


class SinkTarget(Protocol):
    def ready(self, last: Entry) -> None:
        """At a start: raises Transient while it is away, Terminal where it does not fit the sink or its ledger, which
        ends with `last`."""

    def send(self, changes: DataFrame, entry: Entry) -> SendResult:
        """Returns when the target has all rows of its payload. A batch that was sent before may be sent again, the same
        or longer; then nothing of it is there twice."""


# How far a target has come, as it says itself, beside what the sink's ledger says.
#
# The target's word is written with the rows; the ledger follows. So the target may be one batch ahead: the process
# died in between. Anything else is another hand's work: a backup that was put back, a second runner, a table emptied.


_AGAIN = "`penstock checkpoints reset {sink} --to earliest` sends all of the table again, --to version:N from there on"


@dataclass(frozen=True)
class TargetPosition:
    ledger: str
    generation: int
    batch: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    changes: int
    """Sent by its last batch."""

    @property
    def key(self) -> tuple[int, int]:
        return (self.generation, self.batch)


def parse_standing(parts: Sequence[str]) -> TargetPosition | None:
    """Ledger, generation, batch, before, after, changes; None if there are none."""
    if not parts or not parts[0]:
        return None
    ledger, generation, batch, before, after, changes = parts
    return TargetPosition(ledger, int(generation), int(batch), _position(before), _position(after), int(changes))


def dump_position(position: tuple[str, ...]) -> str:
    return json.dumps(position, separators=(",", ":"))


def refuse_other(found: TargetPosition | None, last: Entry, target: str) -> None:
    """At a start: raises TableChanged unless the target stands where the ledger ends, or one batch further."""
    sink = last.table
    if found is None:
        moved = not _same(last.before, last.after)
        if last.batch == 0 and (moved or last.counts.total == 0):  # nothing was sent, or a person chose where to begin
            return
        raise TableChanged(
            f"{target} does not know this sink, which has sent it {last.counts.total:,} changes or more: it was "
            "replaced or emptied",
            where=sink,
            hint=_AGAIN.format(sink=sink),
        )
    _refuse_other_ledger(found, last, target)
    ahead = _same(found.before, last.after)
    if found.generation == last.generation:
        if found.batch == last.batch and _same(found.after, last.after):
            return
        if found.batch == last.batch + 1 and ahead:
            return
    elif found.generation < last.generation and last.batch == 0:
        chosen = not _same(last.before, last.after)
        if chosen or ahead or _same(found.after, last.after):
            return
    raise TableChanged(
        f"{target} stands at batch {found.generation}.{found.batch}, and the sink's ledger ends with batch "
        f"{last.generation}.{last.batch}: one of them was put back to an older state, or another process writes there",
        where=sink,
        hint=_AGAIN.format(sink=sink),
    )


def already_there(found: TargetPosition | None, entry: Entry, target: str) -> bool:
    """Before a batch: whether it is in the target. Raises TableChanged if the target is not where it begins."""
    if found is None:
        return False
    _refuse_other_ledger(found, entry, target)
    if found.key == entry.key and _same(found.before, entry.before):
        # With another end it was planned anew after its checkpoint was lost. Sent over what is there, every key that it
        # holds comes to its last state; if it has become shorter, the batches after it bring the rest again.
        return _same(found.after, entry.after)
    follows = found.key == (entry.generation, entry.batch - 1) and _same(found.after, entry.before)
    if follows or (found.generation < entry.generation and entry.batch == 1):
        return False
    raise TableChanged(
        f"{target} stands at batch {found.generation}.{found.batch}, so batch {entry.generation}.{entry.batch} was not "
        "sent: another process writes there",
        where=entry.table,
        hint="stop the other one; then start this sink again",
    )


def _refuse_other_ledger(found: TargetPosition, entry: Entry, target: str) -> None:
    if found.ledger != entry.ledger:
        raise TableChanged(
            f"{target} belongs to another sink {entry.table}: that of another lake, or of this one before it was made "
            "anew",
            where=entry.table,
            hint="give one of them another name or another target; or, if the other one is gone, empty the target and "
            f"remove its line: DELETE FROM penstock_positions WHERE sink = '{entry.table}'",
        )


def _same(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return len(one) == len(other) and all(map(same, one, other))


def _position(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


# What a row becomes on its way to Kafka: key, value and headers, each an SQL expression over the row, and its id.


_STAR = re.compile(r"(?<=[(,])\s*\*\s*(?=[,)])")
_WHOLE_ROW = "to_json(struct(*))"
_HEADERS = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
_HASH, _PLACE, _ROW_NUMBER = "__hash", "__place", "__number"
_FINGERPRINT = "hex(xxhash64(key IS NULL, key, value IS NULL, value, headers))"


@dataclass(frozen=True)
class Message:
    """The expressions of a record's parts, made once; `records` is asked in every batch."""

    sink: str
    parts: tuple[str, ...]
    place: str | None
    """The place in Kafka of the record that the row came from, where that names one row."""
    file: str

    def rows(self, batch: DataFrame, files: int) -> DataFrame:
        return self.records(batch).coalesce(files)

    def records(self, rows: DataFrame) -> DataFrame:
        """key, value and headers, the id first among these. It is the same whenever the row is sent: the place of its
        record; or the file that holds it and what is sent, with a number where a file holds several that are alike:
        those nobody can tell apart, so it does not matter which of them has which number."""
        made = rows.selectExpr(*self.parts, f"{self.place or 'NULL'} AS {_PLACE}", f"{self.file} AS {FILE}")
        hashed = made.selectExpr("*", f"{_FINGERPRINT} AS {_HASH}")
        # Rows that others added to a table have no place. To each its own id, though it may be another the next time.
        number = "monotonically_increasing_id()"
        if self.place is None:
            number = f"row_number() OVER (PARTITION BY {FILE}, {_HASH} ORDER BY {_HASH})"
        numbered = hashed.selectExpr("*", f"CAST({number} AS STRING) AS {_ROW_NUMBER}")
        named = (
            f"concat({literal(f'{self.sink}/')}, coalesce({_PLACE}, concat_ws('/', {FILE}, {_HASH}, {_ROW_NUMBER})))"
        )
        return numbered.selectExpr("key", "value", f"concat(array({header(ID, named)}), headers) AS headers")


def message(rows: DataFrame, table: TablePlan) -> Message:
    """`rows` has the columns of the source; none of its rows is read. Raises where an expression cannot be part of a
    record."""
    plan, source = table.sink, table.delta
    assert isinstance(plan, RowSink) and source is not None
    key = part(rows, table.name, "key", plan.key) if plan.key is not None else "CAST(NULL AS STRING)"
    value = part(rows, table.name, "value", plan.value if plan.value is not None else _WHOLE_ROW)
    named = {name: part(rows, table.name, f"headers: {name}", text) for name, text in plan.headers.items()}
    headers = ", ".join(header(name, text) for name, text in named.items())
    parts = (f"{key} AS key", f"{value} AS value", f"CAST(array({headers}) AS {_HEADERS}) AS headers")
    refuse_other_rows(rows, parts, table.name)
    place = None
    if plan.coordinates is not None:
        place = ", '/', ".join(f"CAST({'.'.join(map(quote, path))} AS STRING)" for path in plan.coordinates)
        place = f"concat({place})"
    # By its path within the table: the lake may move.
    within = literal(f"/{url_quoted(source.uri.rstrip('/').rpartition('/')[2])}/")
    return Message(table.name, parts, place, f"substring_index({FILE}, {within}, -1)")


def part(rows: DataFrame, sink: str, name: str, text: str) -> str:
    columns = [column for column in rows.columns if column not in (FILE, SOURCE)]
    whole = _STAR.sub(lambda _: ", ".join(map(quote, columns)), text)
    kind: DataType = rows.selectExpr(f"({whole}) AS part").schema["part"].dataType
    if isinstance(kind, StringType | BinaryType):
        return f"({whole})"
    if isinstance(kind, StructType | ArrayType | MapType | VariantType):
        raise Terminal(
            f"`{name}` gives {kind.simpleString()}; a record of Kafka holds text or bytes",
            where=sink,
            hint=f"write {name}: to_json({text})",
        )
    return "CAST(NULL AS STRING)" if isinstance(kind, NullType) else f"CAST(({whole}) AS STRING)"


def header(name: str, value: str) -> str:
    return f"named_struct('key', {literal(name)}, 'value', CAST({value} AS BINARY))"


def refuse_other_rows(rows: DataFrame, parts: tuple[str, ...], sink: str) -> None:
    """explode, window functions, aggregates and the like make other rows than those of the table."""
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


# What of a row is sent: its columns, and its key as text; each an SQL expression over the row.


_OURS = (CHANGE, VERSION, TIME, SOURCE)
"""Columns that are Penstock's or Delta's: sent only if they are named."""
TIMES = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
_JSON = f"map('timestampFormat', \"{TIMES}\", 'timestampNTZFormat', \"{TIMES.removesuffix('XXX')}\")"
"""Spark's own way of writing a time in JSON ends with its milliseconds."""
NESTED = (ArrayType, MapType, StructType, VariantType)


@dataclass(frozen=True)
class Shape:
    keys: tuple[StructField, ...]
    columns: tuple[StructField, ...]
    """Those that are sent."""
    own: tuple[StructField, ...] = ()
    """All that the table has."""

    def rows(self, batch: DataFrame, files: int) -> DataFrame:
        return net(batch, self.key_names)

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.keys)

    @property
    def key(self) -> str:
        """Text that no other key has: one column as it is, several as a JSON object."""
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


def shape(schema: StructType, sink: SinkPlan, where: str) -> Shape:
    """`schema` is that of the changes. Terminal if a column that the sink names is not there, or cannot be a key."""
    own = [field for field in schema.fields if field.name not in _OURS]
    keys = [_named(name, schema, "keys", where) for name in sink.key_columns]
    columns = [_named(name, schema, "columns", where) for name in sink.sent_columns] or own
    for field in keys:
        if isinstance(field.dataType, NESTED):
            raise Terminal(
                f"`keys`: {field.name} is {field.dataType.simpleString()}, which cannot name a row",
                where=where,
                hint="name columns of text, numbers or times",
            )
    return Shape(tuple(keys), tuple(columns), tuple(own))


def _named(name: str, schema: StructType, key: str, where: str) -> StructField:
    found = [field for field in schema.fields if field.name.casefold() == name.casefold()]
    exact = [field for field in found if field.name == name] or found
    if not exact:
        known = [field.name for field in schema.fields if field.name not in _OURS]
        raise Terminal(f"`{key}`: the table has no column {name}", where=where, hint=did_you_mean(name, known))
    return exact[0]


def is_nested(kind: DataType) -> bool:
    return isinstance(kind, NESTED)


def sink_payload(rows: DataFrame, table: TablePlan) -> SinkPayload:
    """What the sink sends of a batch; `rows` has the columns of the source."""
    assert table.sink is not None
    return shape(rows.schema, table.sink, table.name) if table.sink.follows_changes else message(rows, table)
