"""The schema that is inferred of CSV takes every cell that it was inferred from."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.errors import Terminal
from tests.hostile_values import NUMBERS, OTHERS, TIMES
from tests.integration.folders import TABLE, Folder
from tests.integration.run_plan import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.sources.files.csv import CsvLines

CSV = {"format": "csv", "schema": None, "options": {"header": True}}


def quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"'


def lines_of(folder: Folder) -> CsvLines:
    from penstock.sources.files.csv import CsvLines
    from tests.integration.folders import source_of

    return CsvLines(folder.spark, source_of(folder.plan))


def kinds(folder: Folder, names: list[str]) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in lines_of(folder).infer(names)}


def faults(folder: Folder, names: list[str]) -> list[tuple[str, str]]:
    """Of all records of the files, decoded by the schema that is inferred of them."""
    from penstock.plan.stages import DecodePlan
    from penstock.sources.files.format import FormatChoice
    from penstock.sources.files.types import decoder_schema
    from tests.integration.folders import source_of

    format = lines_of(folder)
    look = FormatChoice(format.infer(names))
    survey = format.survey(names, look.schema)
    plan = DecodePlan("csv", "value", decoder_schema(look.schema), options=source_of(folder.plan).reader)
    made = format.decoder(plan, "value_binary", look, survey).decode(format.rows(names, look, survey, 1))
    wrong = made.frame.where(made.is_bad).selectExpr("value", f"({made.reason}).detail")
    return [(row[0], row[1]) for row in wrong.collect()]


def test_types_are_inferred_by_the_rules_that_decode_cells(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, CSV)
    columns = {
        "whole": ("1", "", "bigint"),
        "grouped": ("1,234", "5,678", "string"),
        "seat": ("12D", "3F", "string"),
        "exact": ("9007199254740993", "1.5", "decimal(38,1)"),
        "large": ("99999999999999999999", "1", "decimal(38,0)"),
        "nan": ("NaN", "1.5", "string"),
        "real": ("1.50", " 2e3 ", "double"),
        "code": ("007", "1", "string"),
        "flag": ("TRUE", "false", "boolean"),
        "word": ("yes", "no", "string"),
        "day": ("2026-01-31", '""', "date"),
        "at": ("2026-01-31 10:00:00", "2026-01-31T10:00:00Z", "timestamp"),
        "both": ("2026-01-31", "2026-01-31T10:00:00Z", "string"),
        "blank": ("  ", "7", "bigint"),
        "none": ("", "", "string"),
    }
    rows = []
    for place in range(2):
        cells = (row[place] for row in columns.values())
        rows.append(",".join(cell if cell in ("", '""') else quoted(cell) for cell in cells))
    folder.write("a.csv", "\n".join([",".join(columns), *rows]) + "\n")
    assert kinds(folder, ["in/a.csv"]) == {name: kind for name, (_, _, kind) in columns.items()}
    assert faults(folder, ["in/a.csv"]) == []
    folder.write("b.csv", "blank,whole\n1.5,9007199254740993\n")
    folder.write("c.csv", "whole\n0.5\n")
    found = kinds(folder, ["in/b.csv", "in/c.csv"])
    assert list(found.items()) == [("blank", "double"), ("whole", "decimal(38,1)")]
    assert faults(folder, ["in/b.csv", "in/c.csv"]) == []


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(8))
def test_no_cell_of_a_file_is_rejected_by_the_schema_inferred_from_it(
    seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    values = [text for text in (*NUMBERS, *TIMES, *OTHERS) if text.isprintable() and len(text) < 1000]
    folder = Folder(spark, tmp_path, CSV)
    names = []
    for file in range(3):
        pools = [chance.sample(values, chance.choice([1, 2, 3])) for _ in range(60)]
        fields = chance.sample([f"c{place}" for place in range(80)], 60)
        rows = [",".join(quoted(chance.choice(pool)) for pool in pools) for _ in range(5)]
        folder.write(f"{file}.csv", "\n".join([",".join(fields), *rows]) + "\n")
        names.append(f"in/{file}.csv")
    assert faults(folder, names) == []


@pytest.mark.deep
def test_a_batch_may_have_as_many_headers_as_files(spark: SparkSession, tmp_path: Path) -> None:
    source = {"format": "csv", "schema": "id BIGINT, name STRING", "options": {"header": True}, "new_fields": "rescue"}
    folder = Folder(spark, tmp_path, source)
    for number in range(1000):
        folder.write(f"{number}.csv", f"extra{number},id,name\nx,{number},n\ny,bad,n\n")
    folder.run()
    assert {(row["id"], row["_rescued"]) for row in folder.rows()} == {
        (number, f'{{"extra{number}":"x"}}') for number in range(1000)
    }
    assert len(folder.quarantine) == 1000


@pytest.mark.parametrize(
    ("text", "said"),
    [('[\n  {\n    "id": 1\n  }\n]\n', "multiLine"), ("not json\n", "schema:")],
)
def test_files_without_a_record_are_not_waited_for(text: str, said: str, spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, {"format": "json", "schema": None})
    folder.write("a.json", text)
    error = run(spark, folder.plan).errors[TABLE]
    assert isinstance(error, Terminal)
    assert "in/a.json" in error.message and f"`{text.splitlines()[0]}`" in error.message
    assert said in (error.hint or "")


@pytest.mark.deep
def test_lines_that_all_open_a_quote_cost_no_more_than_others(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(spark, tmp_path, {"format": "csv", "schema": "a STRING, b STRING"})
    folder.write("a.csv", 'a","\n' * 100_000 + '1,"x\ny"\n2,z\n')
    start = time.monotonic()
    lines = lines_of(folder).read(["in/a.csv"], 1)
    assert lines.count() == 100_002
    assert time.monotonic() - start < 20
    last = lines.where("__row >= 100000").select("value", "__row").collect()
    assert [(row[0], row[1]) for row in last] == [('1,"x\ny"', 100_000), ("2,z", 100_002)]
