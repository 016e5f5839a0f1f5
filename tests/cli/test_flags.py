from __future__ import annotations

import dataclasses

import pytest

from inferno.cli.flags import (
    Parser,
    add_constraint_flags,
    add_engine_flags,
    add_sampling_flags,
    engine_options,
    sampling_options,
)
from inferno.errors import InvalidOption
from inferno.options import SamplingParams

VALUES = {"float": "0.5", "int": "7"}
SPECIAL = {"dry_base": "1.5"}


def parse(*arguments: str):
    parser = Parser("try", usage="try", description="")
    add_engine_flags(parser)
    add_sampling_flags(parser)
    add_constraint_flags(parser)
    return parser.parse(list(arguments))


def numeric_fields():
    for field in dataclasses.fields(SamplingParams):
        kind = str(field.type).split(" ")[0]
        # Log probabilities have nowhere to be shown, and there is one reply.
        if kind in VALUES and field.name not in ("logprobs", "choice"):
            value = SPECIAL.get(field.name, VALUES[kind])
            yield pytest.param(field.name, value, id=field.name)


@pytest.mark.parametrize(("name", "value"), list(numeric_fields()))
def test_each_number_of_the_sampling_params_has_a_flag(name, value):
    options = sampling_options(parse("--" + name.replace("_", "-"), value))
    assert options == {name: float(value)}


def test_flags_that_are_not_given_leave_no_trace():
    assert sampling_options(parse()) == {}
    assert engine_options(parse()) == {}


def test_stop_can_be_repeated():
    assert sampling_options(parse("--stop", "a", "--stop", "b")) == {"stop": ["a", "b"]}


def test_speculation_is_a_mode_or_a_number():
    assert sampling_options(parse("--speculation", "off")) == {"speculation": "off"}
    assert sampling_options(parse("--speculation", "4")) == {"speculation": 4}
    for wrong in ("17", "0", "-1", "on", "4.5", "9" * 5000, "\u0664"):
        with pytest.raises(InvalidOption, match="speculation"):
            sampling_options(parse("--speculation", wrong))


def test_a_schema_is_a_text_or_a_file_and_a_grammar_a_file(tmp_path):
    schema, grammar = tmp_path / "schema.json", tmp_path / "yes.gbnf"
    schema.write_text('{"type": "null"}')
    grammar.write_text('root ::= "yes"')
    for text in ('{"type": "null"}', str(schema)):
        options = sampling_options(parse("--json-schema", text))
        assert options == {"json_schema": '{"type": "null"}'}
    assert sampling_options(parse("--grammar", str(grammar))) == {"grammar": 'root ::= "yes"'}
    assert sampling_options(parse("--regex", "a+")) == {"regex": "a+"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("--json-schema", "missing.json"),
        ("--json-schema", '{"not": {}}'),
        ("--json-schema", "{"),
        ("--json-schema", '{"format": "colour"}'),
        ("--grammar", "missing.lark"),
        ("--grammar", __file__),
        ("--regex", "("),
        ("--regex", "a", "--json-schema", "true"),
    ],
)
def test_a_constraint_that_is_wrong_is_told_before_a_model_is_loaded(arguments):
    with pytest.raises(InvalidOption, match=arguments[0].strip("-").split("-")[-1]):
        sampling_options(parse(*arguments))


def test_engine_flags_become_keywords_of_load():
    flags = "--threads 2 --context 64 --weights q4_0 --kv-cache q8_0 --isa scalar"
    assert engine_options(parse(*flags.split())) == {
        "threads": 2,
        "context": 64,
        "weights": "q4_0",
        "kv_cache": "q8_0",
        "isa": "scalar",
    }


def test_a_value_out_of_range_is_refused_by_its_name():
    with pytest.raises(InvalidOption, match="`min_p`: expected a number in"):
        sampling_options(parse("--min-p", "1.5"))


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999", "one", "", "9" * 5000, "\udcff"])
@pytest.mark.parametrize("name", [param.id for param in numeric_fields()])
def test_what_is_no_number_is_refused_by_the_name_of_its_flag(name, value):
    flag = "--" + name.replace("_", "-")
    with pytest.raises(InvalidOption, match=f"{name}|{flag}") as caught:
        sampling_options(parse(f"{flag}={value}"))
    assert len(str(caught.value)) < 1000


def test_an_abbreviated_flag_is_refused():
    with pytest.raises(InvalidOption, match="--temp"):
        parse("--temp", "1")
