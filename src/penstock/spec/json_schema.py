"""A JSON Schema document as the columns of a table. Shapes, types and `required` count; the rest is for `expect`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from penstock.spec.ddl import BadSchema
from penstock.spec.schema import Array, BadType, Column, Map, Scalar, Struct, Type, column_key, scalar

_PLAIN = {"integer": "BIGINT", "number": "DOUBLE", "boolean": "BOOLEAN", "string": "STRING"}
_FORMATS = {"date-time": "TIMESTAMP", "date": "DATE"}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)", re.IGNORECASE)
_DEEPEST = 50


def parse_json_schema(text: str) -> Struct:
    """Raises BadSchema."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadSchema(f"this is not JSON: {error.msg}", "correct it", error.lineno, error.colno) from None
    if not isinstance(document, Mapping):
        raise BadSchema("this is not a JSON Schema of an object", 'write {"type": "object", "properties": {...}}')
    made = _Reader(document).type(document, "$", 0)
    if not isinstance(made, Struct):
        raise BadSchema("a record must be an object with properties", 'write {"type": "object", "properties": {...}}')
    return made


class _Reader:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def type(self, node: Any, path: str, depth: int) -> Type:
        if depth > _DEEPEST:
            raise BadSchema(f"{path}: the schema refers to itself", "a table's columns need an end: write it out")
        node = self._followed(node, path)
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
        taken: set[str] = set()
        for name, below in properties.items():
            if column_key(name) in taken:
                raise BadSchema(f"{path}.{name}: two names that differ only in capitals", "a table holds one of them")
            taken.add(column_key(name))
            kind = self.type(below, f"{path}.{name}", depth + 1)
            columns.append(Column(name, kind, name in required and not self._may_be_null(below)))
        return Struct(tuple(columns))

    def _may_be_null(self, node: Any) -> bool:
        kinds = self._followed(node, "").get("type")
        return isinstance(kinds, list) and "null" in kinds

    def _kind(self, node: Mapping[str, Any], path: str) -> str:
        kinds = node.get("type")
        several = [kind for kind in kinds if kind != "null"] if isinstance(kinds, list) else [kinds]
        if len(several) == 1 and isinstance(several[0], str) and several[0] in (*_PLAIN, "object", "array"):
            return several[0]
        if kinds is None and "properties" in node:
            return "object"
        hint = "a column has one type: object, array, string, integer, number or boolean, and null beside it"
        raise BadSchema(f"{path}: no single type ({json.dumps(kinds)})", hint)

    def _scalar(self, kind: str, form: Any, path: str) -> Scalar:
        if kind in ("string", "number") and isinstance(form, str):
            if decimal := _DECIMAL.fullmatch(form):
                try:
                    return scalar("DECIMAL", (int(decimal[1]), int(decimal[2])))
                except BadType as error:
                    raise BadSchema(f"{path}: {error}", error.hint) from None
            if kind == "string" and form in _FORMATS:
                return Scalar(_FORMATS[form])
        return Scalar(_PLAIN[kind])

    def _followed(self, node: Any, path: str) -> Mapping[str, Any]:
        """`$ref` within the document."""
        for _ in range(_DEEPEST):
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
