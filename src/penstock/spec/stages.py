"""What happens to the rows of a batch: decode, transform, expect, dedupe."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from penstock.errors import SetupError
from penstock.spec.base_model import Finding, SpecModel, choice, did_you_mean, one_of, quote_value, refuse, wrong
from penstock.spec.files_source import NewFields
from penstock.spec.plugins import FORMATS, plugin, plugin_names
from penstock.spec.quantity import Duration
from penstock.spec.schema import Struct


@dataclass(frozen=True)
class FunctionReference:
    """A Python function that a table names, `transforms.py:clean_orders`, inspected without running it."""

    file: Path
    name: str
    parameters: tuple[str, ...]
    defaults: int
    """How many of the last parameters may be left out."""

    def accepts(self, argument_count: int) -> bool:
        return len(self.parameters) - self.defaults <= argument_count <= len(self.parameters)


def find_function(reference: str, root: Path) -> FunctionReference:
    """Raises FindingsError."""
    path, colon, name = reference.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise wrong(f"{quote_value(reference)} does not name a function", "write file.py:function")
    file = (root / Path(path).expanduser()).absolute()
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    except FileNotFoundError:
        raise wrong(f"there is no file {quote_value(path)}", "a relative path starts at the project folder") from None
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(f"{path} cannot be read: {error}", "make it a UTF-8 file that you may read") from None
    except SyntaxError as error:
        raise wrong(f"{path}:{error.lineno}: {error.msg}", "correct the Python file") from None
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if name not in functions:
        hint = did_you_mean(name, list(functions)) if functions else "write one: def name(rows): return rows"
        raise wrong(f"{path} has no function '{name}'", hint)
    arguments = functions[name].args
    parameters = tuple(argument.arg for argument in (*arguments.posonlyargs, *arguments.args))
    return FunctionReference(file, name, parameters, len(arguments.defaults))


@dataclass(frozen=True)
class ExpectationAction:
    """What happens to a row that does not meet an expectation; every action counts it."""

    rejects: bool = False
    """It goes to quarantine, with the names of the expectations that it does not meet."""
    drops: bool = False
    stops: bool = False
    """The batch fails, and the table with it."""

    @property
    def explains(self) -> bool:
        """Whether the error that the check raised is reported."""
        return self.rejects or self.stops


ACTIONS = {
    "quarantine": ExpectationAction(rejects=True),
    "drop": ExpectationAction(drops=True),
    "warn": ExpectationAction(),
    "fail": ExpectationAction(stops=True),
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
CSV_OPTIONS = (
    "sep",
    "delimiter",
    "quote",
    "escape",
    "nullValue",
    "emptyValue",
    "ignoreLeadingWhiteSpace",
    "ignoreTrailingWhiteSpace",
)
Times = Literal["millis", "micros", "nanos"]
Decimals = Literal["string", "unscaled"]
BeforeImage = Literal["key", "full"]
CHANGE_COLUMNS = ("_op", "_changed_at", "_position")
"""What `decode: {debezium: …}` adds to the columns of the schema."""


@dataclass(frozen=True)
class FormatRules:
    """What may be written beside a decode format, and what its decoder receives."""

    needs_schema: bool = True
    names_fields: bool = False
    """Its records name their fields, so that some may be unknown: `rescue` and `new_fields`. The decoder declares
    `Decoded.unknown` then."""
    infers: bool = False
    """A type can be inferred for an unknown field: `new_fields: add`. Of JSON only: refused for a plugin."""
    options: tuple[str, ...] | None = ()
    """The options that it knows; None: any option."""
    keys: tuple[str, ...] = ()
    """Keys of `decode` that only this format has."""
    adds: tuple[str, ...] = ()
    """Columns that it adds to those of the schema."""
    payload: Literal["text", "bytes", "as it is"] = "text"
    """How the decoder receives the payload."""
    key: bool = False
    """The decoder also receives the key of the record."""


_FORMATS = {
    "json": FormatRules(names_fields=True, infers=True),
    "csv": FormatRules(options=CSV_OPTIONS),
    "text": FormatRules(needs_schema=False, payload="as it is"),
    "debezium": FormatRules(names_fields=True, keys=("times", "decimals", "before"), adds=CHANGE_COLUMNS, key=True),
}


def format_rules(name: str) -> FormatRules:
    """The rules of a built-in decode format, or of one from a plugin."""
    if name in _FORMATS:
        return _FORMATS[name]
    rules: FormatRules = plugin(FORMATS, name).rules
    if rules.infers:
        raise SetupError(
            f"'{name}' in {FORMATS} has FormatRules(infers=True), but types of new columns are inferred from JSON only",
            hint="leave infers out of its FormatRules; with names_fields and Decoded.unknown, `new_fields: fail` works",
        )
    return rules


class Decode(SpecModel):
    """One parse per record. Exactly one of json, csv, text, debezium, or a format that a plugin brings, names the
    column that holds it."""

    json_: str | None = Field(default=None, alias="json", min_length=1, examples=["value"])
    csv: str | None = Field(default=None, min_length=1, examples=["value"])
    text: str | None = Field(default=None, min_length=1, examples=["value"])
    debezium: str | None = Field(default=None, min_length=1, examples=["value"])
    schema_: str | None = Field(default=None, alias="schema", min_length=1, examples=["schemas/orders.ddl"])
    rescue: bool = False
    new_fields: Annotated[NewFields, choice("way with new fields", NewFields)] | None = None
    keep: tuple[str, ...] = ()
    options: dict[str, str] = Field(default={})
    times: Annotated[Times, choice("times", Times)] | None = None
    decimals: Annotated[Decimals, choice("decimals", Decimals)] | None = None
    before: Annotated[BeforeImage, choice("before", BeforeImage)] | None = None

    plugin: dict[str, str] = Field(default={})
    """For a format from another package: its name, and the column that holds the payload."""

    later: ClassVar[dict[str, str]] = {"avro": "this version decodes json, csv, text and debezium"}
    python_only: ClassVar[frozenset[str]] = frozenset({"plugin"})
    shape: ClassVar[str] = "{json: value, schema: schemas/orders.ddl}"

    @classmethod
    def normalise(cls, data: Any, info: ValidationInfo) -> Any:
        unknown = [key for key in data if key not in _KEYS] if isinstance(data, dict) else []
        plugin_formats = [key for key in plugin_names(FORMATS) if key in unknown] if unknown else []
        if not plugin_formats:
            return data
        rest = {key: value for key, value in data.items() if key not in plugin_formats}
        return {**rest, "plugin": {key: data[key] for key in plugin_formats}}

    @model_validator(mode="after")
    def _check_format(self) -> Decode:
        formats = self._columns_by_format
        if len(formats) != 1:
            format_names = [*_FORMATS, *plugin_names(FORMATS)]
            raise wrong(
                f"'decode' needs exactly one of {', '.join(format_names[:-1])} and {format_names[-1]}",
                f"write {self.shape}",
                at_key=True,
            )
        name, rules = self.format, format_rules(self.format)
        if self.schema_ is None and rules.needs_schema:
            raise wrong("'decode' needs a schema", "write schema: a file, or the columns: order_id BIGINT", at_key=True)
        if self.rescue and not rules.names_fields:
            raise wrong("'rescue' keeps the unknown fields of JSON objects", "remove it", "rescue", at_key=True)
        self._check_new_fields(name, rules)
        if self.options and rules.options == ():
            raise wrong("'options' are those of CSV lines", "remove it", "options", at_key=True)
        if unknown_options := [
            option for option in self.options if rules.options is not None and option not in rules.options
        ]:
            hint = did_you_mean(unknown_options[0], rules.options or ())
            message = f"'{unknown_options[0]}' is not an option of {name}"
            raise wrong(message, hint, "options", unknown_options[0], at_key=True)
        for key in (key for other in _FORMATS.values() for key in other.keys if key not in rules.keys):
            if getattr(self, key) is not None:
                raise wrong(f"'{key}' is about Debezium's records", "remove it", key, at_key=True)
        if clashing_columns := [column for column in self.keep if column.casefold() in rules.adds]:
            raise wrong(f"'{clashing_columns[0]}' is what decode itself calls a column", "leave it out", "keep")
        return self

    def _check_new_fields(self, name: str, rules: FormatRules) -> None:
        if self.new_fields is None:
            return
        if not rules.names_fields:
            hint = "remove it: a line with more fields is rejected" if name == "csv" else "remove it"
            raise wrong("'new_fields' is about the fields of JSON objects", hint, "new_fields", at_key=True)
        if self.new_fields == "add" and not rules.infers:
            why = "writes times and decimals as numbers and bytes" if name == "debezium" else "is not JSON"
            raise wrong(
                f"{name} {why}: no column type can be inferred from its records",
                "write new columns into the schema; new_fields: rescue keeps the fields until then",
                "new_fields",
            )
        if self.rescue and self.new_fields in ("ignore", "fail"):
            raise wrong(
                f"'rescue: true' keeps the unknown fields, and 'new_fields: {self.new_fields}' does not",
                "remove one of them",
                "rescue",
                at_key=True,
            )

    @property
    def rescues(self) -> bool:
        """Whether there is a column `_rescued`. A field that cannot become a column goes there too."""
        return self.rescue or self.new_fields in ("add", "rescue")

    @property
    def _columns_by_format(self) -> dict[str, str]:
        builtin_formats = {"json": self.json_, "csv": self.csv, "text": self.text, "debezium": self.debezium}
        return {name: column for name, column in {**builtin_formats, **self.plugin}.items() if column}

    @property
    def format(self) -> str:
        return next(iter(self._columns_by_format))

    @property
    def column(self) -> str:
        return self._columns_by_format[self.format]

    @property
    def format_options(self) -> dict[str, str]:
        """What was written about the format: its options, and the keys that only it has."""
        own_keys = {key: getattr(self, key) for key in format_rules(self.format).keys}
        return {**self.options, **{key: value for key, value in own_keys.items() if value is not None}}


_KEYS = {name for key, field in Decode.model_fields.items() for name in (key, field.alias) if name}


def decode_schema_findings(decode: Decode, schema: Struct) -> list[Finding]:
    """What is wrong with the columns of its schema."""
    return [
        Finding((), f"the column '{column.name}' is what decode itself adds", "give it another name")
        for column in schema.fields
        if column.name.casefold() in format_rules(decode.format).adds
    ]


class Expectation(SpecModel):
    """A predicate that every row should meet. NULL counts as not met."""

    name: str = Field(min_length=1, examples=["has_id"])
    check: str = Field(min_length=1, examples=["order_id IS NOT NULL"])
    action: Annotated[str, BeforeValidator(lambda value: one_of(value, "action", tuple(ACTIONS)))] = "quarantine"

    shape: ClassVar[str] = "{name: has_id, check: order_id IS NOT NULL}"

    @model_validator(mode="after")
    def _check_name(self) -> Expectation:
        if not _NAME.fullmatch(self.name):
            raise wrong(f"{quote_value(self.name)} cannot name an expectation", "write letters, digits and _", "name")
        return self


def expectations(value: Any) -> Any:
    """A list whose names are unique."""
    if not isinstance(value, list | tuple):
        raise wrong(f"'expect' needs a list, not {quote_value(value)}", f"write - {Expectation.shape}")
    names = [item.get("name") if isinstance(item, dict) else getattr(item, "name", None) for item in value]
    refuse(
        Finding((index, "name"), f"the expectation {quote_value(name)} is there twice", "give each its own name")
        for index, name in enumerate(names)
        if isinstance(name, str) and name in names[:index]
    )
    return value


class Dedupe(SpecModel):
    """Rows whose keys are in the table already are left out; the first by source coordinates stays."""

    keys: tuple[str, ...] = Field(min_length=1, examples=["[order_id]"])
    within: Duration | None = None
    time: str | None = Field(default=None, min_length=1, examples=["order_ts"])

    lists: ClassVar[tuple[str, ...]] = ("keys",)
    shape: ClassVar[str] = "{keys: [order_id], within: 7 days, time: order_ts}"

    @model_validator(mode="after")
    def _check_bound(self) -> Dedupe:
        if (self.within is None) != (self.time is None):
            raise wrong("'within' and 'time' belong together", f"write {self.shape}", at_key=True)
        return self
