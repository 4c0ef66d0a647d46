"""Which topics a table lands: one, several, or all that match a pattern."""

from __future__ import annotations

import re
import warnings
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from penstock.spec.finding import Finding, Referenced, Wrong, shown, wrong
from penstock.spec.part import Part

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_RULE = "a topic has 1 to 249 letters, digits, dots, underscores or dashes"
_PYTHON_ONLY = re.compile(r"\(\?(P[<=>]|\(|#|[aLu])")
_QUANTIFIER = re.compile(r"\{\d+(,\d*)?\}")
_NO_QUANTIFIER = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)


def _pattern(value: Any) -> Any:
    """A regular expression that Java (Spark, while reading) and Python (`status`, `verify`) read alike."""
    hint = 'write a regular expression that the whole topic name matches: {pattern: "events-.*"}'
    if not isinstance(value, str):
        return value
    if not value:
        raise wrong("the pattern is empty", hint)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # a nested set: Java gives it another meaning
            re.compile(value)
    except re.error as error:
        detail = "" if isinstance(value, Referenced) else f": {error.msg} at {error.pos}"
        raise wrong(f"{shown(value)} is not a regular expression{detail}", hint) from None
    except FutureWarning:
        raise wrong(
            f"{shown(value)}: Java reads '[[' and '&&' within a set otherwise", "escape them: \\[ \\&"
        ) from None
    if found := _PYTHON_ONLY.search(value):
        raise wrong(f"{shown(value)}: Java does not know '{found[0]}'", "write the group as (...) or (?:...)")
    bare = _NO_QUANTIFIER.sub("", value)
    if "{" in _QUANTIFIER.sub("", bare):
        raise wrong(f"{shown(value)}: '{{' must begin a count such as {{2}} or {{2,5}}", "escape a plain one: \\{")
    return value


class Topics(Part):
    """`orders`, `[orders, refunds]` or `{pattern: "events-.*"}`: exactly one of `names` and `pattern` is set."""

    names: tuple[str, ...] = ()
    pattern: Annotated[str, BeforeValidator(_pattern)] | None = Field(default=None, examples=['"events-.*"'])

    python_only: ClassVar[frozenset[str]] = frozenset({"names"})
    shape: ClassVar[str] = 'a topic, a list of topics, or {pattern: "events-.*"}'

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        if isinstance(data, str):
            return {"names": topic_names([data], single=True)}
        if isinstance(data, list | tuple):
            return {"names": topic_names(list(data), single=False)}
        return data

    @model_validator(mode="after")
    def _names_or_pattern(self) -> Topics:
        if bool(self.names) == (self.pattern is not None):
            raise wrong("which topics?", f"write {self.shape}")
        return self

    def covers(self, topic: str) -> bool:
        return topic in self.names if self.pattern is None else re.fullmatch(self.pattern, topic) is not None

    def __str__(self) -> str:
        return f"/{self.pattern}/" if self.pattern is not None else ", ".join(self.names)


def topic_names(names: list[Any], *, single: bool) -> tuple[str, ...]:
    findings: list[Finding] = []
    if not names:
        raise wrong("the list of topics is empty", "name at least one topic")
    seen: set[str] = set()
    for index, name in enumerate(names):
        path = () if single else (index,)
        if not isinstance(name, str):
            hint = f"put it in quotes: '{shown(name)}'" if isinstance(name, int) else "write its name"
            findings.append(Finding(path, f"{shown(name)} is not the name of a topic", hint))
        elif not _TOPIC.fullmatch(name) or name in (".", ".."):
            wanted = any(sign in name for sign in "*+?[]()^$|\\")
            hint = f'for a pattern write {{pattern: "{name}"}}' if wanted else _RULE
            findings.append(Finding(path, f"{shown(name)} is not the name of a topic", hint))
        elif name in seen:
            findings.append(Finding(path, f"the topic {shown(name)} is given twice", "keep one of them"))
        else:
            seen.add(name)
    if findings:
        raise Wrong(findings)
    return tuple(str(name) for name in names)
