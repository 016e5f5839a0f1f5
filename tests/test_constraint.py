"""Constrained output: every text that ends is one that the constraint allows, and nothing else of
the loop is different for it."""

from __future__ import annotations

import contextlib
import json
import random
import re
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engines
import schemas
import vocabularies
from inferno import Engine, InvalidOption, SamplingParams, _native
from inferno.constraint import Constraint, Constraints, Source, check
from inferno.speculation import Drafter
from inferno.tokenizer import Tokenizer

HOT: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
COLOUR = {"enum": ["red", "green", "blue"]}
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "favourite_colour": COLOUR,
        "is_human": {"type": "boolean"},
    },
    "required": ["name", "age", "favourite_colour", "is_human"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", params=["stories_gguf", "llama_gguf"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """A SentencePiece-like vocabulary that has learned to write, a byte-level one at random."""
    return engines.load(request.getfixturevalue(request.param))


@pytest.fixture(scope="module")
def stories(stories_gguf: Path) -> Engine:
    return engines.load(stories_gguf)


def prompt(engine: Engine) -> list[int]:
    return engine.tokenizer.encode("Once upon a time")


# ---- JSON ----------------------------------------------------------------------------------------

SCHEMAS: list[Any] = [
    PERSON,
    COLOUR,
    {"type": "null"},
    {"type": "boolean"},
    {"type": "integer", "minimum": -7, "exclusiveMaximum": 31, "multipleOf": 3},
    {"type": "number", "minimum": 0.25, "maximum": 2, "multipleOf": 0.25},
    {"type": "string", "minLength": 2, "maxLength": 4},
    {"type": "string", "pattern": "^(ab|[0-9]{2})+$", "maxLength": 8},
    {"type": "string", "format": "date"},
    {"type": "string", "format": "ipv4"},
    {"const": {"a": [1, None, "\u00e9\n"], "b/c": 0.5}},
    {"enum": [1, "one", None, [True]]},
    {"type": ["integer", "null"], "maximum": 99, "minimum": 0},
    {"type": "array", "items": COLOUR, "minItems": 2, "maxItems": 3},
    {"type": "array", "prefixItems": [COLOUR, {"type": "null"}], "items": False, "minItems": 2},
    {"anyOf": [COLOUR, {"type": "null"}]},
    {"oneOf": [{"type": "boolean"}, COLOUR]},
    {"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 5}]},
    {"$ref": "#/$defs/c", "$defs": {"c": COLOUR, "unused": {"not": {}}}},
    {
        "type": "object",
        "properties": {"value": COLOUR, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        "required": ["value", "next"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"~/": {"$ref": "#/properties/a~1b"}, "a/b": COLOUR},
        "required": ["~/", "a/b"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "patternProperties": {"^[ab]$": {"type": "boolean"}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 2,
    },
    {"type": "object", "additionalProperties": COLOUR, "maxProperties": 1},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:40])
def test_every_json_that_ends_is_valid(engine: Engine, schema: Any) -> None:
    validator = jsonschema.Draft202012Validator(schema)
    ended = 0
    for seed in range(4):
        generation = engine.generate(
            prompt(engine), json_schema=schema, seed=seed, max_tokens=150, **HOT
        )
        if generation.finish_reason == "stop":
            ended += 1
            validator.validate(json.loads(generation.text))
    assert ended


def test_any_json_or_any_object_may_be_asked_for(engine: Engine) -> None:
    for schema, kind in ((True, object), ({}, object), ({"type": "object"}, dict)):
        for seed in range(12):
            generation = engine.generate(
                prompt(engine), json_schema=schema, seed=seed, max_tokens=60, **HOT
            )
            if generation.finish_reason == "stop":
                assert isinstance(json.loads(generation.text), kind)
            elif kind is dict:
                assert generation.text.startswith("{")


def test_a_schema_and_its_text_ask_for_the_same(engine: Engine) -> None:
    options: dict[str, Any] = {"seed": 1, "max_tokens": 80, **HOT}
    a = engine.generate(prompt(engine), json_schema=PERSON, **options)
    b = engine.generate(prompt(engine), json_schema=json.dumps(PERSON), **options)
    assert a.tokens == b.tokens


def test_a_name_cannot_come_twice_by_another_spelling() -> None:
    """JSON can write "a" as "\\u0061"; the value of the later one would be the one that counts."""
    schema = {"properties": {"a": {"type": "integer"}}, "type": "object"}
    follow(Source("json_schema", json.dumps(schema)), '{"a":1,"b":"x"}')
    for text in ('{"a":1,"a":"x"}', '{"a":1,"\\u0061":"x"}'):
        with pytest.raises(AssertionError):
            follow(Source("json_schema", json.dumps(schema)), text)


def test_blanks_between_tokens_are_bounded() -> None:
    source = Source("json_schema", '{"type": "array"}')
    follow(source, "[\n  1, 2\n]")
    for text in ("[   1]", "[\n\n1]", " [1]", "[1]\n"):
        with pytest.raises(AssertionError):
            follow(source, text)


def follow(source: Source, text: str, tokenizer: Tokenizer | None = None) -> None:
    """Assert that `text` may come, and be all."""
    tokenizer = tokenizer or vocabularies.byte_level()
    constraints = Constraints(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids)
    constraint = constraints.constraint(source, previous=50, ignore_eos=False)
    rest = text.encode()
    while rest:
        pieces = {id: tokenizer.token_bytes(id) for id in allowed(constraint.mask().words)}
        fitting = [id for id, piece in pieces.items() if piece and rest.startswith(piece)]
        assert fitting
        constraint.accept(id := max(fitting, key=lambda id: len(pieces[id])))
        rest = rest[len(pieces[id]) :]
    assert constraint.mask().may_end


def allowed(words: Any) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist())


def written(constraint: Constraint, tokenizer: Tokenizer, choices: random.Random) -> str | None:
    """Return a text of random tokens that the constraint allows; None if it got too long."""
    text = b""
    for _ in range(60):
        mask = constraint.mask()
        if mask.may_end and (not mask.has_tokens or choices.random() < 0.4):
            return text.decode()
        ids = sorted(allowed(mask.words) - set(tokenizer.eos_ids))
        token = choices.choice(ids)
        constraint.accept(token)
        text += tokenizer.token_bytes(token)
        if constraint.is_complete:
            return text.decode()
    return None


def at(schema: Any, pointer: str) -> Any:
    """Return what a JSON pointer points at."""
    for name in pointer.split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        schema = schema[int(key)] if isinstance(schema, list) else schema[key]
    return schema


BYTES = vocabularies.byte_level()
RANDOM = Constraints(BYTES, BYTES.vocab_size, BYTES.eos_ids)


@settings(max_examples=150, deadline=None)
@given(schemas.SCHEMAS, st.integers(0, 2**32))
def test_a_random_schema_is_kept_to_or_refused_with_a_pointer(schema: Any, seed: int) -> None:
    try:
        source = Source.of(SamplingParams(json_schema=schema))
        assert source is not None
        constraint = RANDOM.constraint(source, previous=50, ignore_eos=False)
        text = written(constraint, BYTES, random.Random(seed))
    except InvalidOption as error:
        if "expected one that some text satisfies" in error.message:
            return  # nothing is valid under it
        found = re.match(r"`json_schema`: (/.*?|the schema): ", error.message)
        assert found, error.message
        if "..." not in found[1] and found[1] != "the schema":
            at(schema, found[1])
        return
    if text is not None:
        value = json.loads(text)
        with contextlib.suppress(RecursionError):  # the oracle follows circles without end
            jsonschema.Draft202012Validator(schema).validate(value)


# ---- expressions and grammars --------------------------------------------------------------------


@pytest.mark.parametrize(
    "regex",
    [
        "(yes|no)",
        "[a-c]{3,9}",
        "a*b?",
        " x",
        "(?i)ab|é{1,3}",
        "[0-9]{4}-[0-9]{2}",
        "[\u4e00-\u4e9f]{1,2}",
        "😀+",
    ],
)
def test_every_text_that_ends_matches_the_expression(engine: Engine, regex: str) -> None:
    ended = 0
    for seed in range(5):
        generation = engine.generate(prompt(engine), regex=regex, seed=seed, max_tokens=60, **HOT)
        if generation.finish_reason == "stop":
            ended += 1
            assert re.fullmatch(regex, generation.text)
    assert ended


LARK = 'start: "(" start ")" | "-" start | /[0-9a-f]/'
GBNF = 'root ::= "(" root ")" | "-" root | digit  # one digit\ndigit ::= [0-9a-f]\n'


@pytest.mark.parametrize("grammar", [LARK, GBNF], ids=["Lark", "GBNF"])
def test_every_text_that_ends_is_derived_by_the_grammar(engine: Engine, grammar: str) -> None:
    ended = 0
    for seed in range(8):
        generation = engine.generate(
            prompt(engine), grammar=grammar, seed=seed, max_tokens=60, **HOT
        )
        if generation.finish_reason == "stop":
            ended += 1
            text = generation.text
            while re.fullmatch(r"-.+|\(.+\)", text):
                text = text[1:] if text[0] != "(" else text[1:-1]
            assert re.fullmatch("[0-9a-f]", text)
    assert ended


ARITHMETIC = r"""
root  ::= (sum "=" ws term "\n")+   # the end of a line is white space too
sum   ::= term ([-+*/] term)*
term  ::= name | [0-9]+ ws | "(" ws sum ")" ws
name  ::= [a-z] [a-z0-9_]* ws
ws    ::= [ \t\n]*
"""
TAGS = r"""
root ::= (text | tag)*
text ::= [^<>]+
tag  ::= "<" name ">" root "</" name ">"
name ::= [a-z]+
"""


@pytest.mark.parametrize(
    ("gbnf", "texts", "others"),
    [
        (r'root ::= "\x41\u00e9\U0001F600"', ["Aé😀"], ["A", "Aé"]),
        (r"root ::= [\u00e9-\u00eb]+", ["é", "éë"], ["", "e", "ü"]),
        ("root ::= .", ["a", "\n", "é"], ["", "ab"]),
        ('root ::= "a.b" [.] # .', ["a.b."], ["axb.", "a.bx"]),
        (r'root ::= "\"\\\n" [^"\\\x00-\x1f]', ['"\\\na'], ['"\\\n"', '"\\\n\x07']),
        ('root ::= a b\na ::= [a-z]+\nb ::= "x"', ["ax", "axx", "abx"], ["x", "xa"]),
        ('root ::= [a-z]* "end" # root\n', ["end", "bend", "endend"], ["root", "ended"]),
        ('root ::= "(" root ")" | sub-root\nsub-root ::= "root"', ["(root)"], ["(", "()"]),
        ('r ::= "(" r ")" | [a-z]+ "x" | "xyz" " "*\nroot ::= r " "', ["axx ", "(xyz ) "], ["a "]),
        (ARITHMETIC, ["a +2 =(b)\n", "1=2 \n\na=a\n"], ["a+2=(b)"]),
        (TAGS, ["a <b>c<i>d</i></b>", "<a></a>"], ["<a>", "<a></>"]),
        ('root ::= a-b | "x"{2,3}\na-b ::= "tab\t"', ["tab\t", "xx", "xxx"], ["x", "xxxx"]),
    ],
)
def test_gbnf_means_what_llama_cpp_says(gbnf: str, texts: list[str], others: list[str]) -> None:
    for text in texts:
        follow(Source("grammar", gbnf), text)
    for text in others:
        with pytest.raises(AssertionError):
            follow(Source("grammar", gbnf), text)


# ---- characters and spaces -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "tokenizer", [vocabularies.byte_level, vocabularies.sentencepiece_like, vocabularies.stories]
)
def test_a_character_may_come_as_its_bytes_or_whole(tokenizer: Any) -> None:
    tokenizer = tokenizer()
    constraints = Constraints(tokenizer, tokenizer.vocab_size, tokenizer.eos_ids)
    source = Source("regex", "(é|界|😀)x?")
    for text in ("é", "界", "😀x"):
        constraint = constraints.constraint(source, previous=50, ignore_eos=False)
        for id in tokenizer.encode(text, previous=50):
            assert id in allowed(constraint.mask().words)
            constraint.accept(id)
        assert constraint.mask().may_end


@pytest.mark.parametrize("regex", ["[A-Z][a-z]{2,5}", " [a-z]{2,5}", "  ?[a-z]{1,3}"])
def test_a_space_that_is_dropped_is_no_part_of_the_text(stories: Engine, regex: str) -> None:
    """After BOS the text of "▁Once" is "Once"; it is the text that must match, not the token."""
    spaced = 0
    for seed in range(12):
        generation = stories.generate("", regex=regex, seed=seed, max_tokens=30, **HOT)
        assert generation.finish_reason == "stop"
        assert re.fullmatch(regex, generation.text)
        spaced += stories.tokenizer.token_bytes(generation.tokens[0]).startswith(b" ")
    assert spaced


# ---- the end -------------------------------------------------------------------------------------


def test_text_ends_where_nothing_can_follow(engine: Engine) -> None:
    for ignore_eos in (False, True):
        generation = engine.generate(
            prompt(engine), regex="ab{3}c", ignore_eos=ignore_eos, temperature=0
        )
        assert (generation.text, generation.finish_reason) == ("abbbc", "stop")


def test_text_may_be_empty(engine: Engine) -> None:
    generation = engine.generate(prompt(engine), grammar='start: ""', temperature=0)
    assert (generation.text, generation.tokens, generation.finish_reason) == ("", (), "stop")


def test_the_end_token_is_allowed_exactly_where_the_text_may_end(engine: Engine) -> None:
    """It is wanted more than anything, and comes as soon as it may."""
    [end, *_] = engine.stop_ids
    eager = {"logit_bias": {end: 100}, "temperature": 0}
    generation = engine.generate(prompt(engine), regex="(abc)+", **eager)
    assert (generation.text, generation.finish_reason) == ("abc", "stop")
    assert end not in generation.tokens


def test_an_end_that_is_ignored_does_not_come(engine: Engine) -> None:
    eager = {"logit_bias": dict.fromkeys(engine.stop_ids, 100), "ignore_eos": True}
    generation = engine.generate(prompt(engine), regex="a*", max_tokens=20, **eager)
    assert set(generation.text) == {"a"}
    assert (len(generation.tokens), generation.finish_reason) == (20, "length")


def test_control_tokens_do_not_come_even_if_the_grammar_would_match_their_text(
    engine: Engine,
) -> None:
    control = set(engine.tokenizer.control_tokens.values())
    wanted = {"logit_bias": dict.fromkeys(control, 100)}
    for seed in range(3):
        generation = engine.generate(
            prompt(engine), regex="[^x]{20}", seed=seed, max_tokens=40, **wanted
        )
        assert control.isdisjoint(generation.tokens)


def test_a_limit_within_the_json_ends_with_length(engine: Engine) -> None:
    generation = engine.generate(prompt(engine), json_schema=PERSON, max_tokens=5, seed=1)
    assert (len(generation.tokens), generation.finish_reason) == (5, "length")
    assert generation.text.startswith("{")


def test_a_stop_string_ends_a_constrained_text(engine: Engine) -> None:
    generation = engine.generate(prompt(engine), regex="abc: [0-9]{30}", stop=": ", seed=1)
    assert (generation.text, generation.finish_reason) == ("abc", "stop")


# ---- what does not matter ------------------------------------------------------------------------

SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"seed": 3, **HOT},
    {"seed": 4, **HOT, "repetition_penalty": 1.2, "frequency_penalty": 0.1, "top_k": 30},
]
# The long literals leave no choice for many tokens.
SOURCES: list[dict[str, Any]] = [
    {"json_schema": PERSON},
    {"regex": "(the quick brown fox jumps over [a-z ]{5,12}, ){3}and that is all\\."},
    {"grammar": 'start: ("one " | "two " | "one two three four ")~6'.replace("~6", "{6}")},
]


def seen(generation: Any) -> tuple[Any, ...]:
    return (
        generation.text,
        generation.tokens,
        generation.finish_reason,
        generation.logprobs,
    )


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled", "penalties"])
@pytest.mark.parametrize("source", SOURCES, ids=["schema", "regex", "grammar"])
def test_speculation_changes_no_constrained_text(
    engine: Engine, source: dict[str, Any], sampling: dict[str, Any]
) -> None:
    options = {**source, **sampling, "max_tokens": 120, "logprobs": 2}
    plain = engine.generate(prompt(engine), speculation="off", **options)
    assert plain.stats.drafted == 0
    for speculation in ("auto", 1, 5, 16):
        other = engine.generate(prompt(engine), speculation=speculation, **options)
        assert seen(other) == seen(plain)
        assert other.stats.drafted > 0
    own = (*plain.tokens[:3], 5, 6, *plain.tokens[3:])
    predicted = engine.generate(prompt(engine), prediction=own, **options)
    assert seen(predicted) == seen(plain)


def test_what_must_follow_is_accepted_as_a_guess(stories: Engine) -> None:
    generation = stories.generate(
        prompt(stories), regex="[ab]the cat sat on the mat and was happy[ab]", seed=1, **HOT
    )
    assert generation.stats.accepted > len(generation.tokens) / 3


def test_guesses_that_the_grammar_forbids_change_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**SOURCES[0], "seed": 3, "max_tokens": 80, **HOT}
    plain = engine.generate(prompt(engine), speculation="off", **options)

    def wrong(self: Drafter, ids: Any, *rest: Any) -> list[int]:
        return [(7 * id + 1) % 90 for id in [5, *ids][-3:]][: max(0, rest[-1])]

    monkeypatch.setattr(Drafter, "draft", wrong)
    monkeypatch.setattr(Drafter, "draft_forced", wrong)
    monkeypatch.setattr("inferno.constraint.Constraint.possible", lambda self, draft: draft)
    other = engine.generate(prompt(engine), **options)
    assert other.stats.drafted > 0
    assert seen(other) == seen(plain)


@pytest.mark.parametrize("isa", _native.isas())
def test_a_constrained_text_is_the_same_on_every_machine(stories_gguf: Path, isa: str) -> None:
    options = {**SOURCES[0], "seed": 7, "max_tokens": 80, "logprobs": 2, **HOT}
    expected = seen(engines.load(stories_gguf, isa="scalar").generate("Once", **options))
    for threads in (1, 3):
        engine = engines.load(stories_gguf, isa=isa, threads=threads)
        assert seen(engine.generate("Once", **options)) == expected


def test_a_text_that_was_begun_and_forked_goes_on_under_a_constraint(stories: Engine) -> None:
    session = stories.new_session()
    session.feed("Once upon a time")
    options = {**SOURCES[0], "seed": 7, "max_tokens": 80, **HOT}
    expected = seen(session.fork().generate(**options))
    streams = [session.fork().generate(**options) for _ in range(3)]
    for pieces in zip(*streams, strict=True):  # in turns
        assert len(set(pieces)) == 1
    assert [seen(stream) for stream in streams] == [expected] * 3


def test_log_probabilities_are_those_of_the_raw_logits(stories: Engine) -> None:
    ids = prompt(stories)
    generation = stories.generate(ids, regex="[xyz]{6}", logprobs=1, seed=1, **HOT)
    logits = stories.logits([*ids, *generation.tokens]).astype(np.float64)
    for row, entry in zip(logits[len(ids) - 1 :], generation.logprobs, strict=False):
        expected = row[entry.token] - np.log(np.exp(row - row.max()).sum()) - row.max()
        assert entry.logprob == pytest.approx(expected, abs=1e-5)


def test_a_mask_is_computed_once_a_token_and_not_while_nobody_looks(stories: Engine) -> None:
    """A generation that is not read on leaves nothing running."""
    generation = stories.generate("Once", **SOURCES[0], seed=1, **HOT)
    next(iter(generation))
    generation.cancel()
    assert generation.finish_reason == "cancelled"


# ---- what is refused -----------------------------------------------------------------------------


def chain_of_rules(form: str, count: int) -> str:
    """Return a grammar of rules that each have the next one twice; `form` is filled with both."""
    name = form.split("{")[0]
    rules = (form.format(i, f"{name}{i + 1} {name}{i + 1}") for i in range(count))
    equals = "::=" if "::=" in form else ":"
    first = "root" if "::=" in form else "start"
    return "\n".join([f"{first} {equals} {name}0", *rules, f'{name}{count} {equals} "a"'])


@pytest.mark.parametrize(
    ("option", "found"),
    [
        ({"regex": r"[^\s\S]"}, "`regex`"),
        ({"regex": "("}, "unclosed group"),
        ({"regex": "(?=a)b"}, "look-around"),
        ({"regex": "a{4000000000}"}, "`regex`"),
        ({"regex": "(a{1000}){1000}"}, "`regex`"),
        ({"regex": "(" * 2000 + ")" * 2000}, "`regex`"),
        ({"regex": "a" * 60_000}, "at most 50,000 characters"),
        ({"grammar": 'start: X\nX: Y{1000}\nY: Z{1000}\nZ: "a"'}, "at most 50,000 characters"),
        ({"grammar": chain_of_rules("A{}: {}", 20)}, "at most 50,000 characters"),
        ({"grammar": chain_of_rules("A{}: {}", 4000)}, "at most 2,000 rules"),
        ({"grammar": chain_of_rules("a{}: {} | 'b'", 4000)}, "at most 2,000 rules"),
        ({"grammar": chain_of_rules("a{} ::= {}", 4000)}, "at most 2,000 rules"),
        ({"grammar": 'start: X\nX: Y\nY: X | "a"'}, "`grammar`"),
        ({"grammar": "nonsense"}, "`start:`, or GBNF"),
        ({"grammar": 'start: start "a"'}, "`grammar`"),
        ({"grammar": "start: /[^\\s\\S]/"}, "`grammar`"),
        ({"grammar": 'start: "a" start'}, "`grammar`"),
        ({"grammar": "start: missing"}, "missing"),
        ({"grammar": "start: <[1-2]>"}, "no token of this vocabulary"),
        ({"grammar": "root ::= missing"}, "missing"),
        ({"grammar": "root ::= root"}, "`grammar`"),
        ({"grammar": 'root ::= "a"\nroot ::= "b"'}, "one definition of each rule"),
        ({"grammar": 'root ::= "a" <[3]>'}, "cannot be read"),
        ({"grammar": r'root ::= "\ud800"'}, "expected a character"),
        ({"grammar": "root ::= " + "(" * 5000 + '"a"' + ")" * 5000}, "`grammar`"),
        ({"grammar": 'start: %json {"uniqueItems": true}'}, "%json: /uniqueItems"),
        ({"grammar": 'start: %json {"type": "object"'}, "schema after %json"),
        ({"grammar": "start: %json"}, "schema after %json"),
        ({"grammar": "start: %json " + "[" * 5000}, "schema after %json"),
        ({"grammar": 'start[temperature=2]: "a"'}, "temperature"),
        ({"json_schema": {"$ref": "#"}}, "none does"),
        ({"json_schema": False}, "`json_schema`"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_constraint_that_allows_nothing_is_an_error(
    stories: Engine, option: dict[str, Any], found: str
) -> None:
    with pytest.raises(InvalidOption, match=found) as caught:
        str(stories.generate("Once", max_tokens=8, temperature=0, **option))
    assert len(str(caught.value)) < 500


def test_a_grammar_holds_schemas_as_json_schema_does(engine: Engine) -> None:
    grammar = f"""
        start: "//%json /a/ " /%json/ " " person // %json of no concern
        person: %json {json.dumps({**PERSON, "title": 'a // "%json" / of it'})}
    """
    for seed in range(4):
        reply = engine.generate(prompt(engine), grammar=grammar, seed=seed, max_tokens=200, **HOT)
        assert reply.finish_reason == "stop"
        head, found = reply.text[:16], reply.text[16:]
        assert head == "//%json /a/ %jso"
        jsonschema.validate(json.loads(found.removeprefix("n ")), PERSON)
        assert "\\u" not in found


def test_control_tokens_come_and_show_if_the_grammar_names_them_and_they_are_visible(
    engine: Engine,
) -> None:
    name, id = next(iter(engine.tokenizer.control_tokens.items()))
    others = [token for token in engine.stop_ids if token != id]
    grammar = f'start: "ab" <[{id}]> "cd"'
    options = {"grammar": grammar, "temperature": 0, "ignore_eos": id in engine.stop_ids}
    reply = engine.generate(prompt(engine), visible_tokens=(id,), **options)
    assert reply.text == f"ab{name}cd"
    assert id in reply.tokens
    with pytest.raises(InvalidOption, match="no token of this vocabulary"):
        str(engine.generate(prompt(engine), visible_tokens=tuple(others), **options))
    with pytest.raises(InvalidOption, match="visible_tokens"):
        engine.generate(prompt(engine), visible_tokens=(10**6,))


def test_a_text_that_leads_nowhere_is_an_error_and_no_loop(stories: Engine) -> None:
    """Bans leave the grammar without a token in mid-text."""
    ids = stories.tokenizer.ids_containing("b")
    generation = stories.generate("Once", regex="aab", suppress_tokens=tuple(ids), temperature=0)
    with pytest.raises(InvalidOption, match="every token that the constraint allows"):
        str(generation)
    assert len(generation._tokens) == 2


def test_a_vocabulary_that_cannot_spell_a_text_is_an_error() -> None:
    tokenizer = vocabularies.byte_level()
    few = max(tokenizer.encode("a")) + 1  # the letters are in order
    constraints = Constraints(tokenizer, few, ())
    constraint = constraints.constraint(Source("regex", "aa?z"), previous=5, ignore_eos=False)
    with pytest.raises(InvalidOption, match="not at an end"):
        for _ in range(100):
            constraint.accept(allowed(constraint.mask().words).pop())
            assert not constraint.is_complete


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"properties": {"a": {"type": "string", "format": "color"}}}, "/properties/a/format"),
        ({"items": {"pattern": "(?=a)", "type": "string"}}, "/items/pattern"),
        ({"anyOf": [{"type": "null"}, {"pattern": "("}]}, "/anyOf/1/pattern"),
        ({"oneOf": [{"type": "string"}, {"minLength": 2}]}, "/oneOf"),
        ({"properties": {"a": {"type": "integr"}}}, "/properties/a/type"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"multipleOf": 0}}}, "/$defs/x/multipleOf"),
        ({"patternProperties": {"^a": {}, "b": {}}}, "/patternProperties"),
        (
            {"properties": {"a": {"format": "x"}, "b": {"oneOf": [{}, {}]}}},
            "/properties/a/format",
        ),
        ({"type": "integer", "minimum": 5, "maximum": 3}, "/m"),
    ],
)
def test_what_the_library_refuses_has_a_pointer(schema: Any, pointer: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        check(SamplingParams(json_schema=schema))
    assert f": {pointer}" in caught.value.message


def test_a_mistake_is_told_before_anything_is_generated(stories: Engine) -> None:
    with pytest.raises(InvalidOption):
        stories.generate("Once", regex="(")
    with pytest.raises(InvalidOption):
        check(SamplingParams(grammar="x"))
    check(SamplingParams(regex="a+"))
    check(SamplingParams())


def test_constraints_are_compiled_once(stories: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = []
    original = Source.compiled
    monkeypatch.setattr(Source, "compiled", lambda self: compiled.append(self) or original(self))
    for seed in range(3):
        str(stories.generate("Once", regex="only once [ab]", seed=seed))
    assert len(compiled) == 1
    for i in range(40):
        stories.generate("Once", regex=f"x{i}")
    assert len(stories._constraints._matchers) <= 32
