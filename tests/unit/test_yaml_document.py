from __future__ import annotations

import pytest

from penstock.spec.document import parse


def test_every_value_and_every_key_knows_its_place() -> None:
    document = parse("a: 1\nb:\n  - x\n  - {c: d}\n", "f.yml")
    assert document.tree == {"a": 1, "b": ["x", {"c": "d"}]}
    assert document.position(("a",)) == (1, 4)
    assert document.position(("a",), at_key=True) == (1, 1)
    assert document.position(("b", 0)) == (3, 5)
    assert document.position(("b", 1, "c")) == (4, 9)


def test_a_step_that_only_a_model_knows_is_left_out() -> None:
    document = parse("a:\n  - x\n", "f.yml")
    assert document.position(("a", "names", 0)) == (2, 5)


@pytest.mark.parametrize("word", ["on", "off", "yes", "no", "y", "N", "2026-01-01", "1:30", "0x1F", "1e", "=", ".inf"])
def test_only_true_and_false_are_booleans_and_dates_stay_text(word: str) -> None:
    assert parse(f"a: {word}", "f.yml").tree == {"a": word}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-2", -2),
        ("200_000", 200000),
        ("0.5", 0.5),
    ],
)
def test_plain_words_of_json_have_their_values(word: str, value: object) -> None:
    assert parse(f"a: {word}", "f.yml").tree == {"a": value}


def test_quotes_make_text() -> None:
    assert parse("a: '12'\nb: \"true\"", "f.yml").tree == {"a": "12", "b": "true"}


def test_keys_are_text() -> None:
    assert parse("on: 1\n0: 2\ntrue: 3", "f.yml").tree == {"on": 1, "0": 2, "true": 3}


def test_a_key_that_is_given_twice_is_an_error_at_the_second() -> None:
    document = parse("a: 1\nb: 2\na: 3\n", "f.yml")
    (problem,) = document.problems
    assert (problem.line, problem.column) == (3, 1)
    assert "first in line 1" in problem.message


@pytest.mark.parametrize(
    ("text", "line"),
    [("a: [1, 2\nb: 3\n", 2), ("a: b: c\n", 1), ("a:\n\t- x\n", 2), ("a: *nowhere\n", 1), ("a: 1\n---\nb: 2\n", 2)],
)
def test_a_syntax_error_has_its_line_and_a_hint(text: str, line: int) -> None:
    (problem,) = parse(text, "f.yml").problems
    assert problem.line == line
    assert "not YAML" in problem.message
    assert problem.hint


def test_tabs_are_named_as_the_cause() -> None:
    (problem,) = parse("a:\n\tb: 1\n", "f.yml").problems
    assert "tabs" in (problem.hint or "")


def test_a_control_character_has_its_place() -> None:
    (problem,) = parse("a: 1\nb: x\x07\n", "f.yml").problems
    assert (problem.line, problem.column) == (2, 5)


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system [echo]", "!!python/name:os.system x", "!mine {a: 1}", "!!set {a}"]
)
def test_no_tag_makes_an_object(tag: str) -> None:
    document = parse(f"a: {tag}", "f.yml")
    assert document.tree == {"a": None}
    assert "is not allowed" in document.problems[0].message


def test_aliases_and_merges_are_read() -> None:
    document = parse("a: &x {b: 1, c: 2}\nd: *x\ne: {<<: *x, c: 3}\n", "f.yml")
    assert document.tree == {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 2}, "e": {"c": 3, "b": 1}}


def test_a_merge_inherits_what_its_source_inherits() -> None:
    document = parse("a: &a {x: 1}\nb: &b {<<: *a, y: 2}\nc: {<<: *b, z: 3}\n", "f.yml")
    assert document.problems == []
    assert document.tree["c"] == {"z": 3, "y": 2, "x": 1}
    assert document.position(("c", "x"), at_key=True) == (1, 8)


def test_the_nearest_of_the_inherited_values_wins() -> None:
    text = "a: &a {x: a, y: a, z: a}\nb: &b {<<: *a, y: b}\nc: &c {z: c}\nd: {<<: [*b, *c], w: d}\ne: {<<: [*c, *b]}\n"
    tree = parse(text, "f.yml").tree
    assert tree["d"] == {"w": "d", "y": "b", "x": "a", "z": "a"}
    assert tree["e"] == {"z": "c", "y": "b", "x": "a"}


@pytest.mark.parametrize(
    ("text", "place"), [("a: &a {<<: *a, x: 1}\n", (1, 8)), ("a: &a {x: &b {<<: *a, z: 1}, <<: *b}\n", (1, 15))]
)
def test_a_merge_of_itself_is_refused(text: str, place: tuple[int, int]) -> None:
    problems = parse(text, "f.yml").problems
    assert any("endless" in problem.message and (problem.line, problem.column) == place for problem in problems)


def test_merges_of_merges_do_not_fill_the_memory() -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 12)]
    assert any("endless" in problem.message for problem in parse("\n".join(lines), "f.yml").problems)


def test_an_alias_of_itself_ends() -> None:
    assert "endless" in parse("a: &x [*x]\n", "f.yml").problems[0].message


def test_aliases_of_aliases_do_not_fill_the_memory() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "endless" in parse("\n".join(lines), "f.yml").problems[0].message


@pytest.mark.parametrize(
    "reference",
    [
        "${env:X}",
        "${env:X:-127.0.0.1:9092}",
        "${env:X:-a:1,b:2}",
        "${file:/run/secrets/kafka}",
        "$${env:X}",
        "${env:X:-[#]}",
    ],
)
def test_a_reference_needs_no_quotes_within_braces(reference: str) -> None:
    document = parse(
        f"a: {{b: {reference}, c: x-{reference}-y, d: ['{reference}', \"{reference}\"]}}\ne: {reference}\n", "f.yml"
    )
    assert document.problems == []
    whole = {"b": reference, "c": f"x-{reference}-y", "d": [reference, reference]}
    assert document.tree == {"a": whole, "e": reference}
    assert document.position(("a", "c")) == (1, 5 + len("b: , ") + len(reference) + len("c: "))


def test_a_reference_that_is_not_closed_does_not_swallow_what_follows() -> None:
    assert parse('{a: "${env:X", b: 1}', "f.yml").tree == {"a": "${env:X", "b": 1}


def test_absurd_nesting_is_a_problem_of_the_file() -> None:
    document = parse("name: x\nx: " + "[" * 3000 + "]" * 3000, "penstock.yml")
    assert [problem.message for problem in document.problems] == ["it is nested hundreds of levels deep"]
