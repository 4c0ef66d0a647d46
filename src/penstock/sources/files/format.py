"""What a file format does, and the header of a CSV file."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from penstock.errors import Terminal
from penstock.sources.files.listing import location_of
from penstock.sources.files.types import schema_text
from penstock.spark.jvm import hadoop_conf, jvm_of, penstock_class
from penstock.spec.schema import column_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.formats.base import Decoder
    from penstock.plan.sources import FilesSource
    from penstock.plan.stages import DecodePlan

# Reading text files in this process: the first line of a CSV file, which names its fields, or a whole file.


BOM = "\ufeff"
_MAX_THREADS = 8
"""How many files are opened at the same time: on an object store each takes a while."""
_REFUSED_BY_DELTA = re.compile(r"[ ,;{}()\n\t=]+")


@dataclass(frozen=True)
class Head:
    """The first line of a file."""

    line: str
    row: int
    """Its line number; the lines before it are blank."""
    cells: tuple[str, ...]
    """Empty if it is not a record: a quote in it is not closed."""

    @property
    def plain(self) -> tuple[str, ...]:
        """The cells as column names; a blank cell is named by its position."""
        names = [_REFUSED_BY_DELTA.sub("_", cell.strip()) for cell in self.cells]
        return tuple(name or f"_c{index}" for index, name in enumerate(names))

    @property
    def names(self) -> tuple[str, ...]:
        """The same names made unique: a repeated name gets a number as its suffix."""
        plain = self.plain
        taken = {column_key(name) for name in plain}
        numbers: dict[str, int] = {}
        unique_names: dict[str, str] = {}
        for name in plain:
            unique, number = name, numbers.get(column_key(name), 1)
            while column_key(unique) in unique_names or (number > 1 and column_key(unique) in taken):
                number += 1
                unique = f"{name}_{number}"
            numbers[column_key(name)] = number
            unique_names[column_key(unique)] = unique
        return tuple(unique_names.values())


def read_heads(spark: SparkSession, source: FilesSource, names: Sequence[str]) -> dict[str, Head]:
    """By file: its first line that is not blank. Files without one are left out."""
    with ThreadPoolExecutor(min(_MAX_THREADS, len(names) or 1)) as threads:
        heads = threads.map(lambda name: _read_head(spark, location_of(name, source), source.reader), names)
        return {name: head for name, head in zip(names, heads, strict=True) if head is not None}


def read_through(spark: SparkSession, location: str) -> None:
    """Reads a file to its end, and raises what prevents that."""
    jvm: Any = jvm_of(spark)
    with _open_stream(spark, location) as stream:
        jvm.org.apache.commons.io.IOUtils.consume(stream)


@contextmanager
def _open_stream(spark: SparkSession, location: str) -> Iterator[Any]:
    """Opens a file with Hadoop, which knows the compression formats that Spark reads."""
    jvm: Any = jvm_of(spark)
    conf = hadoop_conf(spark)
    path = jvm.org.apache.hadoop.fs.Path(location)
    stream = path.getFileSystem(conf).open(path)
    try:
        codec = jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(conf).getCodec(path)
        yield stream if codec is None else codec.createInputStream(stream)
    finally:
        stream.close()


def _read_head(spark: SparkSession, location: str, options: Mapping[str, str]) -> Head | None:
    jvm: Any = jvm_of(spark)
    with _open_stream(spark, location) as stream:
        lines = jvm.java.io.BufferedReader(jvm.java.io.InputStreamReader(stream, "UTF-8"))
        row = 0
        while (line := lines.readLine()) is not None:
            text = str(line).removeprefix(BOM) if row == 0 else str(line)
            if text.strip(" \t\r\n"):  # the same definition of blank as in `Lines`
                cells = penstock_class(spark, "Cells", "csv").split(text, dict(options))
                return Head(text, row, tuple(map(str, cells or ())))
            row += 1
        return None


# Is the first line of a CSV file its header? This decides whether the line is dropped, so it is checked with care.
#
# Where the columns are known, a header names at least one of them and has no value among its other names. Where they
# are inferred, the first lines of the files must look like names, and agree: a file whose line shares no name with most
# others has no header. Such a file goes to quarantine as a whole, so that none of its lines is lost.


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
"""Each alternative passes over the text only once, because the first line of a file can be anything."""
_MAX_SHOWN = 80
_MAX_NAME_LENGTH = 255
_MAX_NAMES = 10_000


def is_value(cell: str) -> bool:
    """Whether the cell is a number, a date, a truth value or similar, which no column has as its name."""
    text = cell.strip()
    return len(text) > _MAX_NAME_LENGTH or _is_address(text) or _VALUE.fullmatch(text) is not None


def _is_address(text: str) -> bool:
    """Whether it looks like an email address: text, @, text, a dot and text."""
    sign = text.find("@", 1)
    return sign > 0 and text.rfind(".", sign + 2, len(text) - 1) > 0 and not any(map(str.isspace, text))


def why_no_header(head: Head, known: Collection[str]) -> str | None:
    """Why the line is not a header; None if it is. `known`: the table's columns, in lower case."""
    if (fault := _find_fault(head)) is not None:
        return fault
    unknown = [cell for cell, name in zip(head.cells, head.names, strict=True) if column_key(name) not in known]
    if len(unknown) == len(head.cells):
        return f"its first line names none of the table's columns: {_quote(head)}"
    values = [cell for cell in unknown if is_value(cell)]
    if values and 2 * len(unknown) >= len(head.cells):
        return f"its first line is not a header: {values[0]!r} is a value, not a name: {_quote(head)}"
    return None


def repeated_name(head: Head, known: Collection[str]) -> str | None:
    """A column of the table that a header names twice."""
    keys: set[str] = set()
    for name in head.plain:
        if column_key(name) in keys and column_key(name) in known:
            return name
        keys.add(column_key(name))
    return None


@dataclass(frozen=True)
class HeaderFiles:
    """What the first files show about their header."""

    names: list[str]
    """The files that have the header."""
    remarks: list[str]


def establish(heads: Mapping[str, Head], folder: str, table: str) -> HeaderFiles:
    """Finds the header that the files have in common. `heads` is by file, the oldest first. Raises Terminal if the
    files do not agree on one."""
    headed = {name: head for name, head in heads.items() if _looks_like_names(head)}
    if not headed:
        name, head = next(iter(heads.items()))
        raise Terminal(
            f"no file in {folder} begins with a header, though `header: true` says so: the first line of {name} is "
            f"{_quote(head)}",
            where=table,
            hint="without a header, remove `header: true`; if these are names, write the columns: "
            "`schema: schemas/columns.ddl`",
        )
    groups = sorted(_group_by_names(headed), key=len, reverse=True)
    if len(groups) > 1 and len(groups[0]) == len(groups[1]):
        first, second = groups[0][0], groups[1][0]
        raise Terminal(
            f"the files in {folder} do not agree on a header: {first} begins with {_quote(heads[first])}, and {second} "
            f"with {_quote(heads[second])}, which have no name in common",
            where=table,
            hint="one of them may have no header. Write the columns that are right: `schema: schemas/columns.ddl`; "
            "files that name none of them go to quarantine",
        )
    others = [name for name in heads if name not in groups[0]]
    remarks = [
        f"{name} begins with {_quote(heads[name])}, which is no header like that of {groups[0][0]}: the file goes to "
        "quarantine as a whole"
        for name in others[:3]
    ]
    in_group = {name: head for name, head in headed.items() if name in groups[0]}
    doubles = {head.line: (name, head) for name, head in in_group.items() if head.plain != head.names}
    remarks += [
        f"{name} names a column twice: its columns are {', '.join(head.names)}" for name, head in doubles.values()
    ]
    return HeaderFiles(groups[0], remarks)


def _looks_like_names(head: Head) -> bool:
    cells = [cell for cell in head.cells if cell.strip()]
    same = len(cells) > 1 and len({column_key(cell) for cell in cells}) == 1
    return _find_fault(head) is None and bool(cells) and not same and not any(map(is_value, cells))


def _group_by_names(heads: Mapping[str, Head]) -> list[list[str]]:
    """Groups files whose headers share a name, directly or through others; the oldest first."""
    groups: list[tuple[set[str], list[str]]] = []
    for file, head in heads.items():
        names, files = {column_key(name) for name in head.plain if name}, [file]
        separate = []
        for group_names, group_files in groups:
            if group_names & names:
                names, files = names | group_names, [*group_files, *files]
            else:
                separate.append((group_names, group_files))
        groups = [*separate, (names, files)]
    order = {file: index for index, file in enumerate(heads)}
    return sorted((sorted(files, key=order.__getitem__) for _, files in groups), key=lambda files: order[files[0]])


def _find_fault(head: Head) -> str | None:
    if "\ufffd" in head.line:
        return f"its first line is not UTF-8: {_quote(head)}"
    if len(head.cells) > _MAX_NAMES:
        return f"its first line has {len(head.cells):,} cells, and a table cannot have so many columns: {_quote(head)}"
    return None if head.cells else f"its first line has a quote that is not closed, or text behind one: {_quote(head)}"


def _quote(head: Head) -> str:
    return f"`{head.line[:_MAX_SHOWN]}`"


def column_keys(names: Sequence[str]) -> set[str]:
    return {column_key(name) for name in names}


@dataclass(frozen=True)
class Survey:
    """What is known about the files of a batch before their rows are read."""

    heads: Mapping[str, Head] = field(default_factory=dict)
    """By file: the line that names its fields."""
    fields: StructType = field(default_factory=StructType)
    """The fields of the files, as far as they are known without reading the rows."""


RowFilter = Callable[[DataFrame], DataFrame]
"""Selects some of the rows, which have their file and their number in it."""


@dataclass(frozen=True)
class FormatChoice:
    """How the files of a batch are read: decided once, then stored."""

    schema: StructType
    left_out: tuple[str, ...] = ()
    """Fields that cannot be columns, and do not count as new."""
    stops_at_new_fields: bool = True
    """A field that is not in the schema stops the read, unless new fields are simply left out."""

    @property
    def document(self) -> dict[str, Any]:
        """What the lake stores of it."""
        return {
            "columns": schema_text(self.schema),
            "left_out": list(self.left_out),
            "full": not self.stops_at_new_fields,
            "schema": self.schema.jsonValue(),
        }


class UnfitFiles(Exception):
    """Files that do not fit the table, each with the reason."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(", ".join(reasons))
        self.reasons = reasons


class Format(ABC):
    """What a file format does. The defaults are for files whose fields are known only from their rows."""

    sampled: int | None = None
    """How many records the last inference read, if it read records."""

    def survey(self, names: Sequence[str], schema: StructType) -> Survey:
        """Raises UnfitFiles if a file does not fit the schema, or Spark's error if a file cannot be opened."""
        return Survey()

    @abstractmethod
    def rows(self, names: Sequence[str], choice: FormatChoice, survey: Survey, tasks: int) -> DataFrame:
        """The input of a table's stages: one row per line or record, with its file and its number in that."""

    def decoder(self, plan: DecodePlan, binary: str | None, choice: FormatChoice, survey: Survey) -> Decoder | None:
        """None if the rows need no decoder, or the same as Kafka's payloads."""
        return None

    def establish(self, names: Sequence[str], table: str) -> HeaderFiles:
        """Decides which of the first files fit the table, before a schema is inferred. Raises Terminal if only the user
        can decide."""
        return HeaderFiles(list(names), [])

    @abstractmethod
    def infer(self, names: Sequence[str]) -> StructType:
        """The fields that the files have."""

    @abstractmethod
    def plain(self, names: Sequence[str], schema: StructType) -> DataFrame:
        """All files without further processing, to find out whether they can be read."""

    def probe(self, name: str) -> None:  # noqa: B027
        """Raises if a check of this file that is quicker than Spark's own read shows that it cannot be read."""

    def first(self, names: Sequence[str]) -> tuple[str, str] | None:
        """The file of the first line that is not blank, and that line; None for formats without lines."""
        return None

    def new_fields(self, names: Sequence[str], choice: FormatChoice, only: RowFilter | None = None) -> StructType:
        """The fields of the records that stop a read because they have a field that is not in the schema; none where
        headers or footers name all fields beforehand. `only` selects some of the records."""
        return StructType()
