"""What a table makes of its rows, as written: sources, decode, transform, lookups, expectations, layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.plan.build import build_plan
from tests.unit.project_file import HEAD, load, one, place, problems, table

SILVER = HEAD + "tables:\n  bronze.orders: {from: {kafka: orders}}\n  silver.orders:\n"


def silver(*lines: str) -> str:
    """A project with bronze.orders and silver.orders, whose definition is `lines`: the first is line 7."""
    return SILVER + "".join(f"    {line}\n" for line in lines)


def test_a_table_reads_another(tmp_path: Path) -> None:
    project = load(
        tmp_path, silver("from: {table: bronze.orders, where: partition = 1, max_files: 10, max_bytes: 1GiB}")
    )
    source = project.tables["silver.orders"].source
    assert (source.table, source.max_files, source.max_bytes) == ("bronze.orders", 10, 1024**3)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("source", "said", "hint"),
    [
        ("{table: bronze.ordres}", "there is no table 'bronze.ordres'", "did you mean 'bronze.orders'?"),
        ("{kafka: a, table: bronze.orders}", "one source, not kafka and table", "make a table of each"),
        ("{tabel: bronze.orders}", "where do the rows come from", "did you mean 'table'?"),
        ("{}", "where do the rows come from", "write from:"),
        ("orders", "'orders' is not what belongs here", "write from:"),
        ("{table: bronze.orders, starting: now}", "'now' is not where", "{version: 10}"),
        ("{table: bronze.orders, starting: {version: -1}}", "too small", "0 or more"),
        ("{table: bronze.orders, max_per_trigger: 5}", "unknown key 'max_per_trigger'", ""),
        ("{files: ./in}", "'format' is missing", "write format: json"),
        ("{changes: bronze.orders}", "keeps no change feed", "change_feed: true"),
        ("{delta: ./x, ignore_delets: true}", "unknown key", "did you mean 'ignore_deletes'?"),
    ],
)
def test_a_source_that_cannot_be_is_refused(source: str, said: str, hint: str, tmp_path: Path) -> None:
    problem = one(problems(tmp_path, silver(f"from: {source}")))
    assert said in problem.message
    assert hint in (problem.hint or "")
    assert problem.line == 7 or (problem.line, problem.column) == (6, 3)


def test_a_circle_is_refused(tmp_path: Path) -> None:
    text = HEAD + "tables:\n  a: {from: {table: c}}\n  b: {from: {table: a}}\n  c: {from: {table: b}}\n"
    assert "a circle: a -> c -> b -> a" in one(problems(tmp_path, text)).message


@pytest.mark.parametrize(("emit", "refused"), [("updates", True), ("complete", True), ("final", False)])
def test_a_table_whose_rows_change_cannot_be_read_as_it_grows(emit: str, refused: bool, tmp_path: Path) -> None:
    window = ", window: {time: ts, every: 1 hour}" + (", watermark: 1 hour" if emit == "final" else "")
    text = silver(
        "from: {table: bronze.orders}",
        f"aggregate: {{keys: [a], metrics: {{n: count(*)}}, emit: {emit}{window}}}",
    )
    found = problems(tmp_path, text + "  gold.orders: {from: {table: silver.orders}}\n") if refused else []
    if refused:
        assert "recomputes its groups in place" in one(found).message
    else:
        assert load(tmp_path, text + "  gold.orders: {from: {table: silver.orders}}\n")


def test_columns_and_payload_are_for_topics(tmp_path: Path) -> None:
    found = problems(tmp_path, silver("from: {table: bronze.orders}", "payload: binary", "columns: {value: x}"))
    assert [problem.line for problem in found] == [8, 9]


@pytest.mark.parametrize(
    ("decode", "said"),
    [
        ("{json: value}", "needs a schema"),
        ("{json: value, csv: value, schema: a INT}", "exactly one of"),
        ("{schema: a INT}", "exactly one of"),
        ("{json: value, schema: schemas/x.ddl}", "there is no file 'schemas/x.ddl'"),
        ("{json: value, schema: a BIGNIT}", "BIGNIT is not a type"),
        ("{csv: value, schema: a INT, rescue: true}", "'rescue' keeps the unknown fields of JSON"),
        ("{json: value, schema: a INT, options: {mode: FAILFAST}}", "'options' are those of CSV lines"),
        ("{avro: value}", "not in this version"),
        ("{debezium: value}", "needs a schema"),
        ("{debezium: value, json: value, schema: a INT}", "exactly one of json, csv, text and debezium"),
        ("{debezium: value, schema: a INT, times: seconds}", "'seconds'"),
        ("{debezium: value, schema: a INT, decimals: precise}", "'precise'"),
        ("{debezium: value, schema: a INT, before: all}", "'all'"),
        ("{debezium: value, schema: a INT, options: {sep: x}}", "'options' are those of CSV lines"),
        ("{debezium: value, schema: 'a INT, _OP STRING'}", "the column '_OP' is what decode itself adds"),
        ("{debezium: value, schema: a INT, keep: [offset, _position]}", "'_position' is what decode itself calls"),
        ("{json: value, schema: a INT, times: micros}", "'times' is about Debezium's records"),
        ("{csv: value, schema: a INT, before: full}", "'before' is about Debezium's records"),
    ],
)
def test_a_decode_that_cannot_be_is_refused(decode: str, said: str, tmp_path: Path) -> None:
    found = problems(tmp_path, silver("from: {table: bronze.orders}", f"decode: {decode}"))
    assert any(said in problem.message for problem in found), found
    assert all(problem.line == 8 for problem in found)


def test_a_decode_of_debezium_is_planned_with_what_was_written(tmp_path: Path) -> None:
    written = "{debezium: value, schema: a INT, times: millis, before: full, rescue: true, keep: [offset]}"
    plan = build_plan(load(tmp_path, silver("from: {table: bronze.orders}", f"decode: {written}")))
    decode = plan.tables[1].stages.decode  # type: ignore[union-attr]
    assert decode is not None
    assert (decode.format, decode.column, decode.rescue, decode.keep) == ("debezium", "value", True, ("offset",))
    assert decode.options == {"times": "millis", "before": "full"}
    assert plan.tables[1].may_reject


def test_a_mistake_in_a_schema_file_is_told_with_its_own_place(tmp_path: Path) -> None:
    (tmp_path / "orders.ddl").write_text("id BIGINT,\namount DECIMAL(99,2)\n")
    problem = one(
        problems(tmp_path, silver("from: {table: bronze.orders}", "decode: {json: value, schema: orders.ddl}"))
    )
    assert "orders.ddl:2:8: DECIMAL(99, 2) cannot be" in problem.message
    assert place(problem) == (8, 35)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("clean", "does not name a function"),
        ("missing.py:clean", "there is no file 'missing.py'"),
        ("t.py:claen", "has no function 'claen'"),
        ("broken.py:f", "broken.py:1: "),
        ("t.py:none", "does not take the rows"),
    ],
)
def test_a_transform_that_cannot_be_is_refused(function: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("def clean(orders): ...\ndef none(): ...\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    problem = one(problems(tmp_path, silver("from: {table: bronze.orders}", f"transform: {function}")))
    assert said in problem.message
    assert problem.line == 8


def test_a_transform_takes_each_lookup_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("def clean(orders, customers): ...\ndef other(orders, clients): ...\n")
    lookups = "lookups: {customers: bronze.orders}"
    assert load(tmp_path, silver("from: {table: bronze.orders}", "transform: t.py:clean", lookups))
    problem = one(problems(tmp_path, silver("from: {table: bronze.orders}", "transform: t.py:other", lookups)))
    assert problem.hint == "write def other(orders, customers)"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["lookups: {c: bronze.orders}"], "lookups without a transform"),
        (["sql: SELECT 1", "transform: t.py:f"], "there is a transform and sql"),
        (["sql: SELECT 1", "lookups: {orders: bronze.orders}"], "what the rows of the table itself are called"),
        (["sql: SELECT 1", "lookups: {a-b: bronze.orders}"], "cannot name a lookup"),
        (["sql: SELECT 1", "lookups: {c: dim.customers}"], "there is no table 'dim.customers'"),
        (["expect: {name: a, check: b}"], "needs a list"),
        (["expect: [{name: a, check: b}, {name: a, check: c}]"], "there twice"),
        (["expect: [{name: a b, check: b}]"], "cannot name an expectation"),
        (["expect: [{name: a, check: b, action: quarantene}]"], "is not a action"),
        (["dedupe: {keys: [a], within: 7 days}"], "belong together"),
        (["write: {cluster_by: [a], partition_by: [b]}"], "not by both"),
        (["write: {schema: loose}"], "is not a schema mode"),
        (["write: {merge: {keys: [a]}}"], "'sequence' is missing"),
        (["write: {merge: {sequence: a}}"], "'keys' is missing"),
        (["write: {merge: {keys: [a, A], sequence: b}}"], "there twice"),
        (["write: {merge: {keys: [a], sequence: b, history: scd3}}"], "is not a way to keep history"),
        (["write: {merge: {keys: [a], sequence: b, time: c}}"], "since when a version is valid"),
        (["write: {merge: {keys: [a], sequence: b, columns: {except: [a]}}}"], "cannot be left out"),
        (["write: {merge: {keys: [a], sequence: b}, source: false}"], "keep their coordinates"),
        (["write: {merge: {keys: [a], sequence: b}}", "dedupe: {keys: [a]}"], "no dedupe of its own"),
        (["audit: {keys: [a]}"], "tells the changes of a table"),
    ],
)
def test_stages_that_do_not_fit_are_refused(lines: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("def f(rows): ...\n")
    found = problems(tmp_path, silver("from: {table: bronze.orders}", *lines))
    assert any(said in problem.message for problem in found), found


def test_a_key_alone_may_stand_without_a_list(tmp_path: Path) -> None:
    project = load(tmp_path, silver("from: {table: bronze.orders}", "dedupe: {keys: id}", "write: {partition_by: day}"))
    made = project.tables["silver.orders"]
    assert made.dedupe is not None
    assert (made.dedupe.keys, made.write.partition_by) == (("id",), ("day",))


def test_properties_are_part_of_write(tmp_path: Path) -> None:
    problem = one(problems(tmp_path, table("from: {kafka: orders}\nproperties: {owner: sales}")))
    assert "part of write" in (problem.hint or "")


@pytest.mark.parametrize(
    ("decode", "said", "hint"),
    [
        ("{csv: value, schema: id INT, new_fields: rescue}", "fields of JSON objects", "rejected"),
        ("{text: value, new_fields: ignore}", "fields of JSON objects", "remove it"),
        ("{debezium: value, schema: id INT, new_fields: add}", "times and decimals", "new_fields: rescue"),
        ("{json: value, schema: id INT, new_fields: ignore, rescue: true}", "keeps the unknown fields", "remove one"),
        ("{json: value, schema: id INT, new_fields: ad}", "'ad' is no", "add"),
        ("{csv: value, schema: id INT, options: {separator: ;}}", "'separator' is not an option", "sep"),
        ("{csv: value, schema: id INT, options: {header: 'true'}}", "'header' is not an option", "write one of"),
    ],
)
def test_what_becomes_of_new_fields_must_fit_the_format(decode: str, said: str, hint: str, tmp_path: Path) -> None:
    problem = one(problems(tmp_path, silver("from: {table: bronze.orders}", f"decode: {decode}")))
    assert said in problem.message
    assert hint in (problem.hint or "")
    assert problem.line == 8


def test_new_fields_that_become_columns_need_a_table_that_may_grow(tmp_path: Path) -> None:
    lines = ("from: {table: bronze.orders}", "decode: {json: value, schema: id INT, new_fields: add}")
    problem = one(problems(tmp_path, silver(*lines, "write: {schema: strict}")))
    assert (problem.line, problem.message) == (9, "new fields of the records would become columns")
    plan = build_plan(load(tmp_path, silver(*lines)))
    table = plan.table("silver.orders")
    assert table is not None and table.stages is not None and table.stages.decode is not None
    assert (table.write.schema, table.stages.decode.rescue) == ("evolve", True)
    assert table.added_columns_path == f"{plan.lake}/_penstock/schemas/silver.orders.json"


@pytest.mark.parametrize(
    ("decode", "definition"),
    [
        ("{json: value, schema: 'id BIGINT, a STRUCT<b: INT>'}", "d3fe242bf91de93b"),
        ("{json: value, schema: 'id BIGINT, a STRUCT<b: INT>', new_fields: ignore}", "d3fe242bf91de93b"),
        ("{json: value, schema: id BIGINT, rescue: true, keep: [offset]}", "a790e2d8be0e828a"),
        ("{json: value, schema: id BIGINT, new_fields: rescue, keep: [offset]}", "a790e2d8be0e828a"),
        ("{csv: value, schema: id BIGINT, options: {sep: ;}}", "ac1e997d5f2174b6"),
    ],
)
def test_a_definition_from_before_is_the_same(decode: str, definition: str, tmp_path: Path) -> None:
    text = HEAD + "tables:\n  bronze.o: {from: {kafka: o}}\n  silver.j:\n    from: {table: bronze.o}\n"
    table = build_plan(load(tmp_path, f"{text}    decode: {decode}\n")).table("silver.j")
    assert table is not None and table.definition == definition


@pytest.mark.parametrize("written", ["_metadata STRING", "_METADATA INT", "_change_type STRING", "_commıt_version INT"])
def test_columns_that_spark_or_the_change_feed_uses_are_refused(written: str, tmp_path: Path) -> None:
    lines = ("from: {table: bronze.orders}", f"decode: {{json: value, schema: 'id INT, {written}'}}")
    problem = one(problems(tmp_path, silver(*lines, "write: {change_feed: true}")))
    assert (problem.line, "keeps for itself" in problem.message) == (8, True)
    if not written.casefold().startswith("_meta"):
        assert load(tmp_path, silver(*lines))
    assert load(tmp_path, silver(*lines, "sql: SELECT id FROM orders"))
