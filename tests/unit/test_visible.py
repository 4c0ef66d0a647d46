"""Texts of strangers on a terminal, and in a JSON document on one."""

from __future__ import annotations

import json
import random
import sys
import unicodedata

import pytest

from penstock.cli.console import visible, visible_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ü, 日本, 🙂", "plain, ü, 日本, 🙂"),
        ("red \x1b[31m", "red \\x1b[31m"),
        ("home \x1b]0;title\x07", "home \\x1b]0;title\\x07"),
        ("one\ntwo\r\tthree", "one\\ntwo\\r\\tthree"),
        ("c1 \x9b31m del \x7f nul \x00", "c1 \\x9b31m del \\x7f nul \\x00"),
        ("turned \u202eabc", "turned \\u202eabc"),
        ("hidden \u200b\ufeff line \u2028", "hidden \\u200b\\ufeff line \\u2028"),
        ("tag \U000e0041", "tag \\U000e0041"),
        ("filler \u3164 selector \ufe00\U000e0100", "filler \\u3164 selector \\ufe00\\U000e0100"),
        ("emoji \u2764\ufe0f", "emoji \u2764\ufe0f"),
        ("wide\u3000space", "wide\u3000space"),
    ],
)
def test_whatever_a_terminal_would_obey_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_no_text_leaves_anything_behind_that_is_not_seen() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    left = {unicodedata.category(one) for one in visible(every)}
    assert not [kind for kind in left if kind.startswith("C") or kind in ("Zl", "Zp")]


def test_a_json_document_stays_the_same_and_holds_nothing_that_a_terminal_obeys() -> None:
    chance = random.Random(7)
    for _ in range(200):
        text = "".join(chr(chance.choice((chance.randrange(0x300), chance.randrange(0x110000)))) for _ in range(40))
        document = {"value": text, "list": [text[:5]]}
        written = visible_json(json.dumps(document, indent=2, ensure_ascii=False))
        assert json.loads(written) == document
        assert all(one == "\n" or one.isprintable() or unicodedata.category(one) == "Zs" for one in written)
