from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.spec.schema import BadSchema, parse_ddl, parse_json_schema


def columns(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_shapes_types_and_what_is_required() -> None:
    document = {
        **columns(
            id={"type": "integer"},
            amount={"type": "number", "format": "decimal(18,4)"},
            at={"type": "string", "format": "date-time"},
            day={"type": ["string", "null"], "format": "date"},
            ok={"type": "boolean"},
            x={"type": "number"},
            address={"$ref": "#/$defs/address"},
            tags={"type": "object", "additionalProperties": {"type": "string"}},
            lines={"type": "array", "items": columns(sku={"type": "string"})},
        ),
        "required": ["id", "day"],
        "$defs": {"address": {**columns(zip={"type": "string"}), "required": ["zip"]}},
    }
    assert parse_json_schema(json.dumps(document)) == parse_ddl(
        "id BIGINT NOT NULL, amount DECIMAL(18,4), at TIMESTAMP, day DATE, ok BOOLEAN, x DOUBLE, "
        "address STRUCT<zip: STRING NOT NULL>, tags MAP<STRING, STRING>, lines ARRAY<STRUCT<sku: STRING>>"
    )


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "not a JSON Schema"),
        ({"type": "string"}, "must be an object"),
        ({"type": "object"}, "without properties"),
        (columns(a={"type": ["string", "integer"]}), "$.a: no single type"),
        (columns(a={}), "$.a: no single type"),
        (columns(a={"type": "array"}), "an array of what"),
        (columns(a={"$ref": "#/$defs/x"}), "is not in this file"),
        (columns(a={"$ref": "https://example.com/x.json"}), "is not in this file"),
        (columns(a={"$ref": "#"}), "refers to itself"),
        (columns(a={"type": "string"}, A={"type": "string"}), "only in capitals"),
        (columns(a={"type": "number", "format": "decimal(50,2)"}), "cannot be"),
    ],
)
def test_what_cannot_be_a_table_is_refused_with_its_path(document: Any, said: str) -> None:
    with pytest.raises(BadSchema) as caught:
        parse_json_schema(json.dumps(document))
    assert said in caught.value.message


def test_what_is_not_json_is_told_with_its_place() -> None:
    with pytest.raises(BadSchema) as caught:
        parse_json_schema('{"type":\n object}')
    assert (caught.value.line, caught.value.column) == (2, 2)
