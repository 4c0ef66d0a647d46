"""What is asked of a file format, and the header of a CSV file."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.errors import Terminal
from penstock.formats.json import own_class
from penstock.sources.files.listing import location_of
from penstock.spark.jvm import hadoop_conf, jvm_of
from penstock.spec.schema import column_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.formats.base import Decoder
    from penstock.plan.sources import FilesSource
    from penstock.plan.stages import DecodePlan

# Text files as this process reads them: the first line of a CSV file, which names its fields, or all of one.


BOM = "\ufeff"
_AT_ONCE = 8
"""Files that are opened at a time: on an object store each takes a while."""
_REFUSED_BY_DELTA = re.compile(r"[ ,;{}()\n\t=]+")


@dataclass(frozen=True)
class Head:
    """The first line of a file."""

    line: str
    row: int
    """Its number; lines before it are blank."""
    cells: tuple[str, ...]
    """Empty if it is not a record: a quote in it is not closed."""

    @property
    def plain(self) -> tuple[str, ...]:
        """As they can name columns; those without a name are called by their place."""
        names = [_REFUSED_BY_DELTA.sub("_", cell.strip()) for cell in self.cells]
        return tuple(name or f"_c{place}" for place, name in enumerate(names))

    @property
    def names(self) -> tuple[str, ...]:
        """The same, each once: a name that is there before has its number behind it."""
        plain = self.plain
        taken = {column_key(name) for name in plain}
        numbers: dict[str, int] = {}
        found: dict[str, str] = {}
        for name in plain:
            unique, number = name, numbers.get(column_key(name), 1)
            while column_key(unique) in found or (number > 1 and column_key(unique) in taken):
                number += 1
                unique = f"{name}_{number}"
            numbers[column_key(name)] = number
            found[column_key(unique)] = unique
        return tuple(found.values())


def read_heads(spark: SparkSession, source: FilesSource, names: Sequence[str]) -> dict[str, Head]:
    """Of the files that hold a line that is not blank."""
    with ThreadPoolExecutor(min(_AT_ONCE, len(names) or 1)) as threads:
        found = threads.map(lambda name: _head(spark, location_of(name, source), source.reader), names)
        return {name: head for name, head in zip(names, found, strict=True) if head is not None}


def read_through(spark: SparkSession, location: str) -> None:
    """Raises what keeps a file from being read to its end."""
    jvm: Any = jvm_of(spark)
    with _opened(spark, location) as plain:
        jvm.org.apache.commons.io.IOUtils.consume(plain)


@contextmanager
def _opened(spark: SparkSession, location: str) -> Iterator[Any]:
    """By Hadoop, which knows the compressions that Spark reads."""
    jvm: Any = jvm_of(spark)
    conf = hadoop_conf(spark)
    path = jvm.org.apache.hadoop.fs.Path(location)
    stream = path.getFileSystem(conf).open(path)
    try:
        codec = jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(conf).getCodec(path)
        yield stream if codec is None else codec.createInputStream(stream)
    finally:
        stream.close()


def _head(spark: SparkSession, location: str, options: Mapping[str, str]) -> Head | None:
    jvm: Any = jvm_of(spark)
    with _opened(spark, location) as plain:
        lines = jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(plain, "UTF-8"))
        row = 0
        while (line := lines.readLine()) is not None:
            text = str(line).removeprefix(BOM) if row == 0 else str(line)
            if text.strip(" \t\r\n"):  # as `Lines` says what is blank
                cells = own_class(spark, "Cells", "csv").split(text, dict(options))
                return Head(text, row, tuple(map(str, cells or ())))
            row += 1
        return None


# Is the first line of a CSV file its header? It decides whether that line is dropped, so it is asked with care.
#
# Where the columns are known, a header names at least one of them and holds no value among its other names. Where
# they are inferred, the first lines of the files must look like names, and agree: a file whose line shares no name
# with most others has no header. Such a file goes to quarantine as a whole, so that no line of it is lost.


_VALUE = re.compile(
    r"""[-+]?[$€£]?\s*+(?:\d[\d\s,._']*+|\.\d++\s*+)(?:[eE][-+]?\d++\s*+)?[%$€£]?  # a number
    | \d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.*                                    # a date, or a time
    | \d{1,2}:\d{2}.*
    | true | false | null | none | nan | n/a | [-+]?inf(?:inity)?
    | \w++://.*                                                           # an address
    | [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}         # a UUID, a hash
    | (?=.*\d)[0-9a-f]{16,}
    | [\[{].*""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
"""Each alternative walks once over the text: the first line of a file can be anything."""
_SHOWN = 80
_LONGEST_NAME = 255
_MOST_NAMES = 10_000


def is_value(cell: str) -> bool:
    """A number, a date, a truth value and the like: what no column is called."""
    text = cell.strip()
    return len(text) > _LONGEST_NAME or _is_address(text) or _VALUE.fullmatch(text) is not None


def _is_address(text: str) -> bool:
    """As of mail: something, @, something, a point and something."""
    sign = text.find("@", 1)
    return sign > 0 and text.rfind(".", sign + 2, len(text) - 1) > 0 and not any(map(str.isspace, text))


def why_no_header(head: Head, known: Collection[str]) -> str | None:
    """`known`: the columns of the table, without capitals. None if the line is a header."""
    if (fault := _fault(head)) is not None:
        return fault
    unknown = [cell for cell, name in zip(head.cells, head.names, strict=True) if column_key(name) not in known]
    if len(unknown) == len(head.cells):
        return f"its first line names none of the table's columns: {_shown(head)}"
    values = [cell for cell in unknown if is_value(cell)]
    if values and 2 * len(unknown) >= len(head.cells):
        return f"its first line is no header, for {values[0]!r} is a value and no name: {_shown(head)}"
    return None


def doubled(head: Head, known: Collection[str]) -> str | None:
    """A column of the table that a header names twice."""
    seen: set[str] = set()
    for name in head.plain:
        if column_key(name) in seen and column_key(name) in known:
            return name
        seen.add(column_key(name))
    return None


@dataclass(frozen=True)
class Established:
    """What the first files say about their header."""

    names: list[str]
    """The files that have it."""
    remarks: list[str]


def establish(heads: Mapping[str, Head], folder: str, table: str) -> Established:
    """`heads` by the name of the file, the oldest first. Terminal where the files do not tell."""
    headed = {name: head for name, head in heads.items() if _looks_like_names(head)}
    if not headed:
        name, head = next(iter(heads.items()))
        raise Terminal(
            f"no file in {folder} begins with a header, though `header: true` says so: the first line of {name} is "
            f"{_shown(head)}",
            where=table,
            hint="without a header, remove `header: true`; if these are names, write the columns: "
            "`schema: schemas/columns.ddl`",
        )
    groups = sorted(_alike(headed), key=len, reverse=True)
    if len(groups) > 1 and len(groups[0]) == len(groups[1]):
        first, second = groups[0][0], groups[1][0]
        raise Terminal(
            f"the files in {folder} do not agree on a header: {first} begins with {_shown(heads[first])}, and {second} "
            f"with {_shown(heads[second])}, which have no name in common",
            where=table,
            hint="one of them may have no header. Write the columns that are right: `schema: schemas/columns.ddl`; "
            "files that name none of them go to quarantine",
        )
    others = [name for name in heads if name not in groups[0]]
    remarks = [
        f"{name} begins with {_shown(heads[name])}, which is no header like that of {groups[0][0]}: the file goes to "
        "quarantine as a whole"
        for name in others[:3]
    ]
    mine = {name: head for name, head in headed.items() if name in groups[0]}
    twice = {head.line: (name, head) for name, head in mine.items() if head.plain != head.names}
    remarks += [
        f"{name} names a column twice: its columns are {', '.join(head.names)}" for name, head in twice.values()
    ]
    return Established(groups[0], remarks)


def _looks_like_names(head: Head) -> bool:
    cells = [cell for cell in head.cells if cell.strip()]
    same = len(cells) > 1 and len({column_key(cell) for cell in cells}) == 1
    return _fault(head) is None and bool(cells) and not same and not any(map(is_value, cells))


def _alike(heads: Mapping[str, Head]) -> list[list[str]]:
    """Files whose headers have a name in common, directly or through others; the oldest first."""
    groups: list[tuple[set[str], list[str]]] = []
    for file, head in heads.items():
        names, files = {column_key(name) for name in head.plain if name}, [file]
        apart = []
        for theirs, others in groups:
            if theirs & names:
                names, files = names | theirs, [*others, *files]
            else:
                apart.append((theirs, others))
        groups = [*apart, (names, files)]
    order = {file: place for place, file in enumerate(heads)}
    return sorted((sorted(files, key=order.__getitem__) for _, files in groups), key=lambda files: order[files[0]])


def _fault(head: Head) -> str | None:
    if "\ufffd" in head.line:
        return f"its first line is not UTF-8: {_shown(head)}"
    if len(head.cells) > _MOST_NAMES:
        return f"its first line has {len(head.cells):,} cells, and a table cannot have so many columns: {_shown(head)}"
    return None if head.cells else f"its first line has a quote that is not closed, or text behind one: {_shown(head)}"


def _shown(head: Head) -> str:
    return f"`{head.line[:_SHOWN]}`"


def folded(names: Sequence[str]) -> set[str]:
    return {column_key(name) for name in names}


# What is asked of a format of files.


@dataclass(frozen=True)
class Survey:
    """What was learnt of the files of a batch before their rows are read."""

    heads: Mapping[str, Head] = field(default_factory=dict)
    """By the file's name: the line that names its fields."""
    fields: StructType = field(default_factory=StructType)
    """What the files have, as far as that is known without reading them."""


Chosen = Callable[[DataFrame], DataFrame]
"""Of rows that have the file and the number of each, some."""


@dataclass(frozen=True)
class FormatChoice:
    """How the files of a batch are read: decided once, and kept."""

    schema: StructType
    left_out: tuple[str, ...] = ()
    """Fields that cannot be columns, and are no news."""
    watchful: bool = True
    """A field that the schema does not name ends the read, where new fields are not simply left out."""


class Unfit(Exception):
    """Files that cannot be what the table reads, each with the reason."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(", ".join(reasons))
        self.reasons = reasons


class Format(Protocol):
    sampled: int | None
    """How many records the last inference looked at, if it looked at records."""

    def survey(self, names: Sequence[str], schema: StructType) -> Survey:
        """Raises Unfit if a file cannot be of a table with that schema, or what Spark says if it does not open."""

    def rows(self, names: Sequence[str], look: FormatChoice, survey: Survey, tasks: int) -> DataFrame:
        """For the stages of a table: a line each, or a row, with its file and its number there."""

    def decoder(self, plan: DecodePlan, binary: str | None, look: FormatChoice, survey: Survey) -> Decoder | None:
        """None where rows need none, or the one that Kafka's payloads have."""

    def establish(self, names: Sequence[str], table: str) -> Established:
        """Of the first files, before a schema is inferred: which of them can be what the table reads. Terminal where a
        person has to say it."""

    def infer(self, names: Sequence[str]) -> StructType:
        """The fields that the files have."""

    def plain(self, names: Sequence[str], schema: StructType) -> DataFrame:
        """All of the files, to find out whether they can be read."""

    def probe(self, name: str) -> None:
        """Raises if a look at this file alone, without Spark's tasks, shows that it cannot be read."""

    def first(self, names: Sequence[str]) -> tuple[str, str] | None:
        """The first line that is not blank, of a format that has lines, and its file."""

    def new(self, names: Sequence[str], look: FormatChoice, only: Chosen | None = None) -> StructType:
        """The fields of the records that end a read because they have one which the schema does not name; `only`
        chooses some of the records."""
