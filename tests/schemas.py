"""Random JSON schemas, sound and absurd, of what is enforced and some of what is not."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "ab", "a/b", "~", "é", ""])
TEXTS = st.sampled_from(["", "a", "ab", "b1", "é", "x y", '"', "\\", "\n", "\x01", "1"])
PATTERNS = st.sampled_from(
    ["^a", "b$", "^[ab]{1,3}$", "[0-9]", "a|b", "", "^$", "(", "(?=a)", "é+"]
)
INTEGERS = st.integers(-9, 9) | st.sampled_from([2**53, 2**53 + 1, -100, 1000])
NUMBERS = INTEGERS | st.sampled_from([0.5, -0.25, 1.5, 1e-3, 2.0, 1e20, 0.0])
SIZES = st.integers(0, 3)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=3,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
FORMATS = st.sampled_from(["date", "time", "ipv4", "uuid", "email", "color"])
REFERENCES = st.sampled_from(["#", "#/$defs/d", "#/$defs/e", "#/properties/a", "#/items"])


def _of_kind(kind: str, inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return schemas of a type, with the keywords that go with it."""
    schemas = st.lists(inner, min_size=1, max_size=3)
    maps = st.dictionaries(NAMES, inner, max_size=3)
    keywords: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "number": {
            "minimum": NUMBERS,
            "maximum": NUMBERS,
            "exclusiveMinimum": NUMBERS,
            "exclusiveMaximum": NUMBERS,
            "multipleOf": NUMBERS,
        },
        "string": {"minLength": SIZES, "maxLength": SIZES, "pattern": PATTERNS, "format": FORMATS},
        "array": {
            "items": inner,
            "prefixItems": schemas,
            "minItems": SIZES,
            "maxItems": SIZES,
            "uniqueItems": st.booleans(),
        },
        "object": {
            "properties": maps,
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
            "minProperties": SIZES,
            "maxProperties": SIZES,
        },
    }
    name = "number" if kind == "integer" else kind
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=keywords.get(name, {}))


def _composed(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    schemas = st.lists(inner, min_size=1, max_size=3)
    return (
        TYPES.flatmap(lambda kind: _of_kind(kind, inner))
        | st.fixed_dictionaries({"anyOf": schemas})
        | st.fixed_dictionaries({"oneOf": schemas})
        | st.fixed_dictionaries({"allOf": schemas})
        | st.fixed_dictionaries({"$ref": REFERENCES}, optional={"type": TYPES, "maxLength": SIZES})
        | st.fixed_dictionaries({"not": inner})
        | st.fixed_dictionaries({"type": st.lists(TYPES, min_size=1, max_size=3, unique=True)})
    )


_LEAVES = (
    TYPES.map(lambda kind: {"type": kind})
    | st.booleans()
    | st.fixed_dictionaries({"const": VALUES})
    | st.fixed_dictionaries({"enum": st.lists(VALUES, min_size=1, max_size=3)})
    | TYPES.flatmap(lambda kind: _of_kind(kind, st.booleans()))
)
_SCHEMAS = st.recursive(_LEAVES, _composed, max_leaves=6)
SCHEMAS: st.SearchStrategy[Any] = st.builds(
    lambda schema, defs: {**schema, "$defs": defs} if isinstance(schema, dict) else schema,
    _SCHEMAS,
    st.fixed_dictionaries({"d": _SCHEMAS, "e": _SCHEMAS}),
)
