"""Every page of every file of a table, its quarantine and its tombstones: read, and held against its own checksum."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, VariantType

from penstock.engine.identifiers import quote
from penstock.engine.upkeep.places import places
from penstock.errors import PenstockError
from penstock.ops.verify.again.around import Around
from penstock.ops.verify.again.kinds import holds
from penstock.ops.verify.check import Check
from penstock.ops.verify.data_files import DataFile, data_files, living_in, name_in, origin_of

_FILE, _ROWS, _HASH = "__file", "__rows", "__hash"


def check_pages(around: Around) -> list[Check]:
    table = around.table
    found = [_read(around, table.name, table.uri, around.version)]
    for place in places(table):
        if place.kind in ("quarantine", "tombstones") and around.store.names(f"{place.uri}/_delta_log"):
            found.append(_read(around, place.name, place.uri, None))
    return found


def _read(around: Around, name: str, uri: str, version: int | None) -> Check:
    check = around.begun("pages", "what Delta's log says of them", "files")
    files = data_files(uri, version)
    check.held, check.of = f"every page of {name}", len(files)
    reader = around.spark.read.format("delta")
    try:
        with around.reading(around.version):
            rows = (reader if version is None else reader.option("versionAsOf", version)).load(uri)
            counted = _counted(rows)
    except PenstockError as error:
        bad = name_in(files, error.message)
        where = f"its file {origin_of(around.store, uri, bad)} cannot be read" if bad else "it cannot be read"
        check.outcome, check.said = "differs", f"{where}: {error.message}"
        return check
    wrong = []
    for one in files:
        has = counted.get(one.name, 0)
        said = one.rows if has == one.rows else living_in(around.store, uri, one, version)
        if said is not None and has != said:
            wrong.append(f"{origin_of(around.store, uri, one)} has {has:,} rows, the log says {said:,}")
    check.compared = len(files)
    if wrong:
        check.outcome, check.differing = "differs", len(wrong)
        check.said = "; ".join(wrong[:10])
        return check
    check.outcome, check.said = "same", f"all pages of {len(files):,} files of {name} can be read"
    return check


def _counted(rows: DataFrame) -> dict[str, int]:
    """How many rows each file has. All columns are decoded for it."""
    parts = [
        f"to_json(named_struct('v', {quote(one.name)}))"
        if holds(one.dataType, MapType, VariantType)
        else quote(one.name)
        for one in rows.schema.fields
    ]
    hashed = rows.selectExpr("_metadata.file_path AS " + _FILE, f"xxhash64({', '.join(parts) or '0'}) AS {_HASH}")
    found = hashed.groupBy(_FILE).agg(F.count(F.lit(1)).alias(_ROWS), F.expr(f"bit_xor({_HASH})").alias(_HASH))
    return {DataFile.named(row[_FILE]): int(row[_ROWS]) for row in found.collect()}
