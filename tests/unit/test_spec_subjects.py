"""`subjects` and `forget` as written: where a table says of whom its rows are."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from penstock.plan.build import build_plan
from penstock.plan.model import Plan
from penstock.plan.quarantine import subjects_in_input, subjects_in_quarantine
from penstock.plan.subjects import SubjectColumnPlan
from penstock.spec.base_model import SourceFrom
from penstock.spec.subjects import undeclared_subject_findings
from tests.unit.project_file import HEAD, check, load, one, place, problems, table

LAYERS = (
    HEAD
    + """\
tables:
  bronze.orders:
    from: {kafka: orders}
    columns: {value: payload}
    subjects: {customer: [{json: payload, path: $.customer.id}, key]}
  silver.orders:
    from: {table: bronze.orders}
    decode: {json: payload, schema: "customer STRUCT<id: BIGINT>, amount INT"}
    subjects: {customer: customer.id}
  gold.orders:
    from: {table: silver.orders}
    aggregate: {keys: [customer], metrics: {n: count(*)}}
"""
)


def plan(folder: Path, text: str = LAYERS, **env: str) -> Plan:
    return build_plan(load(folder, text, **env))


def test_places_are_columns_fields_and_paths_and_the_bytes_beside_them(tmp_path: Path) -> None:
    made = plan(tmp_path)
    bronze, silver = made.table("bronze.orders"), made.table("silver.orders")
    assert bronze is not None and silver is not None
    assert bronze.subjects == {
        "customer": (
            SubjectColumnPlan("payload", "$.customer.id"),
            SubjectColumnPlan("value_binary", "$.customer.id"),
            SubjectColumnPlan("key"),
            SubjectColumnPlan("key_binary"),
        )
    }
    assert silver.subjects == {"customer": (SubjectColumnPlan("customer.id"),)}
    assert subjects_in_input(silver).subjects == bronze.subjects and subjects_in_input(silver).headers == "headers"
    assert made.forget is not None and made.forget.folder == f"{made.lake}/_penstock/forget"
    assert silver.forget == made.forget


def test_a_quarantine_holds_records_by_the_names_that_it_gives_them(tmp_path: Path) -> None:
    silver = plan(tmp_path).table("silver.orders")
    assert silver is not None
    found = set(subjects_in_quarantine(silver)["customer"])
    assert {
        SubjectColumnPlan("value", "$.customer.id"),
        SubjectColumnPlan("value_binary", "$.customer.id"),
        SubjectColumnPlan("key"),
    } <= found
    assert SubjectColumnPlan("value", "$['customer']['id']") in found


def test_a_definition_is_the_same_with_and_without_them(tmp_path: Path) -> None:
    without = "\n".join(line for line in LAYERS.splitlines() if "subjects" not in line)
    before = {one.name: one.definition for one in plan(tmp_path, without).tables}
    assert {one.name: one.definition for one in plan(tmp_path).tables} == before


def test_without_subjects_nobody_looks_for_a_list(tmp_path: Path) -> None:
    made = plan(tmp_path, table("from: {kafka: orders}"))
    assert made.forget is None and made.tables[0].forget is None


@pytest.mark.parametrize(
    ("body", "said", "hint", "at"),
    [
        ("subjects: [customer]", "needs a mapping, not a list", "customer: customer_id", (7, 15)),
        ("subjects: {customer: valu}", "no column 'valu'", "did you mean 'value'?", (7, 26)),
        ("subjects: {'my customer': key}", "'my customer' cannot name a subject", "letters", (7, 16)),
        ("subjects: {customer: []}", "there is nothing here", "write a column", (7, 16)),
        ("subjects: {customer: $.id}", "a path, but of which column?", "{json: value, path: $.id}", (7, 26)),
        ("subjects: {customer: {json: value}}", "'json' and 'path' belong together", "path: $.customer_id", (7, 26)),
        ("subjects: {customer: {json: value, path: id}}", "'id' is not a path", "$.customer_id", (7, 46)),
        ("subjects: {customer: {json: value, path: $..id}}", "'$..id' is not a path", "$.customer_id", (7, 46)),
        ("subjects: {customer: {jsn: value, path: $.id}}", "unknown key 'jsn'", "did you mean 'json'?", (7, 27)),
        ("subjects: {customer: customer..id}", "does not name a column", "customer.id", (7, 26)),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, body: str, said: str, hint: str, at: tuple[int, int]
) -> None:
    found = problems(tmp_path, table(f"from: {{kafka: orders}}\n{body}"))
    assert said in found[0].message and hint in (found[0].hint or "") and place(found[0]) == at


@pytest.mark.parametrize("kind", ["partition_by", "cluster_by"])
def test_a_subject_is_no_column_to_lay_a_table_out_by(tmp_path: Path, kind: str) -> None:
    text = f"from: {{kafka: orders}}\nwrite: {{{kind}: [topic]}}\nsubjects: {{customer: topic}}"
    found = one(problems(tmp_path, table(text)))
    assert "would keep that in clear" in found.message and place(found)[0] == 7


def test_a_subject_is_not_among_the_statistics_that_a_user_asks_for(tmp_path: Path) -> None:
    properties = "{delta.dataSkippingStatsColumns: 'offset,key'}"
    text = f"from: {{kafka: orders}}\nwrite: {{properties: {properties}}}\nsubjects: {{customer: key}}"
    assert "statistics keep it in clear" in one(problems(tmp_path, table(text))).message


def test_a_table_made_of_one_with_subjects_that_says_nothing_of_them_is_a_caution(tmp_path: Path) -> None:
    silent = LAYERS.replace("    subjects: {customer: customer.id}\n", "")
    found = check(tmp_path, silent)
    assert not found.problems
    (caution,) = found.warnings
    assert "bronze.orders says where it holds customer" in caution.message and caution.line == 9
    assert not check(tmp_path, LAYERS).warnings


class DatabaseFrom(SourceFrom):
    """A plugin's, with a key that Penstock uses too."""

    database: str
    table: str

    kind: ClassVar[str] = "database"


def test_a_key_of_a_plugin_that_is_called_table_is_no_table_of_the_project(tmp_path: Path) -> None:
    tables = dict(load(tmp_path, LAYERS.replace("    subjects: {customer: customer.id}\n", "")).tables)
    assert [finding.path for finding in undeclared_subject_findings(tables)] == [("tables", "silver.orders")]
    source = DatabaseFrom(database="erp", table="bronze.orders")
    tables["silver.orders"] = tables["silver.orders"].model_copy(update={"source": source})
    assert not list(undeclared_subject_findings(tables))


def test_the_key_is_a_secret_that_is_long_enough(tmp_path: Path) -> None:
    text = LAYERS + "forget: {key: '${env:FORGET_KEY}'}\n"
    made = plan(tmp_path, text, FORGET_KEY="0123456789abcdef0123")
    assert made.forget is not None and made.forget.key is not None
    assert "0123456789" not in repr(made)
    short = one(problems(tmp_path, text, FORGET_KEY="12345"))
    assert "shorter than 16 characters" in short.message and "12345" not in short.message + (short.hint or "")
    clear = check(tmp_path, LAYERS + "forget: {key: '0123456789abcdef0123'}\n").warnings
    assert "written in the file in clear" in clear[0].message
