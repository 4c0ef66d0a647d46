"""Schemas of decoded records as plain data, from DDL, JSON Schema or a file: checked without a JVM."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.spec.base_model import line_and_column, nearest, quote_value, wrong

MAX_PRECISION = 38
_SCALARS = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
)
_ALIASES = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
_UNSUPPORTED = {
    "TEXT": "write STRING",
    "VARCHAR": "write STRING; check its length with expect",
    "CHAR": "write STRING; check its length with expect",
    "DATETIME": "write TIMESTAMP",
    "BOOL": "write BOOLEAN",
    "NUMBER": "write BIGINT, DOUBLE or DECIMAL(18,4)",
    "VARIANT": "write STRING: a JSON value of any shape is refused in a STRING, so decode it with its own fields",
}


@dataclass(frozen=True)
class Scalar:
    """By Spark's own name. A decimal has a precision and a scale."""

    name: str
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        return f"DECIMAL({self.precision},{self.scale})" if self.name == "DECIMAL" else self.name


@dataclass(frozen=True)
class AnyJson(Scalar):
    """A STRING that takes any JSON value as its text, for a field whose values turned out to have several types. A user
    never writes it; the comment tells the decoder."""

    name: str = "STRING"

    def __str__(self) -> str:
        return "STRING COMMENT 'penstock: any JSON'"


@dataclass(frozen=True)
class Array:
    element: Type

    def __str__(self) -> str:
        return f"ARRAY<{self.element}>"


@dataclass(frozen=True)
class Map:
    key: Scalar
    value: Type

    def __str__(self) -> str:
        return f"MAP<{self.key}, {self.value}>"


@dataclass(frozen=True)
class Struct:
    fields: tuple[Column, ...]

    def __str__(self) -> str:
        return f"STRUCT<{', '.join(column.ddl(': ') for column in self.fields)}>"

    def columns(self) -> str:
        """As the columns of a table are written: `order_id` BIGINT NOT NULL, …"""
        return ", ".join(str(column) for column in self.fields)

    def walk(self) -> Iterator[Column]:
        """Every column, including those of nested structs."""
        for column in self.fields:
            yield column
            yield from _nested_columns(column.type)


@dataclass(frozen=True)
class Column:
    name: str
    type: Type
    required: bool = False

    def __str__(self) -> str:
        return self.ddl(" ")

    def ddl(self, between: str) -> str:
        return f"{_quote(self.name)}{between}{self.type}{' NOT NULL' if self.required else ''}"


Type = Scalar | Array | Map | Struct


def _nested_columns(kind: Type) -> Iterator[Column]:
    match kind:
        case Struct():
            yield from kind.walk()
        case Array(element):
            yield from _nested_columns(element)
        case Map(_, value):
            yield from _nested_columns(value)


_DOTTED_I = re.compile("i\u0307+")


def column_key(name: str) -> str:
    """Two columns with equal keys are the same column. Spark compares names by Java's `equalsIgnoreCase`, Delta by
    their lower case: to the one `id`, `\u0131d` and `\u0130d` are the same name, to the other `\u0130d` and
    `i\u0307d`."""
    return _DOTTED_I.sub("i", name.upper().casefold())


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


class BadType(ValueError):
    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def scalar(word: str, arguments: tuple[int, ...] = ()) -> Scalar:
    """Raises BadType with what to write instead."""
    name = _ALIASES.get(word.upper(), word.upper())
    if name in ("DECIMAL", "DEC", "NUMERIC"):
        return _decimal(arguments)
    if name in _UNSUPPORTED:
        raise BadType(f"{word} is not a type of a record's field", _UNSUPPORTED[name])
    if name not in _SCALARS:
        type_names = [*_SCALARS, "DECIMAL", "ARRAY", "MAP", "STRUCT"]
        suggestion = nearest(word, [*type_names, *_ALIASES])
        raise BadType(
            f"{word} is not a type",
            f"did you mean {suggestion}?" if suggestion else f"write one of {', '.join(type_names)}",
        )
    if arguments:
        raise BadType(f"{name} takes no numbers in brackets", f"write {name}")
    return Scalar(name)


def _decimal(arguments: tuple[int, ...]) -> Scalar:
    if not arguments:
        raise BadType("a DECIMAL without its digits would hold whole numbers only", "write DECIMAL(18,4)")
    precision, scale = arguments if len(arguments) == 2 else (arguments[0], 0)
    if len(arguments) > 2 or not 1 <= precision <= MAX_PRECISION or not 0 <= scale <= precision:
        arguments_text = ", ".join(map(str, arguments))
        raise BadType(
            f"DECIMAL({arguments_text}) cannot be", f"write DECIMAL(p,s) with p up to {MAX_PRECISION}, s up to p"
        )
    return Scalar("DECIMAL", precision, scale)


_TOKEN = re.compile(
    r"""\s+|--[^\r\n]*|/\*(?!\+).*?\*/|(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|(?P<word>[^\W\d][\w]*)|(?P<number>[0-9]+)|(?P<sign>[<>(),:])""",
    re.DOTALL,
)
_EXAMPLE = "write columns such as: order_id BIGINT NOT NULL, amount DECIMAL(18,4)"


class BadSchema(ValueError):
    """What is wrong with a schema's text, and where in it (1-based)."""

    def __init__(self, message: str, hint: str, line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message, self.hint, self.line, self.column = message, hint, line, column


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


def parse_ddl(text: str) -> Struct:
    """Columns as SQL writes them: `order_id BIGINT NOT NULL, items ARRAY<STRUCT<sku: STRING>>`. Raises BadSchema."""
    return Struct(_DdlReader(text).columns(nested=False, end=""))


class _DdlReader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[_Token] = []
        offset = 0
        while offset < len(text):
            match = _TOKEN.match(text, offset)
            if match is None:
                raise self._error(f"{text[offset]!r} does not belong here", _EXAMPLE, offset)
            if match.lastgroup:
                self._tokens.append(_Token(match.lastgroup, match[0], offset))
            offset = match.end()
        self._index = 0

    def columns(self, *, nested: bool, end: str) -> tuple[Column, ...]:
        columns: list[Column] = []
        names_by_key: dict[str, str] = {}
        while True:
            token = self._peek()
            if token is None and not columns:
                raise self._error("there are no columns", _EXAMPLE)
            column = self._column(nested=nested)
            if column_key(column.name) in names_by_key:
                message = f"the column '{column.name}' is there twice"
                raise self._error(message, "give each its own name; capitals make no difference", token)
            names_by_key[column_key(column.name)] = column.name
            columns.append(column)
            if self._skip(","):
                if self._peek() is None and not end:
                    return tuple(columns)  # people leave a trailing comma
                continue
            next_token = self._peek()
            if (next_token.text if next_token else "") != end:
                problem = f"'{next_token.text}' does not belong here" if next_token else "the text ends too early"
                raise self._error(
                    problem, "columns are divided by commas" if next_token else f"close it with {end}", next_token
                )
            self._index += bool(end)
            return tuple(columns)

    def _column(self, *, nested: bool) -> Column:
        name = self._take("a column's name")
        if name.kind not in ("word", "quoted"):
            raise self._error(f"'{name.text}' cannot name a column", "put it in backticks: `" + name.text + "`", name)
        if nested:
            self._skip(":")
        kind = self._type()
        options: set[str] = set()
        while (word := self._peek()) is not None and word.kind == "word":
            option = word.text.upper()
            if option not in ("NOT", "COMMENT"):
                raise self._error(f"'{word.text}' does not belong here", "columns are divided by commas", word)
            if option in options:
                raise self._error(f"{option} is there twice", "keep one of them", word)
            options.add(option)
            self._index += 1
            if option == "NOT":
                null = self._take("NULL after NOT")
                if null.text.upper() != "NULL":
                    raise self._error(f"NOT {null.text} says nothing", "write NOT NULL", null)
            else:
                comment = self._take("the text of COMMENT")
                if comment.kind != "text":
                    raise self._error(f"'{comment.text}' is not a text in quotes", "write COMMENT 'a text'", comment)
        column_name = name.text[1:-1].replace("``", "`") if name.kind == "quoted" else name.text
        return Column(column_name, kind, required="NOT" in options)

    def _type(self) -> Type:
        word = self._take("a type")
        match word.text.upper():
            case "ARRAY":
                self._expect("<", "ARRAY<STRING>")
                element = self._type()
                self._expect(">", "ARRAY<STRING>")
                return Array(element)
            case "MAP":
                self._expect("<", "MAP<STRING, BIGINT>")
                key = self._type()
                if key != Scalar("STRING"):
                    raise self._error(f"{key} cannot be the key of a map", "keys of JSON objects are STRING", word)
                self._expect(",", "MAP<STRING, BIGINT>")
                value = self._type()
                self._expect(">", "MAP<STRING, BIGINT>")
                return Map(Scalar("STRING"), value)
            case "STRUCT":
                self._expect("<", "STRUCT<a: STRING>")
                return Struct(self.columns(nested=True, end=">"))
        try:
            return scalar(word.text, self._arguments())
        except BadType as error:
            raise self._error(str(error), error.hint, word) from None

    def _arguments(self) -> tuple[int, ...]:
        if not self._skip("("):
            return ()
        tokens: list[_Token] = []
        while not tokens or tokens[-1].text != ")":
            token = self._take("a closing bracket")
            expected = token.text in (",", ")") if len(tokens) % 2 else token.kind == "number"
            if not expected:
                raise self._error(f"'{token.text}' does not belong here", "write for example DECIMAL(18,4)", token)
            tokens.append(token)
        return tuple(int(number.text) for number in tokens[::2])

    def _skip(self, sign: str) -> bool:
        """Passes over the sign; False if it is not next."""
        token = self._peek()
        is_next = token is not None and token.text == sign
        self._index += is_next
        return is_next

    def _peek(self) -> _Token | None:
        return self._tokens[self._index] if self._index < len(self._tokens) else None

    def _take(self, expected: str) -> _Token:
        token = self._peek()
        if token is None:
            raise self._error(f"the text ends where {expected} belongs", _EXAMPLE)
        self._index += 1
        return token

    def _expect(self, sign: str, example: str) -> None:
        token = self._take(f"'{sign}'")
        if token.text != sign:
            raise self._error(f"'{token.text}' stands where '{sign}' belongs", f"write {example}", token)

    def _error(self, message: str, hint: str, position: _Token | int | None = None) -> BadSchema:
        offset = (
            len(self._text.rstrip()) if position is None else position.at if isinstance(position, _Token) else position
        )
        return BadSchema(message, hint, *line_and_column(self._text, offset))


_JSON_TYPES = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "string": "STRING"}
_FORMATS = {"date-time": "TIMESTAMP", "date": "DATE"}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)", re.IGNORECASE)
_MAX_DEPTH = 50


def parse_json_schema(text: str) -> Struct:
    """The columns of a JSON Schema. Shapes, types and `required` count; the rest is for `expect`. Raises BadSchema."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadSchema(f"this is not JSON: {error.msg}", "correct it", error.lineno, error.colno) from None
    if not isinstance(document, Mapping):
        raise BadSchema("this is not a JSON Schema of an object", 'write {"type": "object", "properties": {...}}')
    schema = _JsonSchemaReader(document).type(document, "$", 0)
    if not isinstance(schema, Struct):
        raise BadSchema("a record must be an object with properties", 'write {"type": "object", "properties": {...}}')
    return schema


class _JsonSchemaReader:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def type(self, node: Any, path: str, depth: int) -> Type:
        if depth > _MAX_DEPTH:
            raise BadSchema(f"{path}: the schema refers to itself", "a table's columns need an end: write it out")
        node = self._resolve_reference(node, path)
        kind = self._kind(node, path)
        if kind == "object":
            return self._object(node, path, depth)
        if kind == "array":
            if not isinstance(node.get("items"), Mapping):
                raise BadSchema(f"{path}: an array of what?", 'write "items": {"type": "string"}')
            return Array(self.type(node["items"], f"{path}[]", depth + 1))
        return self._scalar(kind, node.get("format"), path)

    def _object(self, node: Mapping[str, Any], path: str, depth: int) -> Type:
        properties = node.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            values = node.get("additionalProperties")
            if isinstance(values, Mapping):
                return Map(Scalar("STRING"), self.type(values, f"{path}.*", depth + 1))
            raise BadSchema(f"{path}: an object without properties", 'write "properties" or "additionalProperties"')
        required = node.get("required", [])
        columns: list[Column] = []
        keys_so_far: set[str] = set()
        for name, property_node in properties.items():
            if column_key(name) in keys_so_far:
                raise BadSchema(f"{path}.{name}: two names that differ only in capitals", "a table holds one of them")
            keys_so_far.add(column_key(name))
            kind = self.type(property_node, f"{path}.{name}", depth + 1)
            columns.append(Column(name, kind, name in required and not self._may_be_null(property_node)))
        return Struct(tuple(columns))

    def _may_be_null(self, node: Any) -> bool:
        kinds = self._resolve_reference(node, "").get("type")
        return isinstance(kinds, list) and "null" in kinds

    def _kind(self, node: Mapping[str, Any], path: str) -> str:
        kinds = node.get("type")
        non_null_kinds = [kind for kind in kinds if kind != "null"] if isinstance(kinds, list) else [kinds]
        kind = non_null_kinds[0] if len(non_null_kinds) == 1 else None
        if isinstance(kind, str) and kind in (*_JSON_TYPES, "object", "array"):
            return kind
        if kinds is None and "properties" in node:
            return "object"
        hint = "a column has one type: object, array, string, integer, number or boolean, and null beside it"
        raise BadSchema(f"{path}: no single type ({json.dumps(kinds)})", hint)

    def _scalar(self, kind: str, format_name: Any, path: str) -> Scalar:
        if kind in ("string", "number") and isinstance(format_name, str):
            if decimal := _DECIMAL.fullmatch(format_name):
                try:
                    return scalar("DECIMAL", (int(decimal[1]), int(decimal[2])))
                except BadType as error:
                    raise BadSchema(f"{path}: {error}", error.hint) from None
            if kind == "string" and format_name in _FORMATS:
                return Scalar(_FORMATS[format_name])
        return Scalar(_JSON_TYPES[kind])

    def _resolve_reference(self, node: Any, path: str) -> Mapping[str, Any]:
        """Follows a `$ref` within the document."""
        for _ in range(_MAX_DEPTH):
            if not isinstance(node, Mapping):
                raise BadSchema(f"{path}: {json.dumps(node)} says nothing of a type", 'write {"type": "string"}')
            if "$ref" not in node:
                return node
            target: Any = self._document
            reference = str(node["$ref"])
            for step in filter(None, reference.removeprefix("#").split("/")):
                target = target.get(step) if isinstance(target, Mapping) and reference.startswith("#") else None
            if target is None:
                raise BadSchema(f"{path}: {node['$ref']} is not in this file", "refer to #/$defs/NAME")
            node = target
        raise BadSchema(f"{path}: the schema refers to itself", "a table's columns need an end: write it out")


def load_schema(schema_text: str, root: Path) -> Struct:
    """A file of columns (.ddl, .sql), a JSON Schema (.json), or columns as text. Raises FindingsError."""
    file = root / Path(schema_text).expanduser()
    inline = any(sign.isspace() for sign in schema_text.strip()) and not _is_file(file)
    if not inline and not _is_file(file):
        hint = "correct the path (a relative one starts at the project folder), or write the columns: order_id BIGINT"
        raise wrong(f"there is no file {quote_value(schema_text)}", hint)
    try:
        text = schema_text if inline else file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise wrong(f"{schema_text} cannot be read: {error}", "make it a UTF-8 text file that you may read") from None
    try:
        return parse_json_schema(text) if file.suffix == ".json" and not inline else parse_ddl(text)
    except BadSchema as error:
        position = "" if inline else f"{schema_text}:{error.line}:{error.column}: "
        raise wrong(f"{position}{error.message}", error.hint) from None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # columns as text can be longer than a file name may be
        return False
