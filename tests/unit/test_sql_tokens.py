"""SQL cut into tokens, as Spark's lexer cuts it."""

from __future__ import annotations

import random

import pytest

from penstock.sql.statement import split, tokens


def cut(text: str) -> list[str]:
    return [token.text for token in tokens(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b @ 'x@y' @", ["a", ".", "b", "@", "'x@y'", "@"]),
        (r"'it\'s' b", [r"'it\'s'", "b"]),
        ("'it''s' b", ["'it''s'", "b"]),
        (r"r'\' b", [r"r'\'", "b"]),
        (r'R"\" b', [r'R"\"', "b"]),
        ("bar'x'", ["bar", "'x'"]),
        ("'two\nlines' b", ["'two\nlines'", "b"]),
        ("`a``b.c`.d", ["`a``b.c`", ".", "d"]),
        ("a -- b ' c\nd", ["a", "d"]),
        ("a -- b \\\n still\nd", ["a", "d"]),
        ("a /* b ' /* c */ d */ e", ["a", "e"]),
        ("a--", ["a"]),
        ("/*+ x */ 1", ["/", "*", "+", "x", "*", "/", "1"]),
        ("größe_1 = 2", ["größe_1", "=", "2"]),
    ],
)
def test_text_comments_and_quoted_names_are_told_apart(text: str, expected: list[str]) -> None:
    assert cut(text) == expected


@pytest.mark.parametrize("text", ["'abc", '"abc', r"'abc\'", "`abc", "/* abc", "/* /* */", "r'abc"])
def test_what_is_not_closed_is_broken_up_to_the_end(text: str) -> None:
    *_, last = tokens(f"a {text}")
    assert (last.kind, last.text) == ("broken", text)


def test_tokens_stand_where_they_say_and_only_blanks_and_comments_lie_between() -> None:
    chance = random.Random(1)
    for _ in range(3000):
        text = "".join(chance.choices("ab.@;'\"`\\ \n-/*+r1$(", k=chance.randint(0, 20)))
        at = 0
        for token in tokens(text):
            assert text[token.start : token.end] == token.text and token.text
            between = text[at : token.start].strip()
            assert not between or between.startswith(("--", "/*")), (text, between)
            at = token.end


def test_statements_end_at_a_semicolon_that_is_neither_text_nor_comment() -> None:
    assert split("select ';' -- ;\n; select 2; sel") == (["select ';' -- ;\n;", " select 2;"], " sel")
    assert split("select 1;\n -- that is all\n") == (["select 1;"], "")
    assert split("select 'a;") == ([], "select 'a;")
