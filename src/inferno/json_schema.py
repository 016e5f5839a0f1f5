"""JSON schemas: what of them can be enforced while a text is written, and where one cannot.

Knows JSON and the keywords of JSON Schema; nothing of tokens, models, or of who enforces them.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from graphlib import CycleError, TopologicalSorter
from typing import Any, NoReturn
from urllib.parse import quote, unquote

from inferno.errors import InvalidOption
from inferno.excerpt import shown
from inferno.expression import MAX_ATOMS, atoms

Json = Any  # what a JSON text stands for

# How JSON is written, in llguidance's words. Between tokens: a space, or a new line with its
# indentation. Without a bound, a model that has nothing to say fills its context with blanks. Names
# and strings have one spelling each: by \u, a name could come a second time unseen.
SPELLING = {"whitespace_pattern": r" |\n[ \t]{0,32}", "json_allowed_escapes": 'nrbtf\\"'}

MAX_LENGTH = 1_000_000  # characters of a schema's text
# Parsers of JSON give up at 128 levels; references and wrapping take a few.
MAX_NESTING = 100
MAX_NODES = 50_000
# Numbers are compared in double precision, which has all integers up to here.
MAX_EXACT_INTEGER = 2**53
# Parts of a schema in a chain, each in the one before or referred to by it. The library recurses:
# 1,700 overflow a stack of 8 MB.
MAX_CHAIN = 500
# Of those that may be left out, any may come next: 2,000 take 0.3 s, 10,000 are refused after 13 s.
MAX_OPTIONAL = 1_000
# What is a multiple is found by its remainder. The library looks at every remainder, and of two
# numbers at those of their least common multiple: 0.3 s for 50,000, 23 s for a million.
MAX_MODULUS = 50_000
# How many keywords are tried one by one to find the one that is refused.
MAX_SUSPECTS = 500

ENFORCED = {
    *("type", "const", "enum", "anyOf", "oneOf", "allOf", "$ref"),
    *("items", "prefixItems", "additionalItems", "minItems", "maxItems"),
    *("properties", "patternProperties", "additionalProperties", "required"),
    *("minProperties", "maxProperties"),
    *("minLength", "maxLength", "pattern", "format"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
# They say nothing about which JSON is valid. `discriminator` and `example` are OpenAPI's.
ANNOTATIONS = {
    *("$schema", "$id", "id", "$comment", "$defs", "definitions", "$anchor", "$vocabulary"),
    *("title", "description", "default", "examples", "example", "deprecated", "discriminator"),
    *("readOnly", "writeOnly", "contentMediaType", "contentEncoding", "contentSchema"),
}
# They exist, but not while a text is written from left to right.
NOT_ENFORCED = {
    *("not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems"),
    *("propertyNames", "dependentRequired", "dependentSchemas", "dependencies", "nullable"),
    *("unevaluatedItems", "unevaluatedProperties"),
    *("$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"),
}
# Values with which a keyword forbids nothing.
IDLE: Mapping[str, tuple[Json, ...]] = {
    "uniqueItems": (False,),
    "nullable": (False,),
    "propertyNames": (True, {}, {"type": "string"}),
    "unevaluatedItems": (True, {}),
    "unevaluatedProperties": (True, {}),
}
TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS_OF_SCHEMAS = ("properties", "patternProperties")
_SCHEMAS = ("additionalProperties", "additionalItems")
# Written with the escapes that have one spelling; the others would need \u, by which a name can
# be spelled in two ways, and so come twice.
_UNWRITABLE = {chr(code) for code in range(0x20)} - set("\b\t\n\f\r") | {"\x7f"}


def checked(value: Json) -> str:
    """Return a schema (a value, or its JSON text) as text, if it can be enforced.

    Raises:
        InvalidOption: it is no schema, too large, or has a keyword that cannot be enforced; the
            message has the JSON pointer of that.
    """
    schema = _parsed(value) if isinstance(value, str) else value
    _check_size(schema)
    try:
        text = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidOption(
            f"`json_schema`: expected JSON, found what JSON has not: {str(error)[:80]}",
            hint="pass a dictionary, or the text of a JSON schema",
        ) from None
    root = json.loads(text)
    parts = list(walk(root))
    _check_depth(parts, root)
    _check_multiples(parts)
    return text


def _parsed(text: str) -> Json:
    if len(text) > MAX_LENGTH:
        raise InvalidOption(
            f"`json_schema`: expected at most {MAX_LENGTH:,} characters, found {len(text):,}"
        )
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        found = "too many levels" if isinstance(error, RecursionError) else str(error)[:80]
        raise InvalidOption(
            f"`json_schema`: expected JSON, found {shown(text)} ({found})",
            hint="pass a dictionary, or the text of a JSON schema",
        ) from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _check_size(schema: Json) -> None:
    """Refuse what nests deep or is large, looking at no more of it than that takes."""
    stack: list[tuple[Json, str, int]] = [(schema, "", 0)]
    nodes = 0
    while stack:
        value, pointer, level = stack.pop()
        nodes += 1
        if level > MAX_NESTING:
            _refuse(pointer, f"expected at most {MAX_NESTING} levels of nesting, found more")
        if nodes > MAX_NODES:
            _refuse("", f"expected at most {MAX_NODES:,} values, found more")
        if isinstance(value, Mapping):
            for key, item in value.items():
                if not isinstance(key, str):
                    _refuse(pointer, f"expected strings as keys, found {shown(key)}")
                stack.append((item, f"{pointer}/{escaped(key)}", level + 1))
        elif isinstance(value, (list, tuple)):
            stack.extend((item, f"{pointer}/{i}", level + 1) for i, item in enumerate(value))


@dataclass(frozen=True)
class Part:
    """A schema within a schema."""

    schema: Json
    pointer: str


def walk(root: Json) -> Iterator[Part]:
    """Yield the schemas that `root` consists of, those it refers to included, itself first.

    Keywords that forbid nothing are removed from them.

    Raises:
        InvalidOption: a keyword cannot be enforced, a reference leads nowhere or elsewhere.
    """
    waiting, seen = [Part(root, "")], {""}
    while waiting:
        part = waiting.pop()
        if isinstance(part.schema, dict):
            _check_keywords(part)
        elif not isinstance(part.schema, bool):
            _refuse(
                part.pointer,
                f"expected a schema: an object, true or false; found {shown(part.schema)}",
            )
        yield part
        for child in reversed(list(_children(part, root))):
            if child.pointer not in seen:
                seen.add(child.pointer)
                waiting.append(child)


def _children(part: Part, root: Json) -> Iterator[Part]:
    schema, pointer = part.schema, part.pointer
    if isinstance(schema, bool):
        return
    for keyword, value in schema.items():
        place = f"{pointer}/{escaped(keyword)}"
        if keyword in _MAPS_OF_SCHEMAS and isinstance(value, dict):
            for name, child in value.items():
                yield Part(child, f"{place}/{escaped(name)}")
        elif (keyword in _LISTS_OF_SCHEMAS or keyword == "items") and isinstance(value, list):
            for i, child in enumerate(value):
                yield Part(child, f"{place}/{i}")
        elif keyword in _SCHEMAS or keyword == "items":
            yield Part(value, place)
        elif keyword == "$ref":
            yield _referred(value, root, place)


def _check_depth(parts: Sequence[Part], root: Json) -> None:
    """Refuse long chains of parts."""
    children = {part.pointer: [child.pointer for child in _children(part, root)] for part in parts}
    try:
        order = list(TopologicalSorter(children).static_order())
    except CycleError:
        # The parts refer to each other. A chain has each of them once, and may have all.
        depths = {pointer: i for i, pointer in enumerate(p for p in children if children[p])}
    else:
        depths = dict.fromkeys(order, 0)
        for pointer in reversed(order):
            for child in children[pointer]:
                depths[child] = max(depths[child], depths[pointer] + 1)
    for pointer, depth in depths.items():
        if depth > MAX_CHAIN:
            _refuse(pointer, f"expected at most {MAX_CHAIN} parts within each other, found more")


def _check_multiples(parts: Sequence[Part]) -> None:
    """Refuse numbers of which too much has to be remembered to tell their multiples."""
    numbers: dict[str, Decimal] = {}
    is_combined = False
    for part in parts:
        keywords = ENFORCED.intersection(part.schema if isinstance(part.schema, dict) else ())
        is_combined |= "allOf" in keywords
        is_combined |= len(keywords) > 1 and not keywords.isdisjoint(("$ref", "anyOf", "oneOf"))
        value = part.schema["multipleOf"] if "multipleOf" in keywords else None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            numbers[f"{part.pointer}/multipleOf"] = Decimal(str(value))
    unit = min((number.normalize().as_tuple().exponent for number in numbers.values()), default=0)
    common = 1
    for pointer, number in numbers.items():
        modulus = int(number.scaleb(-int(unit)))
        # Which parts apply to the same number is the library's to know: all may.
        common = math.lcm(common, modulus) if is_combined else modulus
        digits = str(common).rstrip("0")  # powers of ten are seen in the digits
        if len(digits) > 9 or int(digits) > MAX_MODULUS:
            _refuse(pointer, f"its multiples are known by more than {MAX_MODULUS:,} remainders")


def _check_keywords(part: Part) -> None:
    schema = part.schema
    for keyword in list(schema):
        value, place = schema[keyword], f"{part.pointer}/{escaped(keyword)}"
        # In Python, False is 0; in JSON it is not.
        if any(type(value) is type(idle) and value == idle for idle in IDLE.get(keyword, ())):
            del schema[keyword]
        elif keyword in NOT_ENFORCED:
            _refuse(place, "this keyword cannot be enforced while a text is written")
        elif keyword in ("$id", "id") and part.pointer:
            _refuse(place, "a schema within a schema cannot have an identifier of its own")
        elif keyword in ENFORCED:
            _check_value(keyword, value, schema, place)
        elif keyword not in ANNOTATIONS and (
            not keyword.startswith("x-") or keyword == "x-guidance"
        ):
            close = difflib.get_close_matches(keyword, sorted(ENFORCED), n=1)
            raise InvalidOption(
                f"`json_schema`: {_at(place)}: this is no keyword of JSON Schema",
                hint=f"did you mean `{close[0]}`?" if close else "x-… are the names for notes",
            )


def _check_value(keyword: str, value: Json, schema: Json, place: str) -> None:
    for pattern in value if keyword == "patternProperties" and isinstance(value, dict) else [value]:
        if keyword in ("pattern", "patternProperties") and isinstance(pattern, str):
            length = atoms(pattern)
            if length > MAX_ATOMS:
                _refuse(
                    place, f"its repetitions make {length:,} of at most {MAX_ATOMS:,} characters"
                )
    if keyword in (*_BOUNDS, "const", "enum"):
        _check_writable(value, place)
        for item in value if keyword == "enum" and isinstance(value, list) else [value]:
            if len(json.dumps(item)) > MAX_ATOMS:
                _refuse(place, f"expected at most {MAX_ATOMS:,} characters, found more")
        if keyword.startswith("exclusive") and schema.get("type") != "integer":
            # The library would let the bound itself pass.
            bound = schema.get(keyword[9:].lower()) if value is True else value
            if bound == 0 and value is not False:
                _refuse(place, "for other numbers than integers, zero cannot be left out")
    elif keyword in _MAPS_OF_SCHEMAS and not isinstance(value, dict):
        _refuse(place, f"expected an object, found {shown(value)}")
    elif keyword == "properties":
        required = schema.get("required")
        count = len(value.keys() - set(map(str, required if isinstance(required, list) else ())))
        if count > MAX_OPTIONAL:
            _refuse(
                place, f"expected at most {MAX_OPTIONAL:,} that may be left out, found {count:,}"
            )
    elif keyword in _LISTS_OF_SCHEMAS and not isinstance(value, list):
        _refuse(place, f"expected an array, found {shown(value)}")
    elif keyword == "additionalItems" and not isinstance(schema.get("items"), list):
        _refuse(place, "it goes with an array as `items`", hint="after prefixItems, use items")
    elif keyword == "type":
        names = value if isinstance(value, list) and value else [value]
        for name in names:
            if name not in TYPES:
                _refuse(place, f"expected one of {', '.join(TYPES)}; found {shown(name)}")
    elif keyword == "minProperties" and isinstance(value, (int, float)):
        # Names that no keyword lists may come twice, and then count once.
        required = schema.get("required")
        if value > max(1, len(required) if isinstance(required, list) else 0):
            _refuse(place, "more than one property can be enforced only by their names")


def _check_writable(value: Json, place: str) -> None:
    """Refuse what a text cannot say exactly."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_writable(key, place)
            _check_writable(item, f"{place}/{escaped(key)}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            _check_writable(item, f"{place}/{i}")
    elif isinstance(value, int) and abs(value) > MAX_EXACT_INTEGER:
        _refuse(place, f"integers are exact up to {MAX_EXACT_INTEGER:,}, found {shown(value)}")
    elif isinstance(value, str) and not _UNWRITABLE.isdisjoint(value):
        _refuse(place, "control characters without an escape of their own cannot be enforced")


def _referred(reference: Json, root: Json, place: str) -> Part:
    if not isinstance(reference, str):
        _refuse(place, f"expected a reference, found {shown(reference)}")
    if reference not in ("#", "") and not reference.startswith("#/"):
        _refuse(
            place,
            f"only references into this schema are followed, found {shown(reference)}",
            hint='put the schema under "$defs" and refer to it as "#/$defs/name"',
        )
    found, pointer = root, ""
    for name in unquote(reference).split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(key)] if isinstance(found, list) else found[key]
        except (KeyError, IndexError, ValueError, TypeError):
            _refuse(place, f"expected a place in this schema, found {shown(reference)}")
        pointer += f"/{escaped(key)}"
    return Part(found, pointer)


def wrapped(root: Json) -> str:
    """Return the text of a schema that says the same, with no keyword that forbids nothing.

    It stands one level down, where settings of the enforcing library have no effect.
    """
    parts = list(walk(root))
    for part in parts:
        if isinstance(part.schema, dict):
            part.schema.pop("$id", None)
            part.schema.pop("id", None)
            reference = part.schema.get("$ref")
            if reference is not None:
                inner = quote(unquote(reference.removeprefix("#")), safe="/~")
                part.schema["$ref"] = f"#/$defs/schema{inner}"
    return json.dumps({"$defs": {"schema": root}, "$ref": "#/$defs/schema"})


def offender(text: str, refusal: Callable[[str], str]) -> str:
    """Return the pointer of the keyword because of which a schema is refused; "" if of none alone.

    `refusal` says why it refuses a text like those of `wrapped`; "" if it does not.
    """
    suspects = [
        (part.pointer, keyword)
        for part in walk(json.loads(text))
        if isinstance(part.schema, dict)
        for keyword in part.schema
        if keyword in ENFORCED and keyword != "type"  # checked before, and beyond suspicion
    ][:MAX_SUSPECTS]
    # What is deeper first: without `properties` everything in it is gone too.
    suspects.sort(key=lambda suspect: -suspect[0].count("/"))
    reason = refusal(wrapped(json.loads(text)))
    one_of_several = ""  # without it another refusal comes first
    for pointer, keyword in suspects:
        place = f"{pointer}/{escaped(keyword)}"
        found = _without(text, pointer, keyword, refusal)
        if "" in found and len(found) == 1:
            return one_of_several if one_of_several.startswith(f"{place}/") else place
        if reason not in found:
            one_of_several = one_of_several or place
    return one_of_several


def _without(text: str, pointer: str, keyword: str, refusal: Callable[[str], str]) -> set[str]:
    """Return why a schema without one of its keywords is refused; "" if it is not.

    A part that is left without any allows everything, which may hide its neighbours: then it is
    tried with null too.
    """
    found = set()
    for rest in ({}, {"type": "null"}):
        root = json.loads(text)
        part = next(part for part in walk(root) if part.pointer == pointer)
        del part.schema[keyword]
        if ENFORCED.isdisjoint(part.schema):
            part.schema.update(rest)
        try:
            found.add(refusal(wrapped(root)))
        except InvalidOption as error:  # another keyword went with it
            found.add(str(error))
    return found


def escaped(name: str) -> str:
    """Return `name` as a JSON pointer (RFC 6901) spells it."""
    return str(name).replace("~", "~0").replace("/", "~1")


def _at(pointer: str) -> str:
    return shown(pointer)[1:-1] if pointer else "the schema"


def _refuse(
    pointer: str, found: str, hint: str = "leave it out, and check the reply yourself"
) -> NoReturn:
    raise InvalidOption(f"`json_schema`: {_at(pointer)}: {found}", hint=hint)
