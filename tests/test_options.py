"""SamplingParams: what it takes, what it refuses by name, how the caller's values are merged."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from inferno import InvalidOption, SamplingParams
from inferno.excerpt import shown

FIELDS = {field.name: field for field in dataclasses.fields(SamplingParams)}

# What is absurd whatever the field: no field takes a set, an object or a complex number.
ANYWHERE = [{1, 2}, object(), 1j, b"1", math.nan, -math.nan, math.inf, -math.inf, 10**5000]
HUGE = 10**400  # an integer that no float can hold

ABSURD: dict[str, list[Any]] = {
    "temperature": [-1, -1e-9, 101, HUGE, -HUGE, "0.8", True, None, [0.8]],
    "top_k": [-1, 2**31, HUGE, 1.0, "40", True, None],
    "top_p": [0, 0.0, -0.1, 1.0001, HUGE, "0.95", True, None],
    "typical_p": [0, -0.1, 1.0001, HUGE, "1", True, None],
    "min_p": [-0.1, 1.0001, HUGE, "0.05", True, None],
    "repetition_penalty": [0, -1, 1e-300, 0.0099, 101, HUGE, "1", True, None],
    "presence_penalty": [-101, 101, HUGE, -HUGE, "0", True, None],
    "frequency_penalty": [-101, 101, HUGE, -HUGE, "0", True, None],
    "repeat_last_n": [-1, 2**31, HUGE, 1.0, "64", True],
    "dry_multiplier": [-0.1, 101, HUGE, "1", True, None],
    "dry_base": [0, 0.99, 101, HUGE, "1.75", True, None],
    "dry_allowed_length": [0, -1, 2**31, HUGE, 2.0, "2", True, None],
    "dry_penalty_last_n": [-1, 2**31, HUGE, 1.0, "64", True],
    "dry_sequence_breakers": ["", [""], ["a", "\ud800"], [5], [None], 5, True, None, {"a": 1}],
    "xtc_probability": [-0.1, 1.1, HUGE, "0.5", True, None],
    "xtc_threshold": [0, -0.1, 1.1, HUGE, "0.1", True, None],
    "visible_tokens": [5, None, [-1], ["1"], [True]],
    "suppress_tokens": [5, "5", None, {5: 1}, [-1], [2**31], [HUGE], [1.0], ["1"], [True], [None]],
    "choice": [-1, 2**32, HUGE, 1.0, "1", True, None],
    "logit_bias": [
        {-1: 1},
        {2**31: 1},
        {HUGE: 1},
        {10**5000: 1},
        {1.0: 1},
        {True: 1},
        {None: 1},
        {"one": 1},
        {"": 1},
        {"9" * 5000: 1},
        {1: -101},
        {1: 101},
        {1: HUGE},
        {1: 10**5000},
        {1: math.nan},
        {1: math.inf},
        {1: "1"},
        {1: None},
        {1: True},
        [(1, 1.0)],
        "1",
        None,
        5,
    ],
    "seed": [-1, 2**64, HUGE, 1.0, "1", True],
    "max_tokens": [-1, 2**31, HUGE, 1.0, "1", True],
    "stop": [
        "\udc80",
        ["a", "\ud800"],
        "",
        [""],
        ["a", ""],
        [b"a"],
        [5],
        [None],
        5,
        True,
        {"a": 1},
        None,
    ],
    "ignore_eos": [0, 1, "true", None],
    "logprobs": [-1, 21, HUGE, 1.0, "1", True, None],
    "speculation": ["on", "", "AUTO", "4", 0, -1, 17, HUGE, 4.0, True, None, ["auto"], {}],
    "prediction": [5, {"a": 1}, True, 1.0, [-1], [2**31], [HUGE], ["a"], [1.0], [True], [None]],
    "json_schema": [0, "", "{", [], "NaN", {1: {}}, {"not": {}}, {"a": "b"}, [[]] * 3, "[" * 10**5],
    "regex": ["", 5, True, ["a"], "\ud800", "a" * 1_000_001],
    "grammar": ["", 5, True, ["a"], "\ud800", "a" * 1_000_001],
}


def cases() -> list[Any]:
    return [
        pytest.param(name, value, id=f"{name}-{shown(value)[:20]}")
        for name, values in ABSURD.items()
        for value in [*values, *ANYWHERE]
    ]


def test_every_field_is_tried_with_absurd_values() -> None:
    assert set(ABSURD) == set(FIELDS)


@pytest.mark.parametrize(("name", "value"), cases())
def test_an_absurd_value_is_an_error_that_names_the_field(name: str, value: Any) -> None:
    for make in (SamplingParams, SamplingParams().merged):
        with pytest.raises(InvalidOption) as caught:
            make(**{name: value})
        assert f"`{name}" in caught.value.message
        assert len(caught.value.message) < 1000


SOUND: dict[str, list[Any]] = {
    "temperature": [0, 0.0, 1e-30, 1, 100],
    "top_k": [0, 1, 2**31 - 1],
    "top_p": [1e-9, 0.5, 1, 1.0],
    "typical_p": [1e-9, 0.5, 1, 1.0],
    "min_p": [0, 0.5, 1],
    "repetition_penalty": [0.01, 1, 100],
    "presence_penalty": [-100, 0, 100],
    "frequency_penalty": [-100, 0, 100],
    "repeat_last_n": [None, 0, 2**31 - 1],
    "dry_multiplier": [0, 100],
    "dry_base": [1, 100],
    "dry_allowed_length": [1, 2**31 - 1],
    "dry_penalty_last_n": [None, 0, 2**31 - 1],
    "dry_sequence_breakers": [(), ("a", "bc")],
    "xtc_probability": [0, 1],
    "xtc_threshold": [1e-9, 1],
    "suppress_tokens": [(), (0, 2**31 - 1)],
    "visible_tokens": [(), (3,)],
    "choice": [0, 2**32 - 1],
    "logit_bias": [{}, {0: -100, 2**31 - 1: 100}],
    "seed": [None, 0, 2**64 - 1],
    "max_tokens": [None, 0, 2**31 - 1],
    "stop": [(), ("a",), ("a", "b" * 10_000)],
    "ignore_eos": [True, False],
    "logprobs": [0, 20],
    "speculation": ["auto", "off", 1, 16],
    "prediction": [None, "", "text", (), (0, 2**31 - 1)],
    "json_schema": [None, "true", '{"type": "object"}'],
    "regex": [None, "a*"],
    "grammar": [None, "root ::= "],
}


@pytest.mark.parametrize("name", FIELDS)
def test_the_ends_of_a_range_are_in_it(name: str) -> None:
    for value in SOUND[name]:
        assert getattr(SamplingParams(**{name: value}), name) == value


def test_the_defaults_are_those_documented() -> None:
    assert dataclasses.asdict(SamplingParams()) == {
        "temperature": 0.8,
        "top_k": 40,
        "typical_p": 1.0,
        "top_p": 0.95,
        "min_p": 0.05,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "repeat_last_n": None,
        "dry_multiplier": 0.0,
        "dry_base": 1.75,
        "dry_allowed_length": 2,
        "dry_penalty_last_n": None,
        "dry_sequence_breakers": ("\n", ":", '"', "*"),
        "xtc_probability": 0.0,
        "xtc_threshold": 0.1,
        "logit_bias": {},
        "suppress_tokens": (),
        "visible_tokens": (),
        "seed": None,
        "choice": 0,
        "max_tokens": None,
        "stop": (),
        "ignore_eos": False,
        "logprobs": 0,
        "speculation": "auto",
        "prediction": None,
        "json_schema": None,
        "regex": None,
        "grammar": None,
    }


def test_params_are_frozen_and_named() -> None:
    params = SamplingParams()
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.temperature = 0.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        SamplingParams(0.0)  # type: ignore[misc]


def test_equal_params_have_equal_hashes() -> None:
    params = SamplingParams(top_k=7, logit_bias={5: 1.0}, stop=["a"])
    assert {params: "found"}[SamplingParams(top_k=7, logit_bias={"5": 1}, stop="a")] == "found"


def test_a_schema_is_kept_as_text_in_the_order_of_its_keys() -> None:
    schema = {"type": "object", "properties": {"b": True, "a": {"type": "null"}}}
    params = SamplingParams(json_schema=schema)
    assert params.json_schema == json.dumps(schema)
    schema["type"] = "null"  # the caller's own
    assert params.merged(top_k=5).json_schema == params.json_schema
    assert {params: "found"}[SamplingParams(json_schema=params.json_schema)] == "found"


@pytest.mark.parametrize("names", [("json_schema", "regex"), ("regex", "grammar")])
def test_there_is_one_constraint_at_most(names: tuple[str, str]) -> None:
    with pytest.raises(InvalidOption, match="expected one constraint"):
        SamplingParams(**dict.fromkeys(names, "true"))


def test_one_stop_string_and_a_list_become_a_tuple() -> None:
    assert SamplingParams(stop="end").stop == ("end",)
    assert SamplingParams(stop=["a", "b"]).stop == ("a", "b")


def test_logit_bias_takes_ids_as_json_writes_them() -> None:
    assert SamplingParams(logit_bias={"5": -100, 6: 1}).logit_bias == {5: -100.0, 6: 1.0}


def test_logit_bias_is_a_copy() -> None:
    given = {5: 1.0}
    params = SamplingParams(logit_bias=given)
    given[6] = 2.0
    assert params.logit_bias == {5: 1.0}


def test_merging_replaces_what_is_named_and_checks_it() -> None:
    params = SamplingParams(temperature=0.5, top_k=7)
    merged = params.merged(top_k=0)
    assert (merged.temperature, merged.top_k) == (0.5, 0)
    assert params.top_k == 7
    assert params.merged() == params


def test_an_unknown_option_is_an_error_that_suggests_one() -> None:
    with pytest.raises(InvalidOption, match="`temprature`") as caught:
        SamplingParams().merged(temprature=1)
    assert caught.value.hint == "did you mean `temperature`?"
    with pytest.raises(InvalidOption, match="`best_of`") as caught:
        SamplingParams().merged(best_of=1)
    assert caught.value.hint is not None
    assert "top_k" in caught.value.hint
