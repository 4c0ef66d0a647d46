"""`from: {kafka: …}`: which topics a table lands, and where it starts."""

from __future__ import annotations

import re
import warnings
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from penstock.spec.base_model import (
    Finding,
    Referenced,
    SourceFrom,
    SourceStart,
    SpecModel,
    did_you_mean,
    quote_value,
    refuse,
    wrong,
)
from penstock.spec.kafka_cluster import client_options
from penstock.spec.quantity import Instant

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_TOPIC_RULE = "a topic has 1 to 249 letters, digits, dots, underscores or dashes"
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
        raise wrong(f"{quote_value(value)} is not a regular expression{detail}", hint) from None
    except FutureWarning:
        raise wrong(
            f"{quote_value(value)}: Java reads '[[' and '&&' within a set otherwise", "escape them: \\[ \\&"
        ) from None
    if unsupported := _PYTHON_ONLY.search(value):
        raise wrong(
            f"{quote_value(value)}: Java does not know '{unsupported[0]}'", "write the group as (...) or (?:...)"
        )
    bare = _NO_QUANTIFIER.sub("", value)
    if "{" in _QUANTIFIER.sub("", bare):
        raise wrong(
            f"{quote_value(value)}: '{{' must begin a count such as {{2}} or {{2,5}}", "escape a plain one: \\{"
        )
    return value


class Topics(SpecModel):
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
    def _check_names_or_pattern(self) -> Topics:
        if bool(self.names) == (self.pattern is not None):
            raise wrong("which topics?", f"write {self.shape}")
        return self

    def covers(self, topic: str) -> bool:
        return topic in self.names if self.pattern is None else re.fullmatch(self.pattern, topic) is not None

    def __str__(self) -> str:
        return f"/{self.pattern}/" if self.pattern is not None else ", ".join(self.names)


def topic_names(names: list[Any], *, single: bool) -> tuple[str, ...]:
    if not names:
        raise wrong("the list of topics is empty", "name at least one topic")
    findings: list[Finding] = []
    names_so_far: set[str] = set()
    for index, name in enumerate(names):
        path = () if single else (index,)
        if not isinstance(name, str):
            hint = f"put it in quotes: '{quote_value(name)}'" if isinstance(name, int) else "write its name"
            findings.append(Finding(path, f"{quote_value(name)} is not the name of a topic", hint))
        elif not _TOPIC.fullmatch(name) or name in (".", ".."):
            is_pattern = any(sign in name for sign in "*+?[]()^$|\\")
            hint = f'for a pattern write {{pattern: "{name}"}}' if is_pattern else _TOPIC_RULE
            findings.append(Finding(path, f"{quote_value(name)} is not the name of a topic", hint))
        elif name in names_so_far:
            findings.append(Finding(path, f"the topic {quote_value(name)} is given twice", "keep one of them"))
        else:
            names_so_far.add(name)
    refuse(findings)
    return tuple(str(name) for name in names)


def _max_per_trigger(value: Any) -> Any:
    if isinstance(value, str) and value != "unlimited" and not value.strip().isdecimal():
        raise wrong(f"{quote_value(value)} is not a number of records", "write max_per_trigger: 200000, or unlimited")
    if isinstance(value, str) and value != "unlimited":
        return int(value)
    if isinstance(value, bool | float) or (isinstance(value, int) and value < 1):
        raise wrong(f"{quote_value(value)} is not a number of records", "write 1 or more, or unlimited")
    return value


MaxPerTrigger = Annotated[int | Literal["unlimited"], BeforeValidator(_max_per_trigger)]


def _starting_offsets(value: Any) -> dict[str, dict[int, int]]:
    hint = "write starting: {offsets: {topic: {0: 1200, 1: 900}}} (-2 is the earliest, -1 the latest)"
    if not isinstance(value, dict) or not value:
        raise wrong(f"{quote_value(value)} does not give offsets per topic", hint)
    findings: list[Finding] = []
    offsets_by_topic: dict[str, dict[int, int]] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, dict) or not partitions:
            findings.append(Finding((topic,), f"{quote_value(partitions)} does not give offsets per partition", hint))
            continue
        for partition, offset in partitions.items():
            path = (topic, partition)
            if not str(partition).isdecimal():
                findings.append(
                    Finding(path, f"{quote_value(partition)} is not the number of a partition", hint, at_key=True)
                )
            elif (number := _integer(offset)) is None or number < -2:
                findings.append(Finding(path, f"{quote_value(offset)} is not an offset", "write 0 or more, -2 or -1"))
            else:
                offsets_by_topic.setdefault(str(topic), {})[int(partition)] = number
    refuse(findings)
    return offsets_by_topic


def _integer(value: Any) -> int | None:
    if isinstance(value, bool | float):
        return None
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


class Starting(SourceStart):
    at: Literal["earliest", "latest"] | None = None
    offsets: Annotated[dict[str, dict[int, int]], BeforeValidator(_starting_offsets)] | None = None
    timestamp: Instant | None = None

    starts: ClassVar[str] = "topic"
    shape: ClassVar[str] = "earliest, latest, {offsets: {topic: {0: 1200}}} or {timestamp: 2026-01-01T00:00:00Z}"


class KafkaFrom(SourceFrom):
    """Topics of one cluster. Without `cluster` it is the one under the top-level `kafka:`."""

    kafka: Topics = Field(examples=["orders"])
    cluster: str | None = Field(default=None, examples=["eu"])
    starting: Starting = Starting(at="earliest")
    max_per_trigger: MaxPerTrigger | None = None
    min_partitions: int | None = Field(default=None, ge=1)
    options: Annotated[dict[str, str], BeforeValidator(client_options)] = Field(default={})

    kind: ClassVar[str] = "kafka"
    of_topics: ClassVar[bool] = True
    shape: ClassVar[str] = "from: {kafka: topic}"

    @model_validator(mode="after")
    def _check_offset_topics(self) -> KafkaFrom:
        findings = []
        for topic in self.starting.offsets or {}:
            if not self.kafka.covers(topic):
                hint = did_you_mean(topic, self.kafka.names) if self.kafka.names else "the pattern does not match it"
                message = f"offsets are given for the topic '{topic}', which this table does not read"
                findings.append(Finding(("starting", "offsets", topic), message, hint, at_key=True))
        refuse(findings)
        return self
