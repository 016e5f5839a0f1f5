from __future__ import annotations

import pytest

from inferno.errors import ModelNotFound, UnsupportedModel
from inferno.hub.selection import Choice, choose, label_of, shards_of

REPOSITORY = "org/model-GGUF"
FILES = (
    ".gitattributes",
    "README.md",
    "imatrix.gguf",
    "mmproj-BF16.gguf",
    "model-BF16.gguf",
    "model-Q4_K_M.gguf",
    "model-Q4_K_S.gguf",
    "model-UD-Q4_K_M.gguf",
    "model-UD-Q4_K_XL.gguf",
    "model-iq4_xs.gguf",
    "Q8_0/model-Q8_0-00001-of-00002.gguf",
    "Q8_0/model-Q8_0-00002-of-00002.gguf",
)


@pytest.mark.parametrize(
    ("wanted", "entry"),
    [
        ("Q4_K_M", "model-Q4_K_M.gguf"),
        ("q4_k_m", "model-Q4_K_M.gguf"),
        ("UD-Q4_K_M", "model-UD-Q4_K_M.gguf"),
        ("Q4_K_XL", "model-UD-Q4_K_XL.gguf"),
        ("IQ4_XS", "model-iq4_xs.gguf"),
        ("bf16", "model-BF16.gguf"),
        ("model-q4_k_s.GGUF", "model-Q4_K_S.gguf"),
        ("mmproj-BF16.gguf", "mmproj-BF16.gguf"),
        ("", "model-Q4_K_M.gguf"),
        ("Q8_0", "Q8_0/model-Q8_0-00001-of-00002.gguf"),
        ("Q8_0/model-Q8_0-00001-of-00002.gguf", "Q8_0/model-Q8_0-00001-of-00002.gguf"),
    ],
)
def test_the_file_that_is_meant(wanted, entry):
    choice = choose(REPOSITORY, FILES, wanted)
    assert choice.entry == entry and choice.files[0] == entry
    assert len(choice.files) == (2 if "of-00002" in entry else 1)


@pytest.mark.parametrize("wanted", ["Q5_K_M", "Q4", "Q4_K", "K_M", "imatrix", "x.gguf"])
def test_what_is_not_there_lists_what_is(wanted):
    with pytest.raises(ModelNotFound) as caught:
        choose(REPOSITORY, FILES, wanted)
    assert f"`hf.co/{REPOSITORY}:{wanted}`: no such file or type" in caught.value.message
    assert "BF16, Q4_K_M, Q4_K_S, UD-Q4_K_M, UD-Q4_K_XL, IQ4_XS" in caught.value.message
    assert "mmproj" not in caught.value.message


def test_a_mistyped_type_is_suggested():
    with pytest.raises(ModelNotFound) as caught:
        choose(REPOSITORY, FILES, "Q4_KM")
    assert caught.value.hint == f"did you mean `hf.co/{REPOSITORY}:Q4_K_M`?"


def test_two_files_of_one_type_are_to_be_named():
    files = ("a/model-Q8_0.gguf", "b/model-Q8_0.gguf")
    with pytest.raises(ModelNotFound, match="expected one file") as caught:
        choose(REPOSITORY, files, "Q8_0")
    assert f"hf.co/{REPOSITORY}:a/model-Q8_0.gguf" in caught.value.hint
    assert choose(REPOSITORY, files, "b/model-Q8_0.gguf").entry == "b/model-Q8_0.gguf"


def test_nothing_is_guessed_where_nothing_is_usual():
    with pytest.raises(ModelNotFound, match="found 2 of Q2_K, Q8_0") as caught:
        choose(REPOSITORY, ("m.Q2_K.gguf", "m.Q8_0.gguf"), "")
    assert f"hf.co/{REPOSITORY}:Q2_K" in caught.value.hint
    assert choose(REPOSITORY, ("m.Q2_K.gguf",), "").entry == "m.Q2_K.gguf"


@pytest.mark.parametrize(
    "present", [["00002"], ["00001"], ["00001", "00003"]], ids=lambda present: "+".join(present)
)
def test_a_split_set_that_is_not_whole_is_no_model(present):
    files = [f"m-Q8_0-{number}-of-00003.gguf" for number in present]
    with pytest.raises(ModelNotFound, match="found no GGUF file"):
        choose(REPOSITORY, files, "Q8_0")


def test_a_split_set_of_a_hundred_thousand_files_costs_nothing():
    with pytest.raises(ModelNotFound):
        choose(REPOSITORY, ["m-Q8_0-00001-of-99999.gguf"] * 3, "Q8_0")


def test_a_directory_has_its_tokenizer_and_config_and_one_kind_of_weights():
    files = ["config.json", "tokenizer.json", "tokenizer.model", "pytorch_model.bin"]
    index = "model.safetensors.index.json"
    assert choose("org/model", [*files, "model.safetensors"], "") == Choice(
        "", ("config.json", "tokenizer.json", "model.safetensors")
    )
    assert choose("org/model", [*files, index, "model-1.safetensors"], "") == Choice(
        "", ("config.json", "tokenizer.json", index)
    )


def test_a_type_of_a_repository_of_floats_says_how_to_quantize():
    with pytest.raises(ModelNotFound) as caught:
        choose("org/model", ["config.json", "model.safetensors"], "Q4_0")
    assert 'weights="q4_0"' in caught.value.hint


@pytest.mark.parametrize("files", [[], ["pytorch_model.bin"], ["model.safetensors"]])
def test_a_repository_that_holds_no_model_is_unsupported(files):
    with pytest.raises(UnsupportedModel, match=r"expected a GGUF file, or config\.json"):
        choose("org/model", files, "")


def test_an_index_names_only_files_beside_it():
    weight_map = {"a": "x.safetensors", "b": "x.safetensors", "c": "../y", "d": 5, "e": ""}
    assert shards_of(weight_map) == ["x.safetensors"]


@pytest.mark.parametrize(
    ("file", "label"),
    [
        ("qwen2.5-0.5b-instruct-q4_k_m.gguf", "Q4_K_M"),
        ("TinyLlama.Q4_0.gguf", "Q4_0"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
        ("m-fp16.gguf", "FP16"),
        ("Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0"),
        ("ggml-vocab.gguf", "ggml-vocab.gguf"),
    ],
)
def test_what_a_file_goes_by(file, label):
    assert label_of(file) == label
