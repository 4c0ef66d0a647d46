"""SQL cut into tokens as Spark's lexer cuts it: enough to know what is text, what is a comment and what is neither."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["word", "quoted", "string", "sign", "broken"]
_SPACE = re.compile(r"\s+|--(?:\\\r?\n|[^\r\n])*")
_COMMENT = re.compile(r"/\*(?!\+)")  # /*+ is a hint, and so a part of the statement
_WITHIN_COMMENT = re.compile(r"/\*(?!\+)|\*/")
_TOKENS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("string", re.compile(r"[rR](?:'[^']*'|\"[^\"]*\")")),  # raw: a backslash is a backslash
    ("string", re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"", re.DOTALL)),
    ("quoted", re.compile(r"`(?:[^`]|``)*`")),
    ("broken", re.compile(r"[rR]?['\"`].*", re.DOTALL)),
    ("word", re.compile(r"\w+")),
    ("sign", re.compile(r".", re.DOTALL)),
)


@dataclass(frozen=True)
class Token:
    kind: Kind
    """word: a keyword, a name or a number. quoted: a name in backquotes. broken: begun, and not closed."""
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def name(self) -> str:
        """What a word or a quoted name means."""
        return self.text[1:-1].replace("``", "`") if self.kind == "quoted" else self.text


def tokens(text: str) -> Iterator[Token]:
    """Comments and white space are left out. A broken token, which is the rest of the text, comes last."""
    at = 0
    while at < len(text):
        if found := _SPACE.match(text, at):
            at = found.end()
        elif _COMMENT.match(text, at):
            end = _comment_end(text, at)
            if end is None:
                yield Token("broken", text[at:], at)
                return
            at = end
        else:
            kind, found = next((kind, found) for kind, token in _TOKENS if (found := token.match(text, at)))
            yield Token(kind, found[0], at)
            at = found.end()


def _comment_end(text: str, start: int) -> int | None:
    """Comments may hold comments. None: it is not closed."""
    depth = 0
    for found in _WITHIN_COMMENT.finditer(text, start):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return found.end()
    return None
