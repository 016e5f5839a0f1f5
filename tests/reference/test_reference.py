"""The oracles, checked against torch, transformers and gguf, and by hand where a hand suffices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import checkpoints

from . import forward, ops, quantization

IDS = [1, 40, 77, 300, 5, 5, 2, 119, 260, 64, 201, 33, 90, 318, 0, 14, 271]


def relative_error(actual: Any, expected: Any) -> float:
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


# --------------------------------------------------------------------------- forward


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"ties": True, "kv_heads": 1},
        {"bias": True, "mlp_bias": True, "kv_heads": 4},
        {"head_dim": 24, "rope_theta": 500.0},
        {"dtype": "bfloat16", "config_style": "transformers-4"},
        {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ],
    ids=["plain", "tied", "biases", "head_dim", "bfloat16", "linear", "llama3"],
)
def test_forward_equals_transformers_on_llama(tmp_path: Path, options: dict[str, Any]) -> None:
    path = checkpoints.tiny_llama(tmp_path, **options)
    config, tensors = checkpoints.read_directory(path)
    expected = checkpoints.transformers_logits(path, IDS)
    assert relative_error(forward.logits(config, tensors, IDS), expected) < 1e-5


def test_forward_equals_transformers_on_qwen2(qwen2_directory: Path) -> None:
    config, tensors = checkpoints.read_directory(qwen2_directory)
    expected = checkpoints.transformers_logits(qwen2_directory, IDS)
    assert relative_error(forward.logits(config, tensors, IDS), expected) < 1e-5


def test_biases_norms_and_positions_of_tiny_models_matter() -> None:
    config = checkpoints.tiny_config("qwen2")
    tensors = checkpoints.random_tensors(config)
    expected = forward.logits(config, tensors, IDS)
    for kind in ("q_proj.bias", "k_proj.bias", "v_proj.bias", "norm.weight"):
        changed = {
            name: np.ones_like(values) * (kind == "norm.weight") if name.endswith(kind) else values
            for name, values in tensors.items()
        }
        assert relative_error(forward.logits(config, changed, IDS), expected) > 1e-2, kind
    turned = forward.logits(config, tensors, [IDS[1], IDS[0], *IDS[2:]])
    assert relative_error(turned[-1], expected[-1]) > 1e-3


def test_a_position_never_sees_later_ones() -> None:
    config = checkpoints.tiny_config()
    tensors = checkpoints.random_tensors(config)
    whole = forward.logits(config, tensors, IDS)
    assert whole.dtype == np.float32
    assert relative_error(forward.logits(config, tensors, IDS[:7]), whole[:7]) < 1e-5


def test_forward_reproduces_the_documented_story(stories_greedy: dict[str, Any]) -> None:
    config, tensors = checkpoints.stories_tensors()
    expected = stories_greedy["ids"]
    # One pass over the documented ids proves every greedy step of them, 200 times faster.
    best = forward.logits(config, tensors, expected)[:-1].argmax(axis=-1)
    assert best.tolist() == expected[1:]
    assert forward.greedy(config, tensors, expected[:1], 12) == expected[:13]


def test_interleaved_rows_rotate_like_halves() -> None:
    x = np.random.default_rng(1).standard_normal((5, 3, 16), np.float32)
    neighbours = forward.interleaved(x.reshape(5, 48).T, 3).T.reshape(5, 3, 16)
    assert neighbours[0, 0, :4].tolist() == [x[0, 0, 0], x[0, 0, 8], x[0, 0, 1], x[0, 0, 9]]
    by_halves = ops.rope(x, np.arange(5), 10000.0)
    by_neighbours = ops.rope(neighbours, np.arange(5), 10000.0, interleaved=True)
    back = forward.half_split(by_neighbours.reshape(5, 48).T, 3).T.reshape(5, 3, 16)
    assert np.array_equal(back, by_halves)


# --------------------------------------------------------------------------- quantization


def awkward_rows() -> np.ndarray[Any, np.dtype[np.float32]]:
    """(rows, 64): ordinary, tiny and huge values, ties, zeros, constants, one-hot blocks."""
    generator = np.random.default_rng(2)
    rows = generator.standard_normal((400, 64), np.float32)
    rows *= np.exp2(generator.integers(-12, 12, (400, 1))).astype(np.float32)
    rows[0] = 0
    rows[1] = 3
    rows[2] = -3
    rows[3] = np.eye(1, 64, 5)
    rows[4] = -np.eye(1, 64, 40)
    rows[5] = np.tile([1, -1], 32)
    rows[6] = np.arange(64) - 31.5
    rows[7] = np.resize([-127, 0.5, 1.5, -0.5, -2.5, 126.5], 64)  # halves, for each rounding
    rows[8] = np.resize([-8, -7.5, -0.5, 0.5, 7.5, 7.49], 64)
    rows[9] = -0.0
    return rows


def tensor_type(format: str) -> Any:
    import gguf

    return gguf.GGMLQuantizationType[format.upper()]


BLOCK_FORMATS = [f for f in quantization.FORMATS if quantization.COLUMNS[f] > 1]
# Those that the gguf package can write.
QUANTIZERS = [f for f in quantization.FORMATS if f not in (*quantization.SUPER_FORMATS, "iq4_nl")]


@pytest.mark.parametrize("format", QUANTIZERS)
def test_quantize_equals_gguf_byte_for_byte(format: str) -> None:
    import gguf

    rows = awkward_rows()
    expected = gguf.quants.quantize(rows, tensor_type(format)).reshape(-1).view(np.uint8)
    assert np.array_equal(quantization.quantize(format, rows), expected)
    assert len(expected) == len(rows) * quantization.row_bytes(format, 64)


@pytest.mark.parametrize("format", quantization.FORMATS)
def test_dequantize_equals_gguf_bit_for_bit_on_any_bytes(format: str) -> None:
    import gguf

    size = quantization.BLOCK_BYTES[format]
    data = np.random.default_rng(3).integers(0, 256, (5000, size), np.uint8)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = gguf.quants.dequantize(data, tensor_type(format)).reshape(-1)
        actual = quantization.dequantize(format, data.tobytes(), expected.shape)
    # Random scales are sometimes NaN, whose payload nobody promises.
    assert np.array_equal(actual, expected, equal_nan=True)
    numbers = ~np.isnan(expected)
    assert np.array_equal(actual[numbers].view(np.uint32), expected[numbers].view(np.uint32))
    assert numbers.mean() > 0.9


@pytest.mark.parametrize("format", quantization.SUPER_FORMATS)
def test_taking_super_blocks_apart_loses_nothing(format: str) -> None:
    size = quantization.BLOCK_BYTES[format]
    data = np.random.default_rng(4).integers(0, 256, (500, size), np.uint8)
    for offset in quantization.HALVES[format]:
        data[:, offset + 1] &= 0xBF  # a finite scale
    assert np.array_equal(quantization.pack(format, quantization.unpack(format, data)), data)


@pytest.mark.parametrize(
    ("format", "error"),
    [
        *[("q2_k", 0.4), ("q3_k", 0.2), ("q4_k", 0.1), ("q5_k", 0.05), ("q6_k", 0.025)],
        *[("iq4_nl", 0.1), ("iq4_xs", 0.1), ("mxfp4", 0.15)],
    ],
)
def test_what_is_quantized_is_near(format: str, error: float) -> None:
    x = np.random.default_rng(5).standard_normal((100, 256), np.float32)
    stored = quantization.dequantize(format, quantization.quantize(format, x), x.shape)
    assert np.sqrt(np.mean((stored - x) ** 2)) < error


def test_bf16_keeps_nan_and_rounds_to_even() -> None:
    import gguf

    values = np.array(
        [np.nan, np.inf, -np.inf, 1 + 2**-8, 1 + 3 * 2**-8, -0.0, 3.4e38, 1e-42] * 4, np.float32
    )
    values.view(np.uint32)[8] = 0x7F800001  # a signalling NaN that truncation would turn into inf
    expected = gguf.quants.quantize(values, tensor_type("bf16")).view(np.uint8)
    assert np.array_equal(quantization.quantize("bf16", values), expected)
    back = quantization.dequantize("bf16", expected, values.shape)
    assert np.isnan(back[[0, 8]]).all()
    assert back[[1, 3, 4]].tolist() == [np.inf, 1, 1 + 2**-6]


def test_a_q4_0_block_by_hand() -> None:
    block = np.arange(32, dtype=np.float32) / 4 - 4  # -4 ... 3.75: the largest magnitude is -4
    data = quantization.quantize("q4_0", block)
    assert data[:2].tobytes() == np.float16(0.5).tobytes()  # d = -4 / -8
    assert data[2] == 0 | 8 << 4  # value 0 is -4 -> 0; value 16 is 0 -> 8
    blocks = quantization.unpack("q4_0", data)
    assert blocks.d.tolist() == [0.5]
    assert blocks.codes[0, [0, 16, 31]].tolist() == [-8, 0, 7]  # 3.75 / 0.5 + 8.5 = 16, cut to 15


def test_activations_round_half_to_even() -> None:
    x = np.zeros((2, 64), np.float32)
    x[0, :6] = [127, 0.5, 1.5, 2.5, -0.5, -1.5]
    x[0, 32:] = 1e-31  # too small for 127 / amax
    x[1, 0] = -254
    codes, scales, sums = quantization.quantize_activations(x)
    assert codes[0, :6].tolist() == [127, 0, 2, 2, 0, -2]
    assert scales.tolist() == [[1, 0], [2, 0]]
    assert sums.tolist() == [[129, 0], [-127, 0]]
    assert [part.dtype for part in (codes, scales, sums)] == [np.int8, np.float32, np.int32]
    assert quantization.round_activations(x)[0, :3].tolist() == [127, 0, 2]


def test_activations_stay_within_half_a_step() -> None:
    x = awkward_rows()
    codes, scales, _ = quantization.quantize_activations(x)
    step = np.repeat(scales, 32, axis=1).astype(np.float64)
    # Half a step, and what rounding the scale and its inverse to float32 adds at code 127.
    allowed = step * (0.5 + 127 * 2.0**-22)
    assert (np.abs(codes * step - x) <= allowed).all()
    assert np.abs(codes.astype(int)).max() == 127


# --------------------------------------------------------------------------- operations


def test_operations_equal_torch_in_float64() -> None:
    import torch
    from torch.nn import functional

    generator = np.random.default_rng(4)
    x, gate = generator.standard_normal((2, 6, 32)) * 3
    weight = generator.standard_normal(32)
    t = torch.from_numpy
    pairs = [
        (ops.exp(x), torch.exp(t(x))),
        (ops.silu(x), functional.silu(t(x))),
        (ops.swiglu(gate, x), functional.silu(t(gate)) * t(x)),
        (ops.softmax(x), torch.softmax(t(x), -1)),
        (ops.rms_norm(x, weight, 1e-5), functional.rms_norm(t(x), (32,), t(weight), 1e-5)),
        (ops.matmul(gate, x), functional.linear(t(x), t(gate))),
    ]
    q = generator.standard_normal((5, 6, 8))
    k, v = generator.standard_normal((2, 9, 2, 8))
    mask = torch.ones(5, 9).tril(4).bool()
    expected = functional.scaled_dot_product_attention(
        *(t(a).transpose(0, 1) for a in (q, k, v)), attn_mask=mask, enable_gqa=True
    ).transpose(0, 1)
    pairs.append((ops.attention(q, k, v), expected))
    for actual, truth in pairs:
        assert actual.dtype == np.float64
        assert relative_error(actual, truth.numpy()) < 1e-14


def test_extreme_arguments_stay_finite() -> None:
    assert ops.silu([-1e4, 0, 1e4]).tolist() == [0, 0, 1e4]
    assert ops.softmax([1e6, 1e6]).tolist() == [0.5, 0.5]
    assert forward.silu(np.array([-1e4, 1e4], np.float32)).tolist() == [0, 1e4]


def test_one_hot_attention_returns_the_value_it_points_at() -> None:
    k = np.eye(4)[:, None, :] * 1e4  # (4, 1, 4): key i points along axis i
    v = np.arange(16.0).reshape(4, 1, 4)
    q = k[[2, 1]]  # the last two positions look for keys 2 and 1
    assert np.array_equal(ops.attention(q, k, v), v[[2, 1]])
    with_future = ops.attention(k[[3, 3]], k, v)  # position 2 may not see key 3
    assert np.allclose(with_future[0], v[:3].mean(axis=0))
    assert np.array_equal(with_future[1], v[3])


def test_rope_turns_by_the_position() -> None:
    x = np.zeros((3, 1, 4))
    x[:, 0, 0] = 1
    turned = ops.rope(x, [0, 1, 5], 100.0)  # pairs (0, 2) at frequency 1 and (1, 3) at 1 / 10
    assert np.allclose(turned[:, 0, 0], np.cos([0, 1, 5]))
    assert np.allclose(turned[:, 0, 2], np.sin([0, 1, 5]))
    assert np.allclose(ops.rope(x, [0, 1, 5], 100.0, interleaved=True)[:, 0, 1], np.sin([0, 1, 5]))
    config = checkpoints.tiny_config(rope_theta=100.0, head_dim=4)
    cos, sin = forward.rotation(config, [0, 1, 5])
    y = np.random.default_rng(5).standard_normal((3, 2, 4), np.float32)
    expected = ops.rope(y, [0, 1, 5], 100.0)
    assert relative_error(forward.rotate(y, cos, sin), expected) < 1e-6


@pytest.mark.parametrize("format", BLOCK_FORMATS)
def test_block_products_add_up_to_the_matrix_product(format: str) -> None:
    generator = np.random.default_rng(6)
    weight = generator.standard_normal((7, 512), np.float32)
    x = generator.standard_normal((3, 512), np.float32)
    data = quantization.quantize(format, weight)
    expected = ops.matmul(
        quantization.dequantize(format, data, weight.shape),
        quantization.round_activations(x, quantization.COLUMNS[format]),
    )
    assert relative_error(ops.quantized_matmul(format, data, 7, x), expected) < 1e-6


def test_block_products_are_exact_at_the_extremes() -> None:
    dots = ops.block_dots(np.full((2, 64), 15), np.full((1, 64), -127, np.int8))
    assert dots.tolist() == [[[-60960, -60960]] * 2]


def test_ulps_count_float32_steps() -> None:
    one = np.float32(1)
    assert ops.ulps([one, np.nextafter(one, np.float32(2))], [1.0, 1.0]).tolist() == [0, 1]


# --------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize("model_type", ["llama", "qwen2"])
@pytest.mark.parametrize("format", quantization.FORMATS)
def test_gguf_holds_the_same_model(tmp_path: Path, model_type: str, format: str) -> None:
    config = checkpoints.tiny_config(
        model_type, hidden=256, intermediate=256, head_dim=64, layers=1, bias=True
    )
    tensors = checkpoints.random_tensors(config)
    path = checkpoints.gguf_llama(tmp_path / "model.gguf", config, tensors, format=format)
    read_config, read = checkpoints.read_gguf(path)
    assert read.keys() == tensors.keys()
    for name, values in tensors.items():
        stored = "f32" if values.ndim == 1 else format
        data = quantization.quantize(stored, values)
        assert np.array_equal(read[name], quantization.dequantize(stored, data, values.shape)), name
    for key in ("hidden_size", "head_dim", "vocab_size", "num_key_value_heads", "rope_theta"):
        assert getattr(read_config, key) == getattr(config, key)


def test_gguf_permutes_llama_as_the_converter_documents(tmp_path: Path) -> None:
    import gguf

    config = checkpoints.tiny_config("llama")
    tensors = checkpoints.random_tensors(config)
    path = checkpoints.gguf_llama(tmp_path / "model.gguf", config, tensors)
    stored = {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
    for name, heads in (("q", 4), ("k", 2), ("v", None)):
        values = tensors[f"model.layers.1.self_attn.{name}_proj.weight"]
        if heads:
            values = values.reshape(heads, 2, 8, 64).swapaxes(1, 2).reshape(-1, 64)
        assert np.array_equal(stored[f"blk.1.attn_{name}.weight"], values)


def test_a_checkpoint_is_sharded_on_demand(qwen2_directory: Path) -> None:
    assert len(list(qwen2_directory.glob("model-*.safetensors"))) >= 3
    assert (qwen2_directory / "model.safetensors.index.json").exists()


def test_a_checkpoint_holds_the_tensors_it_was_given(qwen2_directory: Path) -> None:
    tensors = checkpoints.random_tensors(checkpoints.tiny_config("qwen2", ties=True))
    _, read = checkpoints.read_directory(qwen2_directory)
    for name, values in checkpoints.rounded(tensors, "bfloat16").items():
        assert np.array_equal(read[name], values), name
    assert "lm_head.weight" not in read


def test_stories_are_a_llama_to_transformers(
    tmp_path: Path, stories_greedy: dict[str, Any]
) -> None:
    ids = stories_greedy["ids"]
    expected = checkpoints.transformers_logits(checkpoints.stories_directory(tmp_path), ids)
    assert relative_error(forward.logits(*checkpoints.stories_tensors(), ids), expected) < 1e-4


def test_a_gguf_is_split_on_demand(tmp_path: Path) -> None:
    config = checkpoints.tiny_config()
    tensors = checkpoints.random_tensors(config)
    path = tmp_path / "model.gguf"
    first = checkpoints.gguf_llama(path, config, tensors, split_max_tensors=8)
    assert first.name == "model-00001-of-00003.gguf"
    assert len(list(tmp_path.glob("model-*-of-00003.gguf"))) == 3


def test_stories_survive_the_way_through_gguf(stories_gguf: Path) -> None:
    _, tensors = checkpoints.stories_tensors()
    config, read = checkpoints.read_gguf(stories_gguf)
    assert (config.tie_word_embeddings, config.head_dim) == (True, 8)
    assert all(np.array_equal(read[name], tensors[name]) for name in tensors)


def test_stories_vocabulary_spells_the_documented_text(stories_greedy: dict[str, Any]) -> None:
    vocabulary = checkpoints.stories_vocabulary()
    assert [piece for piece, *_ in vocabulary[:4]] == ["<unk>", "<s>", "</s>", "<0x00>"]
    assert len({piece for piece, *_ in vocabulary}) == 512
    pieces = [vocabulary[id][0] for id in stories_greedy["ids"][1:]]
    text = "".join(chr(int(p[3:5], 16)) if p.startswith("<0x") else p for p in pieces)
    assert text.replace("\u2581", " ").removeprefix(" ") == stories_greedy["text"]


@pytest.mark.parametrize("pre", ["gpt-2", "qwen2"])
def test_the_tiny_tokenizer_is_lossless(pre: str) -> None:
    tokenizer = checkpoints.byte_level_tokenizer(pre)
    assert tokenizer.get_vocab_size() == checkpoints.VOCAB_SIZE
    text = "The cat was there, and  10 of the\n\tothers: \u00e9\u4e16\U0001f999 it's"
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text
    assert len(ids) < len(text.encode())
    assert tokenizer.encode("<|im_start|>a<|im_end|>").ids[::2] == [1, 2]


def test_both_tiny_vocabularies_have_the_size_of_the_tiny_model() -> None:
    tokens, _ = checkpoints.byte_level_tokens()
    pieces = [piece for piece, *_ in checkpoints.spm_tokens()]
    assert len(set(tokens)) == len(set(pieces)) == checkpoints.VOCAB_SIZE


def test_the_tiny_directory_opens_as_a_whole(llama_directory: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(llama_directory)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "the"}], add_generation_prompt=True, return_dict=False
    )
    rendered = "<|im_start|>user\nthe<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(ids) == rendered
