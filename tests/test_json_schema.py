"""Which schemas are taken, and where those that are not are wrong."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from inferno import InvalidOption, SamplingParams
from inferno.constraint import check
from inferno.json_schema import MAX_NESTING, checked, walk, wrapped


def nested(levels: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


REFUSED: list[tuple[Any, str]] = [
    ({"uniqueItems": True}, "/uniqueItems"),
    ({"properties": {"a/b": {"items": {"not": {}}}}}, "/properties/a~1b/items/not"),
    ({"anyOf": [True, {"if": {}}]}, "/anyOf/1/if"),
    ({"$defs": {"a": {"contains": {}}}, "items": {"$ref": "#/$defs/a"}}, "/$defs/a/contains"),
    ({"type": "string", "maxLenght": 3}, "/maxLenght"),
    ({"type": "integr"}, "/type"),
    ({"type": ["string", 5]}, "/type"),
    ({"nullable": True}, "/nullable"),
    ({"x-guidance": {"lenient": True}}, "/x-guidance"),
    ({"$ref": "https://example.com/a.json"}, "/$ref"),
    ({"$ref": "other.json#/a"}, "/$ref"),
    ({"$ref": "#name"}, "/$ref"),
    ({"$ref": "#/$defs/missing"}, "/$ref"),
    ({"$ref": 5}, "/$ref"),
    ({"items": {"$id": "https://example.com/"}}, "/items/$id"),
    ({"items": 5}, "/items"),
    ({"items": [True, None]}, "/items/1"),
    ({"properties": []}, "/properties"),
    ({"allOf": {}}, "/allOf"),
    ({"additionalItems": False}, "/additionalItems"),
    ({"minProperties": 2}, "/minProperties"),
    ({"const": 2**53 + 1}, "/const"),
    ({"enum": [1, {"a": ["\0"]}]}, "/enum/1/a/0"),
    ({"minimum": 2**60}, "/minimum"),
    ({"type": "number", "exclusiveMinimum": 0}, "/exclusiveMinimum"),
    ({"type": "number", "maximum": 0, "exclusiveMaximum": True}, "/exclusiveMaximum"),
    ({"pattern": "(a{1000}){1000}"}, "/pattern"),
    ({"patternProperties": {"a{4000000000}": True}}, "/patternProperties"),
    ({"const": "a" * 60_000}, "/const"),
    ({"enum": [1, "a" * 60_000]}, "/enum"),
    ({"properties": {f"p{i}": True for i in range(1001)}}, "/properties"),
    ({"type": "integer", "multipleOf": 999_983}, "/multipleOf"),
    ({"items": {"multipleOf": 0.000_99991}}, "/items/multipleOf"),
    ({"multipleOf": 499, "$ref": "#/$defs/a", "$defs": {"a": {"multipleOf": 503}}}, "/$defs/a"),
    ({"allOf": [{"multipleOf": p} for p in (7, 11, 13, 17, 19, 23)]}, "/allOf/4/multipleOf"),
]


@pytest.mark.parametrize(("schema", "pointer"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_cannot_be_enforced_is_named_by_its_pointer(schema: Any, pointer: str) -> None:
    for given in (schema, json.dumps(schema)):
        with pytest.raises(InvalidOption) as caught:
            checked(given)
        assert f"`json_schema`: {pointer}" in caught.value.message
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("levels", [MAX_NESTING + 1, 1000, 50_000])
def test_a_schema_that_nests_deep_is_refused(levels: int) -> None:
    with pytest.raises(InvalidOption, match=r"/items.*levels of nesting"):
        checked(nested(levels))
    with pytest.raises(InvalidOption, match=r"levels") as caught:
        checked('{"items":' * levels + "true" + "}" * levels)
    assert len(str(caught.value)) < 300


def chain(links: int, end: Any) -> Any:
    """Return a schema whose parts each refer to the next."""
    link = [{"items": {"$ref": f"#/$defs/{i + 1}"}, "type": "array"} for i in range(links)]
    defs = {**{str(i): schema for i, schema in enumerate(link)}, str(links): end}
    return {"$ref": "#/$defs/0", "$defs": defs}


def test_a_chain_of_references_is_as_deep_as_what_it_stands_for() -> None:
    """The enforcing library recurses into it, and its stack is the thread's."""
    for end in ({"type": "null"}, {"items": {"$ref": "#/$defs/0"}}):  # also if it is a circle
        for links in (499, 2000, 12_000):
            with pytest.raises(InvalidOption, match=r": /\$defs/.*500 parts within each other"):
                checked(chain(links, end))
        check(SamplingParams(json_schema=chain(240, end)))
    wide = {"$defs": {str(i): {"items": True} for i in range(3000)}}
    checked({**wide, "anyOf": [{"$ref": f"#/$defs/{i}"} for i in range(3000)]})


def test_a_schema_that_contains_itself_is_refused() -> None:
    schema: dict[str, Any] = {}
    schema["items"] = schema
    with pytest.raises(InvalidOption, match="levels of nesting"):
        checked(schema)


def test_a_schema_that_is_many_is_refused() -> None:
    schema: Any = {}
    for _ in range(40):
        schema = {"anyOf": [schema, schema]}  # 2^40 of them, in 40 objects
    with pytest.raises(InvalidOption, match="values"):
        checked(schema)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        nested(50),
        {"title": "T", "description": "d", "default": 1, "examples": [1], "x-note": "n"},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://a.b/"},
        {"$defs": {"unused": {"not": {}}}},
        {"properties": {"not": True, "$id": True, "x-guidance": True}},
        {"const": {"not": 1, "$ref": "elsewhere"}},
        {"type": "integer", "exclusiveMinimum": 0},
        {"minProperties": 2, "required": ["a", "b"]},
        {"properties": {f"p{i}": True for i in range(1001)}, "required": ["p0"]},
        {"prefixItems": [{"multipleOf": p} for p in (499, 503, 10**9, 0.01, 0.25)]},
        {"enum": [f"value {i}" for i in range(20_000)]},
    ],
    ids=lambda value: str(value)[:40],
)
def test_names_and_values_are_no_keywords(schema: Any) -> None:
    assert json.loads(checked(schema)) == schema


def test_the_deepest_schema_that_is_taken_can_be_compiled() -> None:
    check(SamplingParams(json_schema=nested(MAX_NESTING - 1)))


def test_what_forbids_nothing_is_left_out() -> None:
    idle = {"uniqueItems": False, "nullable": False, "propertyNames": {"type": "string"}}
    [root, item] = walk({**idle, "items": {**idle, "type": "null"}})
    assert root.schema == {"items": item.schema} == {"items": {"type": "null"}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}},
        {"$ref": "#/properties/a~1b%25", "properties": {"a/b%": {"type": "null"}}},
        {"anyOf": [{"type": "null"}, {"items": {"$ref": "#"}, "type": "array"}]},
        {"properties": {"$ref": {"type": "null"}}, "const": {"$ref": "#"}},
    ],
)
def test_a_wrapped_schema_says_the_same(schema: Any) -> None:
    inside = jsonschema.Draft202012Validator(json.loads(wrapped(json.loads(json.dumps(schema)))))
    outside = jsonschema.Draft202012Validator(schema)
    for value in (None, 1, [], [[None]], [1], {"a/b%": 1}, {"$ref": 1}, {"$ref": "#"}):
        assert inside.is_valid(value) == outside.is_valid(value)
