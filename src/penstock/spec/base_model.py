"""The base of every model of the project file: frozen, no unknown keys, all problems collected at once, each with
its path."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True)
class Finding:
    """What is wrong with a value. Models raise FindingsError with all that they have; the loader turns the paths into
    lines and columns."""

    path: KeyPath
    message: str
    hint: str | None = None
    at_key: bool = False
    """Point at the key itself rather than at its value."""

    def below(self, prefix: KeyPath) -> Finding:
        return replace(self, path=(*prefix, *self.path))

    def __str__(self) -> str:
        path = ".".join(str(step) for step in self.path)
        text = f"{path}: {self.message}" if path else self.message
        return f"{text}\n  -> {self.hint}" if self.hint else text


class FindingsError(ValueError):
    """One or more findings; a ValueError so that pydantic collects it with the others."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = tuple(findings)
        super().__init__("\n".join(str(finding) for finding in self.findings))


def wrong(message: str, hint: str | None = None, *path: str | int, at_key: bool = False) -> FindingsError:
    return FindingsError([Finding(path, message, hint, at_key)])


def refuse(findings: Iterable[Finding]) -> None:
    """Raises FindingsError if there is any finding."""
    if findings := tuple(findings):
        raise FindingsError(findings)


class Referenced(str):
    """A value that came by reference (`${env:X}`). `written` is the text in the file, and all that may be shown."""

    written: str

    def __new__(cls, value: str, written: str) -> Referenced:
        referenced = super().__new__(cls, value)
        referenced.written = written
        return referenced


def quote_value(value: object) -> str:
    """A value as an error may show it: quoted, short, and never the value behind a reference."""
    if isinstance(value, Referenced):
        return f"'{value.written}'"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if not isinstance(value, str):
        return str(value)
    flat = " ".join(value.split()) if "\n" in value else value
    return f"'{flat}'" if len(flat) <= 80 else f"'{flat[:77]}...'"


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that was probably meant, in any case."""
    by_fold = {candidate.casefold(): candidate for candidate in choices}
    matches = difflib.get_close_matches(word.casefold(), list(by_fold), n=1, cutoff=0.6)
    return by_fold[matches[0]] if matches else None


def did_you_mean(word: str, choices: Sequence[str]) -> str:
    """A hint: the choice nearest to the word, else all of them."""
    suggestion = nearest(word, choices)
    return f"did you mean '{suggestion}'?" if suggestion else f"write one of: {', '.join(choices)}"


class SpecModel(BaseModel):
    """A mapping of the project file. Build one in Python with the same keys (`from` is called `source` there)."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,  # an input may be a secret
        validate_by_name=True,
        validate_by_alias=True,
    )
    later: ClassVar[Mapping[str, str]] = {}
    """Keys of coming versions -> what to do until then."""
    moved: ClassVar[Mapping[str, str]] = {}
    """Keys that belong elsewhere -> where to write them."""
    python_only: ClassVar[frozenset[str]] = frozenset()
    """Fields that a file cannot give: it writes them in a shorter way, or the loader sets them."""
    lists: ClassVar[tuple[str, ...]] = ()
    """Keys whose value is a list, for which a single entry may be written as text."""
    shape: ClassVar[str] = "a mapping"
    """What may be written here, for errors about anything else."""

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        """Expands a short form to the mapping that it stands for."""
        return data

    @classmethod
    def look(cls, data: Mapping[str, Any]) -> list[Finding]:
        """Findings about keys and names as written, reported together with those about the values."""
        return []

    @model_validator(mode="wrap")
    @classmethod
    def _collect(cls, data: Any, handler: ModelWrapValidatorHandler[Self], info: ValidationInfo) -> Self:
        if isinstance(data, cls):
            return data
        from_file = info.context is not None
        findings: list[Finding] = []
        if from_file and isinstance(data, Mapping):
            findings = [cls._unknown_key(key) for key in data if key in cls.python_only]
            data = {key: value for key, value in data.items() if key not in cls.python_only}
        data = cls.normalise(data, info)
        if not isinstance(data, Mapping):
            message = "there is nothing here" if data is None else f"{quote_value(data)} is not what belongs here"
            raise wrong(message, f"write {cls.shape}", at_key=data is None)
        accepted = cls._allowed_keys(from_file=from_file)
        findings += [cls._unknown_key(str(key)) for key in data if key not in accepted]
        findings += cls.look(data)
        model: Self | None = None
        try:
            # A key without a value counts as absent: people comment out what is below it.
            model = handler(
                {
                    key: [value] if key in cls.lists and isinstance(value, str) else value
                    for key, value in data.items()
                    if key in accepted and value is not None
                }
            )
        except ValidationError as error:
            findings += cls.findings(error)
        refuse(findings)
        assert model is not None
        return model

    @classmethod
    def _allowed_keys(cls, *, from_file: bool) -> set[str]:
        """The keys that are allowed; a field with an alias may be given by its name in Python only."""
        accepted = {field.alias or name for name, field in cls.model_fields.items()}
        return accepted if from_file else accepted | set(cls.model_fields)

    @classmethod
    def _file_keys(cls) -> list[str]:
        return [field.alias or name for name, field in cls.model_fields.items() if name not in cls.python_only]

    @classmethod
    def _unknown_key(cls, key: str) -> Finding:
        if key in cls.later:
            return Finding((key,), f"'{key}' is not in this version of Penstock yet", cls.later[key], at_key=True)
        if key in cls.moved:
            return Finding((key,), f"'{key}' does not belong here", cls.moved[key], at_key=True)
        return Finding((key,), f"unknown key '{key}'", did_you_mean(key, cls._file_keys()), at_key=True)

    @classmethod
    def findings(cls, error: ValidationError) -> list[Finding]:
        """The findings of a validation error of this model."""
        findings: list[Finding] = []
        for detail in error.errors(include_url=False):
            path: KeyPath = detail["loc"]
            cause = detail.get("ctx", {}).get("error")
            if isinstance(cause, FindingsError):
                findings += [finding.below(path) for finding in cause.findings]
            else:
                findings.append(
                    _translate_error(path, detail["type"], detail["input"], detail.get("ctx", {}), detail["msg"], cls)
                )
        return findings


def _translate_error(
    path: KeyPath, kind: str, value: Any, context: Mapping[str, Any], message: str, model: type[SpecModel]
) -> Finding:
    """pydantic's own errors, in Penstock's words."""
    name = str(path[-1]) if path else ""
    match kind:
        case "missing":
            return Finding(path[:-1], f"'{name}' is missing", _example(name, model), at_key=True)
        case "string_type" if isinstance(value, int | float):
            return Finding(
                path, f"'{name}' needs text, not {quote_value(value)}", f"put it in quotes: '{quote_value(value)}'"
            )
        case "string_type":
            return Finding(path, f"'{name}' needs text, not {quote_value(value)}", _example(name, model))
        case "int_type" | "int_parsing" | "int_from_float":
            return Finding(
                path, f"{quote_value(value)} is not a whole number", f"write a number, for example {name}: 1000"
            )
        case "greater_than_equal":
            return Finding(path, f"{quote_value(value)} is too small", f"write {context['ge']} or more")
        case "string_too_short":
            return Finding(path, f"'{name}' is empty", _example(name, model))
        case "dict_type":
            return Finding(path, f"'{name}' needs a mapping, not {quote_value(value)}", _example(name, model))
    return Finding(path, message, _example(name, model))


def _example(name: str, model: type[SpecModel]) -> str | None:
    for field_name, field in model.model_fields.items():
        if name in (field_name, field.alias) and field.examples:
            return f"write {name}: {field.examples[0]}"
    return None


def caller() -> str:
    """file:line of the code that builds a part in Python: the first frame outside pydantic and this package."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("pydantic", "penstock"):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def one_of(value: Any, name: str, choices: tuple[str, ...], *, upper: bool = False) -> str:
    """One of a few words; with `upper`, in upper or lower case."""
    word = value.upper() if upper and isinstance(value, str) else value
    if isinstance(word, str) and word in choices:
        return str(word)
    raise wrong(f"{quote_value(value)} is not a {name}", did_you_mean(str(quote_value(value)).strip("'"), choices))


def choice(name: str, words: Any, *, upper: bool = False) -> BeforeValidator:
    """The validator of a `Literal` of words."""
    return BeforeValidator(lambda value: one_of(value, name, get_args(words), upper=upper))


def text_values(value: Any, name: str) -> dict[str, str]:
    """A mapping whose values are text; numbers and true or false are taken as they are written."""
    if not isinstance(value, Mapping):
        raise wrong(f"'{name}' needs a mapping, not {quote_value(value)}", f"write {name}: {{key: value}}")
    findings, texts = [], {}
    for key, item in value.items():
        if isinstance(item, bool):
            texts[str(key)] = "true" if item else "false"
        elif isinstance(item, str | int | float):
            texts[str(key)] = item if isinstance(item, str) else str(item)
        else:
            findings.append(
                Finding((str(key),), f"'{key}' needs a value, not {quote_value(item)}", "write one word or number")
            )
    refuse(findings)
    return texts


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Both from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


class SourceStart(SpecModel):
    """Where a source without a position begins: exactly one of its fields is set. `at` is a word."""

    python_only: ClassVar[frozenset[str]] = frozenset({"at"})
    starts: ClassVar[str]
    """What begins there, in a word."""

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, str):
            return data
        if data not in ("earliest", "latest"):
            raise wrong(f"{quote_value(data)} is not where a {cls.starts} can start", f"write {cls.shape}")
        return {"at": str(data)}

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Self:
        if sum(getattr(self, name) is not None for name in type(self).model_fields) != 1:
            raise wrong("'starting' needs exactly one place to start", f"write {self.shape}", at_key=True)
        return self


class SourceFrom(SpecModel):
    """What a user writes under `from`; each kind of source has its own keys."""

    kind: ClassVar[str]
    """The key that names it. A plugin is registered under it."""
    of_topics: ClassVar[bool] = False
    """Its rows are records of topics: with key, value, headers, topic, partition, offset and timestamp."""

    @property
    def input_name(self) -> str:
        """What its rows are called in the SQL of the table."""
        return "input"

    @property
    def project_table(self) -> str | None:
        """The table of the project that is read."""
        return None
