"""Makers of tiny checkpoints, and readers that do not share a line with the engine's.

Knows `transformers`, `tokenizers` and `gguf`, all imported where they are used; knows nothing of
inferno. Everything random is drawn from a seed, and large enough to matter: norms away from 1,
biases away from 0, attention away from uniform.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from reference import forward, quantization

DATA = Path(__file__).parent / "data"

Array = npt.NDArray[np.float32]
Config = Any  # attributes are Hugging Face keys
Tensors = dict[str, Array]

# --------------------------------------------------------------------------- tokenizers

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # ids 0, 1, 2, as in SmolLM2
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Zephyr's format, which TinyLlama was tuned on.
ZEPHYR = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\n' + message['content'] + eos_token + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)

# Best first. `_` stands for the space, which byte-level vocabularies spell U+0120 and SPM U+2581.
MERGE_TABLE = """
_ t|h e|_ a|i n|_t he|r e|o n|_ s|e r|n d|_ w|o u|a t|_ b|i s|_a nd|i t|e n|_ o|in g|_ f|e s|_ h
o r|_ m|l l|a n|_ c|e d|_t o|a r|_o f|_ p|a l|o m|v e|_ d|_ in|l e|_ l|i c|_ n|s t|u r|o w|l y|c h
k e|s e|a s|_w as|_ he|g h|i d|_ re|o t|_ _|__ __|1 0|u n|_the re
"""
MERGES = [tuple(merge.split()) for merge in re.split(r"[|\n]", MERGE_TABLE.strip())]
SPM_CHARACTERS = "_abcdefghijklmnopqrstuvwxyz.,!?'"
# Both tiny vocabularies have this size, so that every tiny model can carry either.
VOCAB_SIZE = len(SPECIAL_TOKENS) + 256 + len(MERGES)

PRE_TOKENIZERS = {
    "gpt-2": None,  # the expression built into the ByteLevel pre-tokenizer
    "qwen2": (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}


def byte_level_tokens() -> tuple[list[str], list[tuple[str, str]]]:
    """List the tiny byte-level vocabulary, in the order of ids, and its merges."""
    from tokenizers.pre_tokenizers import ByteLevel

    merges = [(a.replace("_", "\u0120"), b.replace("_", "\u0120")) for a, b in MERGES]
    merged = [a + b for a, b in merges]
    return [*SPECIAL_TOKENS, *sorted(ByteLevel.alphabet()), *merged], merges


def byte_level_tokenizer(pre: str = "gpt-2") -> Any:
    """Build the tiny byte-level BPE as a `tokenizers.Tokenizer`."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    tokens, merges = byte_level_tokens()
    vocabulary = {token: id for id, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    pattern = PRE_TOKENIZERS[pre]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    if pattern is None:
        tokenizer.pre_tokenizer = byte_level
    else:
        tokenizer.normalizer = normalizers.NFC()
        split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def spm_tokens() -> list[tuple[str, float, int]]:
    """List the tiny SentencePiece-style vocabulary: (piece, score, GGUF token type) per id."""
    num_merged = VOCAB_SIZE - 259 - len(SPM_CHARACTERS)
    merged = [a + b for a, b in MERGES[:num_merged]]
    return spm_vocabulary([piece.replace("_", "\u2581") for piece in [*merged, *SPM_CHARACTERS]])


def spm_vocabulary(pieces: Sequence[str]) -> list[tuple[str, float, int]]:
    """Put <unk>, <s>, </s> and the 256 bytes before `pieces`, which are given best first."""
    unknown, control, byte, normal = 2, 3, 6, 1
    vocabulary = [("<unk>", 0.0, unknown), ("<s>", 0.0, control), ("</s>", 0.0, control)]
    vocabulary += [(f"<0x{value:02X}>", 0.0, byte) for value in range(256)]
    return vocabulary + [(piece, -float(rank), normal) for rank, piece in enumerate(pieces)]


def add_byte_level_tokenizer(writer: Any, config: Config) -> None:
    """Write the tiny byte-level vocabulary into a GGUF file, padded to the model's vocab_size."""
    tokens, merges = byte_level_tokens()
    padding = [f"[PAD{id}]" for id in range(len(tokens), config.vocab_size)]
    normal, control, unused = 1, 3, 5
    types = [control] * len(SPECIAL_TOKENS) + [normal] * (len(tokens) - len(SPECIAL_TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2" if config.model_type == "qwen2" else "gpt-2")
    writer.add_token_list(tokens + padding)
    writer.add_token_types(types + [unused] * len(padding))
    writer.add_token_merges([f"{a} {b}" for a, b in merges])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)


def add_spm_tokenizer(
    writer: Any, vocabulary: Sequence[tuple[str, float, int]], *, chat_template: str | None = None
) -> None:
    """Write a SentencePiece-style vocabulary into a GGUF file; <s> is BOS and </s> is EOS."""
    pieces, scores, types = zip(*vocabulary, strict=True)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(list(pieces))
    writer.add_token_scores(list(scores))
    writer.add_token_types(list(types))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(True)
    if chat_template is not None:
        writer.add_chat_template(chat_template)


# --------------------------------------------------------------------------- configs and tensors


def tiny_config(
    model_type: str = "llama",
    *,
    ties: bool = False,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    hidden: int = 64,
    intermediate: int = 96,
    layers: int = 2,
    vocab: int = VOCAB_SIZE,
    bias: bool = False,
    mlp_bias: bool = False,
    rope_theta: float = 10000.0,
    rope_scaling: dict[str, Any] | None = None,
    context: int = 256,
    eps: float = 1e-5,
) -> Config:
    """Describe a tiny model by Hugging Face's keys.

    `bias` gives q, k, v (and for llama o) a bias; Qwen2 always has those of q, k and v.
    """
    qwen2 = model_type == "qwen2"
    return SimpleNamespace(
        model_type=model_type,
        architectures=["Qwen2ForCausalLM" if qwen2 else "LlamaForCausalLM"],
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=context,
        rms_norm_eps=eps,
        rope_theta=rope_theta,
        rope_scaling=rope_scaling,
        hidden_act="silu",
        tie_word_embeddings=ties,
        attention_bias=bias and not qwen2,
        mlp_bias=mlp_bias,
        bos_token_id=0 if qwen2 else 1,
        eos_token_id=2,
    )


def sizes_for(format: str) -> dict[str, int]:
    """Return options of `tiny_config` that make rows whole blocks of a format."""
    if quantization.COLUMNS[format] < 256:
        return {}
    return {"hidden": 256, "intermediate": 256, "heads": 4, "head_dim": 64, "layers": 1}


def shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """List every tensor of a model with its shape, under Hugging Face's names."""
    hidden, intermediate = config.hidden_size, config.intermediate_size
    q = config.num_attention_heads * config.head_dim
    kv = config.num_key_value_heads * config.head_dim
    qwen2 = config.model_type == "qwen2"
    qkv_bias, o_bias = config.attention_bias or qwen2, config.attention_bias
    found: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tie_word_embeddings:
        found["lm_head.weight"] = (config.vocab_size, hidden)
    for layer in range(config.num_hidden_layers):
        at = f"model.layers.{layer}"
        found[f"{at}.input_layernorm.weight"] = (hidden,)
        found[f"{at}.post_attention_layernorm.weight"] = (hidden,)
        for name, rows, columns, biased in (
            ("self_attn.q_proj", q, hidden, qkv_bias),
            ("self_attn.k_proj", kv, hidden, qkv_bias),
            ("self_attn.v_proj", kv, hidden, qkv_bias),
            ("self_attn.o_proj", hidden, q, o_bias),
            ("mlp.gate_proj", intermediate, hidden, config.mlp_bias),
            ("mlp.up_proj", intermediate, hidden, config.mlp_bias),
            ("mlp.down_proj", hidden, intermediate, config.mlp_bias),
        ):
            found[f"{at}.{name}.weight"] = (rows, columns)
            if biased:
                found[f"{at}.{name}.bias"] = (rows,)
    return found


def random_tensors(config: Config, seed: int = 0) -> Tensors:
    """Draw a model's tensors, float32: weights of unit gain, norms around 1, biases around 0."""
    generator = np.random.default_rng(seed)
    tensors = {}
    for name, shape in shapes(config).items():
        values = generator.standard_normal(shape, np.float32)
        if name.endswith("norm.weight"):
            values = 1 + values / 4
        elif name.endswith("bias"):
            values = values / 4
        elif name != "model.embed_tokens.weight":
            values = values / np.sqrt(np.float32(shape[1]))
        tensors[name] = values.astype(np.float32)
    return tensors


def rounded(tensors: Mapping[str, Array], dtype: str) -> Tensors:
    """Round tensors to what a checkpoint of `dtype` can hold; float32 again."""
    format = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}[dtype]
    return {
        name: quantization.dequantize(format, quantization.quantize(format, values), values.shape)
        for name, values in tensors.items()
    }


# --------------------------------------------------------------------------- safetensors


def tiny_llama(
    path: Path,
    *,
    dtype: str = "float32",
    shards: int = 1,
    seed: int = 0,
    config_style: str = "transformers-5",
    **options: Any,
) -> Path:
    """Save a random Llama as a directory: config, safetensors, tokenizer, chat template.

    `options` are those of `tiny_config`. `shards` is the least number of files. `config_style`
    "transformers-4" writes rope_theta and torch_dtype as the checkpoints before 2026 have them.
    """
    config = tiny_config("llama", **options)
    return save_checkpoint(
        path, config, random_tensors(config, seed), dtype, shards=shards, config_style=config_style
    )


def tiny_qwen2(
    path: Path,
    *,
    dtype: str = "float32",
    shards: int = 1,
    seed: int = 0,
    config_style: str = "transformers-5",
    **options: Any,
) -> Path:
    """Save a random Qwen2 as a directory; see `tiny_llama`."""
    config = tiny_config("qwen2", **options)
    return save_checkpoint(
        path, config, random_tensors(config, seed), dtype, shards=shards, config_style=config_style
    )


def save_checkpoint(
    path: Path,
    config: Config,
    tensors: Mapping[str, Array],
    dtype: str = "float32",
    *,
    shards: int = 1,
    config_style: str = "transformers-5",
) -> Path:
    """Save tensors through transformers itself, beside the tiny byte-level tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    keys = {
        key: value
        for key, value in vars(config).items()
        if key not in ("model_type", "rope_theta", "rope_scaling", "architectures")
    }
    keys["rope_parameters"] = {
        "rope_type": "default",
        **(config.rope_scaling or {}),
        "rope_theta": config.rope_theta,
    }
    keys["pad_token_id"] = 2
    model: Any
    if config.model_type == "qwen2":
        del keys["attention_bias"], keys["mlp_bias"]
        model = Qwen2ForCausalLM(Qwen2Config(**keys))
    else:
        model = LlamaForCausalLM(LlamaConfig(**keys))
    state = {name: torch.from_numpy(np.array(values)) for name, values in tensors.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {"lm_head.weight"}, missing
    model = model.to(getattr(torch, dtype))
    num_bytes = sum(value.nelement() * value.element_size() for value in model.parameters())
    model.save_pretrained(path, max_shard_size=num_bytes // shards if shards > 1 else "50GB")

    if config_style == "transformers-4":
        file = path / "config.json"
        saved = json.loads(file.read_text("utf-8"))
        parameters = saved.pop("rope_parameters")
        saved["rope_theta"] = parameters.pop("rope_theta")
        scaled = parameters.get("rope_type", "default") != "default"
        saved["rope_scaling"] = parameters if scaled else None
        saved["torch_dtype"] = saved.pop("dtype")
        file.write_text(json.dumps(saved, indent=2), "utf-8")
    save_tokenizer(path, config)
    return path


def save_tokenizer(path: Path, config: Config) -> None:
    """Write tokenizer.json and tokenizer_config.json of the tiny byte-level tokenizer."""
    qwen2 = config.model_type == "qwen2"
    byte_level_tokenizer("qwen2" if qwen2 else "gpt-2").save(str(path / "tokenizer.json"))
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    tokenizer_config = {
        "tokenizer_class": "Qwen2Tokenizer" if qwen2 else "GPT2Tokenizer",
        "added_tokens_decoder": {
            str(id): {"content": token, "special": True, **flags}
            for id, token in enumerate(SPECIAL_TOKENS)
        },
        "add_bos_token": False,
        "add_prefix_space": False,
        "bos_token": None if qwen2 else "<|im_start|>",
        "eos_token": "<|im_end|>",
        "pad_token": "<|im_end|>",
        "unk_token": None if qwen2 else "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": config.max_position_embeddings,
        "chat_template": CHATML,
    }
    file = path / "tokenizer_config.json"
    file.write_text(json.dumps(tokenizer_config, indent=2), "utf-8")


def transformers_logits(path: Path, ids: Sequence[int]) -> Array:
    """Ask transformers for the logits of every position: (n, vocab) float32, eager attention."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager"
    )
    with torch.inference_mode():
        return np.array(model(torch.tensor([list(ids)])).logits[0].numpy())


def read_directory(path: Path) -> tuple[Config, Tensors]:
    """Read a directory with config.json and safetensors: config and float32 tensors."""
    from safetensors.torch import load_file
    from transformers import AutoConfig

    tensors: Tensors = {}
    for file in sorted(path.glob("*.safetensors")):
        for name, values in load_file(file).items():
            tensors[name] = values.float().numpy()
    return AutoConfig.from_pretrained(path), tensors


# --------------------------------------------------------------------------- GGUF

GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
HUGGING_FACE_NAMES = {gguf: name for name, gguf in GGUF_NAMES.items()}


def gguf_name(name: str) -> str:
    """model.layers.3.mlp.up_proj.weight -> blk.3.ffn_up.weight."""
    stem, kind = name.rsplit(".", 1)
    if layer := re.fullmatch(r"model\.layers\.(\d+)\.(.+)", stem):
        return f"blk.{layer[1]}.{GGUF_NAMES[layer[2]]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def hugging_face_name(name: str) -> str:
    """Undo `gguf_name`."""
    stem, kind = name.rsplit(".", 1)
    if layer := re.fullmatch(r"blk\.(\d+)\.(.+)", stem):
        return f"model.layers.{layer[1]}.{HUGGING_FACE_NAMES[layer[2]]}.{kind}"
    return f"{HUGGING_FACE_NAMES[stem]}.{kind}"


def rotated_heads(config: Config, name: str) -> int:
    """Count the heads whose rows a llama GGUF reorders in this tensor; 0 if it leaves it alone."""
    if config.model_type != "llama":
        return 0
    if ".q_proj." in name:
        return int(config.num_attention_heads)
    return int(config.num_key_value_heads) if ".k_proj." in name else 0


# llama.cpp's LLAMA_FTYPE numbers, of mixes where a format has no file type of its own.
FILE_TYPES = {
    "f32": 0,
    "f16": 1,
    "bf16": 32,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 8,
    "q5_1": 9,
    "q8_0": 7,
    "q2_k": 10,
    "q3_k": 12,
    "q4_k": 15,
    "q5_k": 17,
    "q6_k": 18,
    "iq4_nl": 25,
    "iq4_xs": 30,
    "mxfp4": 38,
}


def gguf_llama(
    path: Path,
    config: Config,
    tensors: Mapping[str, Array],
    *,
    format: str = "f32",
    formats: Mapping[str, str] | None = None,
    tokenizer: str | None = "gpt2",
    vocabulary: Sequence[tuple[str, float, int]] | None = None,
    split_max_tensors: int = 0,
) -> Path:
    """Write a Llama or Qwen2 as GGUF, as llama.cpp's converter and quantizer would.

    Matrices take `format`, or what `formats` says by a piece of their Hugging Face name, or f16 if
    a row is no multiple of the block; norms and biases stay f32. `tokenizer` is "gpt2", "llama" or
    None; `vocabulary` replaces the tiny SentencePiece-style one. With `split_max_tensors` a set of
    files `-00001-of-0000N.gguf` is written and the first returned.
    """
    import gguf

    writer = gguf.GGUFWriter(path, config.model_type, split_max_tensors=split_max_tensors)
    writer.add_name(f"tiny {config.model_type}")
    writer.add_file_type(FILE_TYPES[format])
    writer.add_quantization_version(2)
    add_hyperparameters(writer, config)
    if tokenizer == "gpt2":
        add_byte_level_tokenizer(writer, config)
    elif tokenizer == "llama":
        vocabulary = vocabulary or spm_tokens()
        if len(vocabulary) != config.vocab_size:
            raise ValueError(f"{len(vocabulary)} pieces for a vocab_size of {config.vocab_size}")
        add_spm_tokenizer(writer, vocabulary, chat_template=ZEPHYR)

    scaling = config.rope_scaling or {}
    if scaling.get("rope_type") == "llama3":
        # llama.cpp stores what the scaling divides each frequency by, as a tensor.
        plain = SimpleNamespace(**{**vars(config), "rope_scaling": None})
        factors = forward.inverse_frequencies(plain) / forward.inverse_frequencies(config)
        writer.add_tensor("rope_freqs.weight", factors.astype(np.float32))
    for name, values in tensors.items():
        if heads := rotated_heads(config, name):
            values = forward.interleaved(values, heads)
        stored = "f32" if values.ndim == 1 else format
        for piece, chosen in (formats or {}).items():
            stored = chosen if piece in name else stored
        if values.shape[-1] % quantization.COLUMNS[stored]:
            stored = "f16"
        kind = gguf.GGMLQuantizationType[stored.upper()]
        data = quantization.quantize(stored, values)
        if stored in ("f32", "f16"):
            data = data.view("<f4" if stored == "f32" else "<f2").reshape(values.shape)
        else:
            data = data.reshape(*values.shape[:-1], -1)
        writer.add_tensor(gguf_name(name), data, raw_dtype=kind)
    writer.write_header_to_file()
    files = writer.format_shard_names(path)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return files[0]


def add_hyperparameters(writer: Any, config: Config) -> None:
    """Write a config's numbers under GGUF's keys."""
    import gguf

    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    if config.head_dim * config.num_attention_heads != config.hidden_size:
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    scaling = config.rope_scaling or {}
    if scaling.get("rope_type", scaling.get("type")) == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])


def read_gguf(path: Path) -> tuple[Config, Tensors]:
    """Read a Llama or Qwen2 from one GGUF file with the `gguf` package.

    Tensors are float32, under Hugging Face names and in Hugging Face's order of rows.
    """
    import gguf

    reader = gguf.GGUFReader(path)
    metadata = {key: field.contents() for key, field in reader.fields.items()}
    architecture = metadata["general.architecture"]
    keys = {
        key.removeprefix(f"{architecture}."): value
        for key, value in metadata.items()
        if key.startswith(f"{architecture}.")
    }
    heads = keys["attention.head_count"]
    config = SimpleNamespace(
        model_type=architecture,
        vocab_size=len(metadata.get("tokenizer.ggml.tokens", ())) or keys["vocab_size"],
        hidden_size=keys["embedding_length"],
        intermediate_size=keys["feed_forward_length"],
        num_hidden_layers=keys["block_count"],
        num_attention_heads=heads,
        num_key_value_heads=keys.get("attention.head_count_kv", heads),
        head_dim=keys.get("attention.key_length", keys["embedding_length"] // heads),
        max_position_embeddings=keys["context_length"],
        rms_norm_eps=keys["attention.layer_norm_rms_epsilon"],
        rope_theta=keys.get("rope.freq_base", 10000.0),
        rope_scaling=None,
        tie_word_embeddings=all(tensor.name != "output.weight" for tensor in reader.tensors),
    )
    tensors: Tensors = {}
    for tensor in reader.tensors:
        name = hugging_face_name(tensor.name)
        shape = tuple(int(size) for size in reversed(tensor.shape))  # GGUF lists columns first
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(shape)
        if group := rotated_heads(config, name):
            values = forward.half_split(values, group)
        tensors[name] = np.array(values, np.float32)
    return config, tensors


# --------------------------------------------------------------------------- stories260K


def stories_tensors() -> tuple[Config, Tensors]:
    """Read tests/data/stories260K.bin: its config and tensors, rows as Hugging Face orders them."""
    raw = (DATA / "stories260K.bin").read_bytes()
    hidden, intermediate, layers, heads, kv_heads, vocab, context = struct.unpack_from("<7i", raw)
    config = tiny_config(
        ties=vocab > 0,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=hidden // heads,
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        vocab=abs(vocab),
        context=context,
    )
    floats = np.frombuffer(raw, "<f4", offset=28)
    offset = 0

    def take(*shape: int) -> Array:
        nonlocal offset
        start, offset = offset, offset + int(np.prod(shape))
        return floats[start:offset].reshape(shape).astype(np.float32)

    kv = kv_heads * config.head_dim
    embedding = take(config.vocab_size, hidden)
    stacked = {
        "input_layernorm": take(layers, hidden),
        "self_attn.q_proj": take(layers, hidden, hidden),
        "self_attn.k_proj": take(layers, kv, hidden),
        "self_attn.v_proj": take(layers, kv, hidden),
        "self_attn.o_proj": take(layers, hidden, hidden),
        "post_attention_layernorm": take(layers, hidden),
        "mlp.gate_proj": take(layers, intermediate, hidden),
        "mlp.down_proj": take(layers, hidden, intermediate),
        "mlp.up_proj": take(layers, intermediate, hidden),
    }
    norm = take(hidden)
    take(2, context, config.head_dim // 2)  # tables of cos and sin that nobody reads
    assert offset == len(floats), "the file holds more than its header says"

    tensors = {"model.embed_tokens.weight": embedding, "model.norm.weight": norm}
    for name, values in stacked.items():
        for layer in range(config.num_hidden_layers):
            full = f"model.layers.{layer}.{name}.weight"
            group = rotated_heads(config, full)
            tensors[full] = forward.half_split(values[layer], group) if group else values[layer]
    return config, tensors


def stories_vocabulary() -> list[tuple[str, float, int]]:
    """Read tests/data/tok512.bin as SentencePiece spells it: (piece, score, GGUF token type)."""
    raw = (DATA / "tok512.bin").read_bytes()
    pieces, offset = [], 4  # the first int32 is the longest piece
    while offset < len(raw):
        score, length = struct.unpack_from("<fi", raw, offset)
        offset += 8
        pieces.append((raw[offset : offset + length].decode("utf-8"), score))
        offset += length
    head = spm_vocabulary([])  # llama2.c writes the control tokens as "\n<s>\n", without types
    rest = [(piece.replace(" ", "\u2581"), score, 1) for piece, score in pieces[len(head) :]]
    assert [piece.strip("\n") for piece, _ in pieces[: len(head)]] == [piece for piece, *_ in head]
    return head + rest


def stories260k(path: Path, format: str = "f32") -> Path:
    """Convert stories260K to GGUF with its SentencePiece-style vocabulary; return the path.

    Its FFN has 172 columns, no multiple of 32: a block format leaves `down_proj` in f16.
    """
    config, tensors = stories_tensors()
    return gguf_llama(
        path, config, tensors, format=format, tokenizer="llama", vocabulary=stories_vocabulary()
    )


def stories_directory(path: Path) -> Path:
    """Convert stories260K to config.json and model.safetensors, without a tokenizer."""
    from safetensors.numpy import save_file

    config, tensors = stories_tensors()
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(vars(config), indent=2), "utf-8")
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    return path
