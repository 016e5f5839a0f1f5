"""ModelConfig: transformers' own configs as the oracle, then what it must refuse."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import pytest

from inferno.config import ModelConfig, end_of_turn_ids
from inferno.errors import InfernoError, InvalidCheckpoint, UnsupportedModel

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GGUF: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "llama.block_count": 2,
    "llama.context_length": 512,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.rope.freq_base": 500000.0,
    "llama.rope.dimension_count": 16,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.vocab_size": 8,
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "<|eot_id|>", "<|im_end|>", "a", "b", "c"],
    "tokenizer.ggml.token_type": [2, 3, 3, 3, 1, 1, 1, 1],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
}
ODD_VALUES = [
    None,
    True,
    -1,
    0,
    7,
    2**31,
    2**64,
    10**300,
    0.5,
    -0.0,
    math.inf,
    math.nan,
    "",
    "x",
    "llama",
    [],
    [1, 2],
    ["a"],
    [[1]],
    [None],
    {},
    {"type": 1},
    {"a": {}},
    {"0": "x"},
]


@pytest.fixture(autouse=True)
def two_families(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inferno.config.features._supported", lambda: ["llama", "qwen2"])


def huggingface(generation: Any = None, tokenizer: Any = None, **changes: Any) -> ModelConfig:
    return ModelConfig.from_huggingface(LLAMA | changes, generation, tokenizer)


def gguf(**changes: Any) -> ModelConfig:
    """GGUF with changes; `__` in a key stands for the dot, `llama__x` for `llama.x`."""
    return ModelConfig.from_gguf(
        GGUF | {key.replace("__", "."): value for key, value in changes.items()}
    )


@pytest.mark.parametrize("family", ["Llama", "Qwen2"])
def test_config_json_reads_as_transformers_reads_it(family: str) -> None:
    import transformers

    oracle = getattr(transformers, f"{family}Config")(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        rms_norm_eps=1e-5,
        eos_token_id=[2, 5],
        bos_token_id=1,
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6},
    )
    config = ModelConfig.from_huggingface(
        json.loads(oracle.to_json_string(use_diff=False))
        | {"architectures": [f"{family}ForCausalLM"]}
    )

    for key in (
        "model_type",
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "hidden_act",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "rms_norm_eps",
        "max_position_embeddings",
        "tie_word_embeddings",
        "bos_token_id",
    ):
        assert getattr(config, key) == getattr(oracle, key), key
    assert config.head_dim == 16
    assert config.rope_theta == 1e6
    assert config.rope_scaling == {"rope_type": "linear", "factor": 2.0}
    assert config.eos_token_ids == (2, 5)


def test_a_config_from_before_transformers_5_reads_the_same() -> None:
    assert huggingface().rope_theta == 500000.0
    assert huggingface().rope_scaling is None
    linear = {"rope_type": "linear", "factor": 4.0}
    assert huggingface(rope_scaling={"type": "linear", "factor": 4.0}).rope_scaling == linear
    assert huggingface(rope_scaling={"rope_type": "default"}).rope_scaling is None


def test_absent_keys_have_the_defaults_of_transformers() -> None:
    sparse = {
        key: LLAMA[key]
        for key in (
            "model_type",
            "architectures",
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
        )
    }
    config = ModelConfig.from_huggingface(sparse)
    assert config.num_key_value_heads == 4
    assert config.rms_norm_eps == 1e-6
    assert config.rope_theta == 10000.0
    assert config.max_position_embeddings == 2048
    assert not config.tie_word_embeddings and not config.attention_bias and not config.mlp_bias
    assert config.bos_token_id is None and config.eos_token_ids == ()


def test_head_dim_need_not_be_hidden_size_by_heads() -> None:
    assert huggingface(head_dim=32).head_dim == 32
    assert huggingface(head_dim=None).head_dim == 16


def test_stop_ids_are_the_union_of_all_three_files() -> None:
    tokenizer = {
        "eos_token": {"content": "</s>"},
        "added_tokens_decoder": {
            "7": {"content": "</s>", "special": True},
            "8": {"content": "<|im_end|>", "special": True},
            "9": {"content": "<|im_end|>", "special": False},
            "10": {"content": "<|im_start|>", "special": True},
        },
    }
    config = huggingface({"eos_token_id": [2, 6]}, tokenizer, eos_token_id=[5, 2])
    assert config.eos_token_ids == (5, 2, 6, 7, 8)


def test_gguf_stop_ids_include_control_tokens_that_end_a_turn() -> None:
    assert gguf().eos_token_ids == (2, 3), "`<|im_end|>` is ordinary text here"
    assert gguf(tokenizer__ggml__eot_token_id=6).eos_token_ids == (2, 6, 3)


def test_gguf_stop_ids_include_all_that_the_metadata_names() -> None:
    ids = {"eot": 6, "eom": 7}
    keys = {f"tokenizer__ggml__{name}_token_id": id for name, id in ids.items()}
    assert gguf(**keys).eos_token_ids == (2, 6, 7, 3)


def test_a_token_between_the_messages_of_a_turn_does_not_end_it() -> None:
    """gpt-oss writes `<|end|>` after its thoughts; Phi-3 after its answer."""
    phi = {"<|end|>": 7, "<|endoftext|>": 0, "<|user|>": 10}
    assert end_of_turn_ids(phi) == [0, 7]
    harmony = {"<|end|>": 7, "<|return|>": 2, "<|call|>": 12, "<|start|>": 6}
    assert end_of_turn_ids(harmony) == [2, 12]
    tokenizer = {
        "eos_token": "<|return|>",
        "added_tokens_decoder": {
            str(id): {"content": text, "special": True} for text, id in harmony.items()
        },
    }
    assert huggingface(None, tokenizer, eos_token_id=2).eos_token_ids == (2, 12)


def test_generation_config_gives_sampling_defaults() -> None:
    assert huggingface(
        {
            "temperature": 0.6,
            "top_k": 20,
            "top_p": 0.9,
            "do_sample": True,
            "transformers_version": "5",
        }
    ).generation == {"temperature": 0.6, "top_k": 20, "top_p": 0.9}
    assert huggingface({"temperature": 0.6}).generation == {"temperature": 0.6}
    assert huggingface({"do_sample": False, "temperature": 0.6}).generation == {"temperature": 0.0}
    assert huggingface().generation == {}
    assert huggingface({"typical_p": 0.9, "suppress_tokens": [3, 1]}).generation == {
        "typical_p": 0.9,
        "suppress_tokens": (3, 1),
    }
    assert gguf(general__sampling__top_k=20).generation == {"top_k": 20}
    assert gguf(general__sampling__xtc_threshold=0.2).generation == {"xtc_threshold": 0.2}
    for stored, ours in ((-1, None), (0, 0), (64, 64)):
        found = gguf(general__sampling__penalty_last_n=stored).generation
        assert found == {"repeat_last_n": ours}


def test_an_impossible_sampling_default_is_an_invalid_checkpoint() -> None:
    with pytest.raises(InvalidCheckpoint, match=r"generation_config\.json: `top_p`.*found 3"):
        huggingface({"top_p": 3})


def test_gguf_and_config_json_agree() -> None:
    a, b = huggingface(vocab_size=8), gguf()
    for key in (
        "model_type",
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "head_dim",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "rms_norm_eps",
        "max_position_embeddings",
        "rope_theta",
        "rope_scaling",
        "bos_token_id",
        "tie_word_embeddings",
        "hidden_act",
    ):
        assert getattr(a, key) == getattr(b, key), key
    assert b.name == "Tiny"


def test_gguf_tensors_settle_what_the_metadata_leaves_open() -> None:
    metadata = {key: value for key, value in GGUF.items() if key != "llama.vocab_size"}
    assert ModelConfig.from_gguf(metadata).vocab_size == 8, "the number of tokens"
    config = ModelConfig.from_gguf(
        metadata,
        {
            "model.embed_tokens.weight": (10, 64),
            "lm_head.weight": (10, 64),
            "model.layers.0.self_attn.q_proj.bias": (64,),
        },
    )
    assert config.vocab_size == 10, "an embedding may be padded beyond the tokens"
    assert not config.tie_word_embeddings
    assert config.attention_bias and not config.mlp_bias


def test_gguf_rope_scaling_goes_by_hugging_face_keys() -> None:
    assert gguf(llama__rope__scaling__type="none").rope_scaling is None
    assert gguf(
        llama__rope__scaling__type="yarn",
        llama__rope__scaling__factor=4.0,
        llama__rope__scaling__original_context_length=2048,
    ).rope_scaling == {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
    assert gguf(llama__rope__scale_linear=2.0).rope_scaling == {
        "rope_type": "linear",
        "factor": 2.0,
    }


def test_gguf_names_the_rope_base_of_layers_with_a_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is that of all layers, as converters say of some families, it is no feature."""
    same = {"llama__rope__freq_base": 7e4, "llama__rope__freq_base_swa": 7e4}
    assert gguf(**same).rope_local_base_freq is None
    monkeypatch.setattr("inferno.config.features._supported", lambda: ["gemma3_text"])
    gemma = {key.replace("llama.", "gemma3."): value for key, value in GGUF.items()}
    gemma["general.architecture"] = "gemma3"
    assert ModelConfig.from_gguf(gemma).rope_local_base_freq == 10_000.0
    gemma["gemma3.rope.freq_base_swa"] = 5000.0
    assert ModelConfig.from_gguf(gemma).rope_local_base_freq == 5000.0


def test_raw_leaves_out_the_vocabulary() -> None:
    config = gguf(tokenizer__ggml__tokens=["x"] * 8, llama__big=[0] * 1000)
    assert "llama.big" not in config.raw
    assert config.raw["llama.block_count"] == 2


def test_a_name_cannot_steer_the_terminal() -> None:
    name = gguf(general__name="a\x1b[31mb\n\ud800" + "c" * 1000).name
    assert name.isprintable() and len(name) == 80


def test_an_unknown_architecture_is_unsupported_and_says_what_works() -> None:
    with pytest.raises(UnsupportedModel, match=r"`MambaForCausalLM` .*\(supported: llama, qwen2\)"):
        huggingface(model_type="mamba", architectures=["MambaForCausalLM"])
    with pytest.raises(UnsupportedModel, match=r"`mamba` .*\(supported: llama, qwen2\)"):
        gguf(general__architecture="mamba")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head_dim": 20}, "`head_dim`: expected a multiple of 8, found 20"),
        ({"architectures": ["LlamaForSequenceClassification"]}, "does not generate text"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantized with 'gptq'"),
        ({"sliding_window": 128}, "`sliding_window` in config.json: 128 is not .* for `llama`"),
        ({"layer_types": ["full_attention", "chunked_attention"]}, "layers of 'chunked_attention'"),
        ({"partial_rotary_factor": 0.5}, "`partial_rotary_factor` in config.json: 0.5 is not"),
        ({"num_local_experts": 8, "num_experts_per_tok": 2}, "`num_experts` in config.json: 8"),
        ({"attn_logit_softcapping": 50.0}, "`attn_logit_softcapping` .* 50.0 is not supported"),
        ({"residual_multiplier": 0.22}, "`residual_multiplier` in config.json: 0.22"),
        ({"no_rope_layers": [1, 0]}, "`no_rope_layers`"),
        ({"use_bidirectional_attention": True}, "`use_bidirectional_attention`"),
        ({"swiglu_alpha": 2.0}, "`swiglu_alpha`: expected 1.702, found 2.0"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "varies by layer"),
    ],
)
def test_what_would_be_silently_wrong_is_unsupported(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        huggingface(**changes)


def test_a_window_that_is_turned_off_is_no_obstacle() -> None:
    assert huggingface(sliding_window=4096, use_sliding_window=False).hidden_size == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"llama__expert_weights_scale": 2.5}, "`llama.expert_weights_scale`: 2.5"),
        ({"llama__rope__dimension_count": 8}, "`llama.rope.dimension_count` .* 0.5 is not"),
        ({"llama__attention__value_length": 8}, "expected head_dim = 16, found 8"),
        ({"llama__attention__causal": False}, "`llama.attention.causal`: False"),
        ({"llama__use_parallel_residual": True}, "`llama.use_parallel_residual`: True"),
        ({"llama__attention__temperature_scale": 0.1}, "temperature_scale`: 0.1 is not"),
        ({"llama__rope__dimension_count_swa": 8}, "_swa`: expected 16 .* found 8"),
        ({"llama__rope__freq_base_swa": 5000.0}, "`llama.rope.freq_base_swa` .* 5000.0 is not"),
        ({"llama__attention__head_count_kv": [2, 1]}, "vary by layer"),
        (
            {"llama__attention__sliding_window": 128},
            "`llama.attention.sliding_window` in the GGUF metadata: 128 is not",
        ),
    ],
)
def test_gguf_features_without_kernels_are_unsupported(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        gguf(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "`hidden_size` is missing from config.json"),
        ({"hidden_size": "64"}, "`hidden_size` in config.json: expected an integer .*, found '64'"),
        ({"hidden_size": True}, "expected an integer"),
        ({"hidden_size": 64.0}, "expected an integer"),
        ({"hidden_size": 2**40}, "expected an integer from 1 to"),
        ({"hidden_size": 66}, "expected a multiple of num_attention_heads = 4, found 66"),
        ({"num_hidden_layers": 0}, "from 1 to"),
        ({"num_key_value_heads": 3}, "expected a divisor of num_attention_heads = 4, found 3"),
        ({"rms_norm_eps": math.inf}, "expected a positive number"),
        ({"rope_theta": -1.0}, "expected a positive number"),
        ({"rope_parameters": {"rope_theta": 1.0}}, r"expected 1\.0 as in rope_parameters"),
        ({"rope_scaling": {"type": "yarn", "rope_type": "linear"}}, "to agree on 'linear'"),
        ({"rope_scaling": {"factor": 2.0}}, "expected a `rope_type`"),
        ({"tie_word_embeddings": "yes"}, "expected true or false"),
        ({"eos_token_id": 100}, "expected ids from 0 to 99"),
        ({"eos_token_id": [[2]]}, "expected a token id or a list of them"),
        ({"bos_token_id": [1, 2]}, "expected one token id"),
    ],
)
def test_a_contradictory_config_json_is_invalid(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCheckpoint, match=message):
        huggingface(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"llama__block_count": None}, "`llama.block_count` is missing from the GGUF metadata"),
        ({"llama__block_count": 2.0}, "expected an integer"),
        ({"llama__context_length": 0}, "from 1 to"),
        ({"llama__vocab_size": 7}, "expected at most vocab_size = 7 of them, found 8 of them"),
        ({"tokenizer__ggml__eos_token_id": 8}, "expected ids from 0 to 7"),
        ({"tokenizer__ggml__tokens": "abc"}, "expected an array of str"),
        ({"general__architecture": 3}, "expected text, found 3"),
    ],
)
def test_contradictory_gguf_metadata_is_invalid(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCheckpoint, match=message):
        gguf(**changes)


def test_no_value_of_any_key_escapes_the_error_tree() -> None:
    """Every key of each source, replaced by every odd value: a config or an InfernoError."""
    extra = [
        "head_dim",
        "rope_scaling",
        "rope_parameters",
        "attention_bias",
        "mlp_bias",
        "quantization_config",
        "sliding_window",
        "use_sliding_window",
        "layer_types",
        "partial_rotary_factor",
    ]
    generation = [
        "temperature",
        "top_k",
        "top_p",
        "min_p",
        "repetition_penalty",
        "do_sample",
        "eos_token_id",
    ]
    tokenizer = ["eos_token", "added_tokens_decoder"]
    scaling = [
        "llama.rope.scale_linear",
        "llama.rope.scaling.type",
        "llama.rope.scaling.factor",
        "llama.expert_count",
        "llama.attention.key_length",
        "general.sampling.temp",
        "tokenizer.ggml.eot_token_id",
    ]
    refused = accepted = 0
    makers = [
        *((lambda v, k=k: huggingface(**{k: v})) for k in [*LLAMA, *extra]),
        *((lambda v, k=k: huggingface({k: v})) for k in generation),
        *((lambda v, k=k: huggingface(None, {"eos_token": "x", k: v})) for k in tokenizer),
        *((lambda v, k=k: gguf(**{k: v})) for k in [*GGUF, *scaling]),
    ]
    for make, value in itertools.product(makers, ODD_VALUES):
        try:
            make(value)
            accepted += 1
        except InfernoError as error:
            assert "\n" not in error.message and len(error.message) < 400, error.message
            refused += 1
    assert refused > 300 and accepted > 50


def test_more_heads_to_a_key_value_head_than_kernels_take_are_unsupported() -> None:
    heads = {"hidden_size": 8192, "head_dim": 8, "num_key_value_heads": 1}
    assert huggingface(**heads, num_attention_heads=512).num_attention_heads == 512
    with pytest.raises(UnsupportedModel, match=r"expected at most 512 .* found 513"):
        huggingface(**heads, num_attention_heads=513)
