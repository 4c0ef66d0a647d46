"""The search that proves a forget: it finds a name in any place of any file, and nothing where there is none."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from penstock.erasure.log_redaction import json_values, parse_json
from penstock.erasure.search import LakeSearch, SearchFindings
from penstock.erasure.text_search import NameSearch
from penstock.storage.stores import LocalStore
from tests.byte_search import named
from tests.integration.run_plan import make_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DIGITS, MAIL, LONG = "47110815", "zoë@example.org", "a-name-that-is-so-long-that-statistics-cut-it-off@example.org"
TABLES = {
    "bronze.t": {"from": {"kafka": "t"}, "subjects": {"customer": [{"json": "value", "path": "$.customer"}, "key"]}},
    "silver.t": {
        "from": {"table": "bronze.t"},
        "decode": {"json": "value", "schema": "customer STRING, id BIGINT"},
        "subjects": {"customer": ["customer", "id"]},
    },
    "gold.t": {"from": {"table": "silver.t"}, "sql": "SELECT * FROM t"},
}
COLUMNS = {
    "text": "'{name}'",
    "words": "concat('to ', '{name}', ', twice')",
    "mapped": "map('{name}', 1)",
    "map_value": "map(1, '{name}')",
    "listed": "array('a', '{name}')",
    "deep": "named_struct('a', array(named_struct('b', '{name}')))",
    "bytes": "cast('{name}' as binary)",
    "in_base64": "base64(cast('from {name} on' as binary))",
    "in_lines_of_base64": "base64(cast(concat(repeat('x', 50), '{name}') as binary))",
    "in_hex": "hex(cast('{name}' as binary))",
    "utf16": "encode('{name}', 'UTF-16LE')",
    "in_json": """'{{"a":{{"b":["{name}"]}}}}'""",
    "json_key": """'{{"a":{{"{name}":1}}}}'""",
    "json_in_json": """to_json(named_struct('a', '{{"b":"{name}"}}'))""",
    "cut_json": """'{{"a":"{name}","b'""",
    "address": "concat('/x?y=', url_encode('{name}'))",
    "headers": "array(named_struct('key', 'who', 'value', cast('{name}' as binary)))",
}


def searched(spark: SparkSession, folder: Path, *names: str, not_names: tuple[str, ...] = ()) -> SearchFindings:
    plan = make_plan(folder, "127.0.0.1:9", TABLES)
    needles = [NameSearch("customer", name) for name in names]
    return LakeSearch(spark, plan, LocalStore(), needles, not_names).search_all([plan.lake])


def write(spark: SparkSession, folder: Path, name: str, **columns: str) -> None:
    """A file in which the middle one of many rows has the name."""
    rows = spark.range(300)
    for column, value in columns.items():
        there = value.format(name=name)
        rows = rows.selectExpr("*", f"IF(id = 150, {there}, {value.format(name='nobody')}) AS {column}")
    rows.drop("id").coalesce(1).write.mode("append").parquet(str(folder))


def left_in(left: SearchFindings) -> set[str]:
    return {place.partition(".")[0] for _, place in left.names}


@pytest.mark.parametrize(
    ("name", "codec"),
    [(MAIL, "snappy"), (DIGITS, "zstd"), pytest.param(LONG, "gzip", marks=pytest.mark.deep)],
)
def test_a_name_is_found_in_every_kind_of_column(spark: SparkSession, tmp_path: Path, name: str, codec: str) -> None:
    spark.conf.set("spark.sql.parquet.compression.codec", codec)
    try:
        write(spark, tmp_path / "lake/gold/t", name, **COLUMNS)
    finally:
        spark.conf.set("spark.sql.parquet.compression.codec", "snappy")

    assert left_in(searched(spark, tmp_path, name)) >= {*COLUMNS}
    nobody = searched(spark, tmp_path, "somebody.else@example.org", "99887766")
    assert nobody.nothing and nobody.files and nobody.bytes


WRAPS: dict[str, Callable[[str], str]] = {
    "json": lambda text: json.dumps({"a": [text, 1]}),
    "json as it is": lambda text: json.dumps({"a": text}, ensure_ascii=False),
    "cut json": lambda text: json.dumps({"a": text, "b": 1})[:-3],
    "address": lambda text: f"/x?y={quote(text, safe='')}&z=1",
    "csv": lambda text: f"1,{text},x",
    "sentence": lambda text: f"to {text}: hello",
    "tagged": lambda text: f"<who>{text}</who>",
}
SHAPES = (
    "47110815",
    "zoë@example.org",
    'O"Hara \\ of Kerry',
    "Jo Smith",
    "6f1d2a3b-0c4e-4f5a-9b6c-7d8e9f0a1b2c",
    "李小龙 Li",
)


@pytest.mark.deep
@pytest.mark.parametrize("seed", [7, 8, 9])
def test_both_searches_find_a_name_however_it_is_wrapped_and_none_that_is_glued(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    random = Random(seed)
    texts, holds = [], []
    for number in range(240):
        name = SHAPES[number % len(SHAPES)]
        there = random.random() < 0.7
        text = name if there else random.choice([f"q{name}", f"{name}q", f"8{name}8", name[1:]])
        depth = random.randrange(4)
        for wrap in random.choices([*WRAPS], k=depth):
            text = WRAPS[wrap](text)
        texts.append(text)
        holds.append(there)
    columns = ", ".join(f"c{number} STRING" for number in range(len(texts)))
    spark.createDataFrame([tuple(texts)], columns).coalesce(1).write.parquet(str(tmp_path / "lake/gold/t"))
    left = searched(spark, tmp_path, *SHAPES)
    found = {place.partition(".")[0] for _, place in left.names}
    in_jvm = [f"c{number}" in found for number in range(len(texts))]
    needles = [NameSearch("customer", name) for name in SHAPES]
    in_python = [_seen_in_python(text, needles) for text in texts]
    wrong = [
        (holds[n], in_jvm[n], in_python[n], texts[n])
        for n in range(len(texts))
        if not holds[n] == in_jvm[n] == in_python[n]
    ]
    assert not wrong, "\n".join(map(str, wrong[:20]))


def _seen_in_python(text: str, needles: list[NameSearch]) -> bool:
    document = parse_json(text)
    leaf = json_values(document, keys=True) if document is not None else [("", text)]
    return any(needle.in_text(value) for _, value in leaf if isinstance(value, str) for needle in needles)


def test_a_number_counts_where_it_is_declared_and_is_told_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    numbers = {"id": DIGITS, "amount": f"{DIGITS}.00", "code": "1"}
    rows = "SELECT {0} AS id, CAST({1} AS DECIMAL(20,2)) AS amount, {0}L AS plain, {0}D AS wide, 7 AS few, "
    rows += "timestamp_seconds({0}) AS at, '{{\"n\":{0}}}' AS payload, '2026-01-01 10:00:00.{0}' AS noted"
    text = rows.format(numbers["id"], numbers["amount"])
    spark.sql(text).write.mode("append").parquet(str(tmp_path / "lake/silver/t"))
    spark.sql(text).write.mode("append").parquet(str(tmp_path / "lake/gold/t"))
    left = searched(spark, tmp_path, DIGITS)
    assert set(left.names) == {("silver.t", "id"), ("gold.t", "id")}  # gold is made of silver, and declares nothing
    same = {place for table, place in left.same if table == "silver.t"}
    assert same == {"amount", "plain", "wide", "payload.n", "noted"}
    few = searched(spark, tmp_path, "7")
    assert few.nothing and ("silver.t", "few") in few.same
    assert searched(spark, tmp_path, f"0{DIGITS}").nothing


def test_the_name_of_somebody_else_that_begins_alike_is_not_the_name(spark: SparkSession, tmp_path: Path) -> None:
    other = f"{MAIL}.uk"
    spark.sql(f"SELECT '{other}' AS customer, 'to {other}, hello' AS note").write.parquet(
        str(tmp_path / "lake/silver/t")
    )
    assert searched(spark, tmp_path, MAIL).nothing
    spark.sql(f"SELECT 'x' AS customer, '{other} for {MAIL}' AS note").write.mode("append").parquet(
        str(tmp_path / "lake/silver/t")
    )
    assert set(searched(spark, tmp_path, MAIL).names) == {("silver.t", "note")}
    assert searched(spark, tmp_path, MAIL, not_names=("silver.t.note",)).nothing


def test_files_that_are_no_tables_are_searched_behind_their_compression(spark: SparkSession, tmp_path: Path) -> None:
    system = tmp_path / "lake/_penstock"
    (system / "x/state/0/0").mkdir(parents=True)
    (system / "a.json").write_text(json.dumps({"deep": json.dumps({"who": MAIL})}))
    (system / "b.gz").write_bytes(gzip.compress(f"x {MAIL} y".encode()))
    (system / "c.bin").write_bytes(b"\xff\xfe\x00" + MAIL.encode() + b"\xff")
    (system / "d.txt").write_text(base64.b64encode(f"xy{MAIL}".encode()).decode())
    codec = spark.sparkContext._jvm.net.jpountz.lz4.LZ4BlockOutputStream  # type: ignore[union-attr]
    file = spark.sparkContext._jvm.java.io.FileOutputStream(str(system / "x/state/0/0/1.delta"))  # type: ignore[union-attr]
    packed = codec(file)
    packed.write(bytearray(b"\x00\x01" * 500 + MAIL.encode() + b"glued"))
    packed.close()
    (system / f"{MAIL}.json").write_text("{}")
    (tmp_path / "lake/gold/t" / "day=47110815").mkdir(parents=True)
    (system / "torn.parquet").write_bytes(b"PAR1 and no end")

    left = searched(spark, tmp_path, MAIL, DIGITS)

    found = {file for files in left.names.values() for file in files}
    wanted = {"a.json", "b.gz", "c.bin", "d.txt", "x/state/0/0/1.delta"}
    assert {f"_penstock/{name}" for name in wanted} <= found
    assert any("1.delta" in one for one in named(tmp_path, [MAIL]))  # so does the search of the tests
    assert any("xxx" in file and MAIL not in file for file in found)  # a file's own name is not repeated
    assert ("gold.t", "its own name, or that of its folder") in left.names
    assert len(left.unreadable) == 1 and "torn.parquet" in left.unreadable[0]


def test_a_position_or_a_count_is_told_and_is_not_the_name(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "lake/_penstock/checkpoints/bronze.t/1/offsets"
    folder.mkdir(parents=True)
    (folder / "7").write_text('v1\n{"batchTimestampMs":47110815,"conf":{"n":"47110815"}}\n{"t":{"0":47110815}}')
    left = searched(spark, tmp_path, DIGITS)
    assert left.nothing and sum(left.same.values()) == 3
