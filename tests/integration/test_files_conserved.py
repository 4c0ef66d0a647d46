"""No line of a file disappears: it is a row, it is in quarantine, or it is a header or blank. Random files, whose lines
this module counts by itself while it writes them."""

from __future__ import annotations

import gzip
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import Terminal
from tests.integration.folders import TABLE, Folder
from tests.integration.run_plan import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = ("id", "name", "note")
SCHEMA = "id BIGINT, name STRING, note STRING"
MARK = b"\xef\xbb\xbf"
TEXTS = [
    "x",
    "a, b",
    'said "no"',
    "two\nlines",
    "three\r\nlines\rhere",
    "",
    None,
    "é中😀",
    "a\x00b",
    " spaced ",
    "0",
    "'",
]
SEEDS = [7, *(pytest.param(seed, marks=pytest.mark.deep) for seed in range(100, 106))]


@dataclass
class Written:
    """A file: its bytes, and what must become of each of its records, by the number of its first line."""

    content: bytearray = field(default_factory=bytearray)
    lines: int = 0
    good: dict[int, tuple[Any, ...]] = field(default_factory=dict)
    bad: list[int] = field(default_factory=list)
    unfit: bool = False

    def add(self, record: bytes, end: bytes) -> int:
        """Its first line's number."""
        at, whole = self.lines, record + end
        self.content += whole
        self.lines += len(record.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"))
        return at


def cell(chance: random.Random, value: str | None) -> bytes:
    if value is None:
        return b""
    plain = value.encode()
    must = value == "" or any(sign in value for sign in ',"\r\n')
    return b'"' + plain.replace(b'"', b'""') + b'"' if must or chance.random() < 0.3 else plain


BARRIER = "closed"
"""A quoted cell that no quote before it can be closed by."""


def csv_file(chance: random.Random, *, headed: bool, end: bytes) -> Written:
    made = Written()
    columns = list(COLUMNS)
    if chance.random() < 0.2:
        made.content += MARK
    for _ in range(chance.choice([0, 0, 1, 3])):
        made.add(chance.choice([b"", b"  "]), end)
    if headed:
        chance.shuffle(columns)
        columns = columns[: chance.choice([3, 3, 3, 2])]
        if chance.random() < 0.2:
            columns.append("other")
        made.add(",".join(columns).encode(), end)
    for number in range(chance.choice([0, 1, 5, 30])):
        kind = chance.choice(["good"] * 8 + ["blank", "open", "behind", "more", "fewer", "type", "bytes"])
        values = {"id": str(number), "name": chance.choice(TEXTS), "note": chance.choice(TEXTS), "other": "o"}
        record = b",".join(cell(chance, values[name]) for name in columns)
        if kind == "blank" or not record.strip():
            made.add(chance.choice([b"", b" ", b"\t"]), end)
        elif kind == "good":
            at = made.add(record, end)
            made.good[at] = tuple(
                (int(values[name]) if name == "id" else values[name]) if name in columns else None for name in COLUMNS
            )
        elif kind == "open":
            made.bad.append(made.add(b",".join([b"1"] * (len(columns) - 1)) + b',"open', end))
            values |= {"id": "5", "name": BARRIER, "note": BARRIER}
            quoted = b",".join(f'"{values[name]}"'.encode() for name in columns)
            made.good[made.add(quoted, end)] = tuple(
                (5 if name == "id" else BARRIER) if name in columns else None for name in COLUMNS
            )
        else:
            broken = {
                "behind": b'"a"b,' + b",".join([b"1"] * (len(columns) - 1)),
                "more": record + b",1",
                "fewer": b"1",
                "type": b",".join(b"x" if name == "id" else b"1" for name in columns),
                "bytes": b",".join(b"\xff" for _ in columns),
            }[kind]
            if kind == "type" and "id" not in columns:
                continue
            made.bad.append(made.add(broken, end))
    if made.content.endswith(end) and made.lines > 1 and chance.random() < 0.3:
        del made.content[-len(end) :]
    return made


def json_file(chance: random.Random, end: bytes) -> Written:
    made = Written()
    if chance.random() < 0.2:
        made.content += MARK
    for number in range(chance.choice([0, 1, 30])):
        kind = chance.choice(["good"] * 6 + ["blank", "cut", "list", "bytes", "twice", "type"])
        values = (number, chance.choice(TEXTS), chance.choice(TEXTS))
        line = json.dumps(dict(zip(COLUMNS, values, strict=True)), ensure_ascii=chance.random() < 0.5).encode()
        if kind == "blank":
            made.add(chance.choice([b"", b"  "]), end)
        elif kind == "good":
            made.good[made.add(line, end)] = values
        else:
            broken = {
                "cut": line[:-2],
                "list": b"[1]",
                "bytes": b'{"name": "\xff"}',
                "twice": b'{"id": 1, "id": 2}',
                "type": b'{"id": "x"}',
            }[kind]
            made.bad.append(made.add(broken, end))
    return made


def document(chance: random.Random, end: bytes) -> Written:
    """A file that is one list, one object, or no JSON; its records are numbered by their place in the list."""
    made = Written(bytearray(MARK if chance.random() < 0.2 else b""))
    shape = chance.choice(["list", "list", "list", "object", "cut", "blank", "two"])
    parts = []
    for number in range(chance.choice([0, 1, 20]) if shape == "list" else 1):
        kind = chance.choice(["good"] * 4 + ["number", "null", "list", "type"]) if shape == "list" else "good"
        values = (number, chance.choice(TEXTS), chance.choice(TEXTS))
        if kind == "good":
            parts.append(json.dumps(dict(zip(COLUMNS, values, strict=True)), indent=chance.choice([None, 2])))
            made.good[number] = values
        else:
            parts.append({"number": "5", "null": "null", "list": "[1]", "type": '{"id": "x"}'}[kind])
            made.bad.append(number)
    text = f"[{', '.join(parts)}]" if shape == "list" else parts[0] if parts else ""
    if shape in ("cut", "two", "blank"):
        made.good, made.bad = {}, [] if shape == "blank" else [0]
        text = {"cut": text[:-1], "two": f"{text} {text}", "blank": " \n "}[shape]
    made.content += text.encode().replace(b"\n", end) + end
    return made


def files(chance: random.Random, kind: str) -> Iterator[tuple[str, Written]]:
    for number in range(25):
        end = chance.choice([b"\n", b"\n", b"\r\n", b"\r"])
        if kind == "json":
            made = json_file(chance, end)
        elif kind == "documents":
            made = document(chance, end)
        elif kind == "plain csv":
            made = csv_file(chance, headed=False, end=end)
        else:
            headed = chance.random() < 0.8
            made = csv_file(chance, headed=headed, end=end)
            made.unfit = not headed and bool(made.good or made.bad)
        yield f"f{number}.{kind[-4:].strip()}{chance.choice(['', '.gz'])}", made


def put(folder: Folder, name: str, made: Written) -> None:
    content = bytes(made.content)
    (folder.path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)


def check(folder: Folder, written: dict[str, Written]) -> None:
    """Every line of every file, by the coordinates of rows and of quarantined records, and their values."""
    landed = [(r["_source"]["file"], r["_source"]["row"], tuple(r[c] for c in COLUMNS)) for r in folder.rows()]
    fit = {f"in/{name}": made for name, made in written.items() if not made.unfit}
    assert Counter(landed) == Counter((name, row, values) for name, m in fit.items() for row, values in m.good.items())
    aside = [(r["_source"]["file"], r["_source"]["row"], r["error_reason"]) for r in folder.quarantine]
    assert Counter((name, row) for name, row, why in aside if why != "unreadable_file") == Counter(
        (name, row) for name, made in fit.items() for row in made.bad
    )
    assert folder.unreadable() == Counter(f"in/{name}" for name, made in written.items() if made.unfit)


@pytest.mark.parametrize(
    "kind", ["headed csv", "json", *(pytest.param(kind, marks=pytest.mark.deep) for kind in ("plain csv", "documents"))]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_line_is_a_row_or_in_quarantine(seed: int, kind: str, spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(int(os.environ.get("PENSTOCK_SEED", seed)))
    source: dict[str, Any] = {"format": "csv" if kind.endswith("csv") else "json", "schema": SCHEMA}
    options = {"headed csv": {"options": {"header": True}}, "documents": {"options": {"multiLine": True}}}
    folder = Folder(spark, tmp_path, source | options.get(kind, {}))
    written = dict(files(chance, kind))
    for name, made in written.items():
        put(folder, name, made)
    heard = folder.run()
    check(folder, written)
    row_counts: Counter[str] = Counter()
    for batch in heard.batches:
        row_counts.update(batch.row_counts)
    counted = sum(len(m.good) + len(m.bad) if not m.unfit else 1 for m in written.values())
    assert row_counts["read"] == counted == len(folder.rows()) + len(folder.quarantine)


def headed(spark: SparkSession, root: Path, **source: Any) -> Folder:
    return Folder(spark, root, {"format": "csv", "schema": None, "options": {"header": True}, **source})


def test_a_file_without_a_header_does_not_lose_its_first_line_to_inference(spark: SparkSession, tmp_path: Path) -> None:
    folder = headed(spark, tmp_path)
    folder.write("a.csv", "7,seven\n8,eight\n")  # the oldest
    os.utime(folder.path / "a.csv", (1, 1))
    folder.write("b.csv", "id,name\n1,x\n2,y\n")
    folder.write("c.csv", "name,id\nz,3\n")
    folder.write("d.csv", "id,name\n")
    folder.write("e.csv", "")
    heard = folder.run()
    assert sorted((row["id"], row["name"]) for row in folder.rows()) == [(1, "x"), (2, "y"), (3, "z")]
    assert folder.unreadable() == Counter(["in/a.csv"])
    assert heard.heard("in/a.csv begins with `7,seven`, which is no header")
    folder.write("f.csv", "9,name\n10,ten\n")  # names a column by chance, and is no header
    folder.write("g.csv", "id,name,id\n11,x,y\n")
    folder.run()
    assert folder.unreadable() == Counter(["in/a.csv", "in/f.csv"])
    assert {row["id"]: row.get("id_2") for row in folder.rows()} == {1: None, 2: None, 3: None, 11: "y"}


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        (["7,seven\n8,eight\n"], "no file in"),
        pytest.param(["bob,berlin\n", "ann,paris\n"], "do not agree", marks=pytest.mark.deep),
        pytest.param(["city,name\nrome,eva\n", "bob,berlin\n"], "do not agree", marks=pytest.mark.deep),
    ],
)
def test_files_that_have_no_header_stop_the_first_run(
    contents: list[str], words: str, spark: SparkSession, tmp_path: Path
) -> None:
    folder = headed(spark, tmp_path)
    for number, content in enumerate(contents):
        folder.write(f"{number}.csv", content)
    error = run(spark, folder.plan).errors[TABLE]
    assert isinstance(error, Terminal)
    assert words in error.message
    assert not (tmp_path / "lake/bronze/t").exists()


def test_a_header_that_names_a_given_column_twice_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    folder = headed(spark, tmp_path, schema="id BIGINT, name STRING")
    folder.write("a.csv", "id,name,name\n1,x,y\n")
    folder.write("b.csv", 'id,name\n2,""\n3,\n"",z\n')
    folder.run()
    assert {row["id"]: row["name"] for row in folder.rows()} == {2: "", 3: None, None: "z"}
    (row,) = folder.quarantine
    assert row["error_reason"] == "unreadable_file"
    assert "names name twice" in row["error_detail"]
