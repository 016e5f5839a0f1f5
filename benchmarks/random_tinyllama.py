"""Write a GGUF file in TinyLlama-1.1B's shape, with random weights and a made-up vocabulary.

Speed depends on shapes and formats, not on what a model has learned, so this stands in for a 1.1 B
model where none can be fetched. Block formats are drawn as bytes, tensor by tensor, never as a
float32 copy, so the file takes seconds and some 200 MB of memory. Every matrix takes the one
format, as `llama-quantize --pure` does. llama.cpp opens the file as well.

    python benchmarks/random_tinyllama.py random-tinyllama.gguf --format q4_0
"""

from __future__ import annotations

import argparse
import itertools
import string
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np
import numpy.typing as npt

HIDDEN, INTERMEDIATE, LAYERS = 2048, 5632, 22
HEADS, KV_HEADS, HEAD_DIM = 32, 4, 64
VOCAB, CONTEXT = 32000, 2048

# Standard deviation of a weight. A row of 2048 then has a gain of about 1/2: nothing overflows,
# nothing vanishes.
DEVIATION = 0.0115

# llama.cpp's LLAMA_FTYPE numbers; where it has only mixes of a format, one of these.
FILE_TYPES = {
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


class BlockFacts(NamedTuple):
    """Where a block's scale and minimum are, and what random integers in it come to."""

    scale: int  # offset of the f16 scale
    deviation: float  # of a weight, if the scale is 1
    minimum: int | None = None  # offset of the f16 minimum
    minimum_factor: float = 0.0  # of the scale: takes the mean of the codes away


# Uniform codes of b bits deviate by 2^b / sqrt(12). Times scales of 0 .. s (K-quants: 63, or 15 in
# q2_k) the mean square is s^2 / 3 times that of the codes; minima of 0 .. s, times dmin, then take
# the mean away but for their own deviation, which doubles the variance, roughly.
BLOCKS = {
    "q8_0": BlockFacts(0, 73.3),
    "q4_0": BlockFacts(0, 4.6),
    "q4_1": BlockFacts(0, 4.6, 2, -7.5),
    "q5_0": BlockFacts(0, 9.2),
    "q5_1": BlockFacts(0, 9.2, 2, -15.5),
    "q2_k": BlockFacts(80, 18.0, 82, 1.5),
    "q3_k": BlockFacts(108, 42.0),
    "q4_k": BlockFacts(0, 300.0, 2, 7.5),
    "q5_k": BlockFacts(0, 600.0, 2, 15.5),
    "q6_k": BlockFacts(208, 1366.0),
    "iq4_nl": BlockFacts(0, 71.0),
    "iq4_xs": BlockFacts(0, 1310.0),
    "mxfp4": BlockFacts(0, 2.8),
}

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>\n' + message['content'] + eos_token + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)


def shapes(layers: int = LAYERS) -> Iterator[tuple[str, tuple[int, ...]]]:
    """List the tensors, (rows, columns) or (hidden,), in the order of the file."""
    yield "token_embd.weight", (VOCAB, HIDDEN)
    for layer in range(layers):
        yield f"blk.{layer}.attn_norm.weight", (HIDDEN,)
        yield f"blk.{layer}.attn_q.weight", (HEADS * HEAD_DIM, HIDDEN)
        yield f"blk.{layer}.attn_k.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield f"blk.{layer}.attn_v.weight", (KV_HEADS * HEAD_DIM, HIDDEN)
        yield f"blk.{layer}.attn_output.weight", (HIDDEN, HEADS * HEAD_DIM)
        yield f"blk.{layer}.ffn_norm.weight", (HIDDEN,)
        yield f"blk.{layer}.ffn_gate.weight", (INTERMEDIATE, HIDDEN)
        yield f"blk.{layer}.ffn_up.weight", (INTERMEDIATE, HIDDEN)
        yield f"blk.{layer}.ffn_down.weight", (HIDDEN, INTERMEDIATE)
    yield "output_norm.weight", (HIDDEN,)
    yield "output.weight", (VOCAB, HIDDEN)


def random_rows(
    generator: np.random.Generator, format: str, rows: int, columns: int
) -> npt.NDArray[np.uint8]:
    """Draw a matrix as the bytes of its rows: (rows, bytes per row)."""
    if format in BLOCKS:
        kind = gguf.GGMLQuantizationType[format.upper()]
        return random_blocks(generator, format, rows * columns // gguf.GGML_QUANT_SIZES[kind][0])
    out = np.empty((rows, columns), np.uint16)
    for start in range(0, rows, 1024):  # float32 only for a slice at a time
        values = generator.random((min(1024, rows - start), columns), np.float32) - np.float32(0.5)
        values *= np.float32(DEVIATION * 12**0.5)
        bits = values.astype(np.float16).view(np.uint16)
        out[start : start + 1024] = bits if format == "f16" else values.view(np.uint32) >> 16
    return out.view(np.uint8)


def random_blocks(
    generator: np.random.Generator, format: str, blocks: int
) -> npt.NDArray[np.uint8]:
    """Draw blocks (blocks, bytes): random integers, and f16 scales that give them DEVIATION."""
    facts = BLOCKS[format]
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[format.upper()]][1]
    out = np.frombuffer(bytearray(generator.bytes(blocks * size)), np.uint8).reshape(blocks, size)
    scales = generator.random(blocks, np.float32)
    scales += np.float32(0.5)
    scales *= np.float32(DEVIATION / facts.deviation)
    if facts.minimum is None:
        # Codes need not be 0 on average (q4_0's are -8..7); signs of both kinds undo that.
        scales *= 1 - 2 * (out[:, size // 2] & 1).astype(np.float32)
    if format == "mxfp4":
        out[:, 0] = 127 + int(np.rint(np.log2(DEVIATION / facts.deviation)))
    else:
        out[:, facts.scale : facts.scale + 2] = half(scales)
    if facts.minimum is not None:
        minima = scales * np.float32(facts.minimum_factor)
        out[:, facts.minimum : facts.minimum + 2] = half(minima)
    if format == "q8_0":
        # -128 is no code of q8_0: quantizers scale by 127, and kernels may rely on it.
        codes = out[:, 2:]
        codes[codes == 0x80] = 0x81
    return out


def half(x: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """(blocks,) float32 -> the bytes of f16 (blocks, 2)."""
    return x.astype("<f2").view(np.uint8).reshape(len(x), 2)


def vocabulary() -> list[tuple[str, float, int]]:
    """Make up 32,000 pieces, SentencePiece-style: (piece, score, GGUF token type) per id.

    Control tokens and bytes first, as in Llama's vocabulary; then letters, pairs and triples, so
    that any text can be encoded and longer pieces can grow from shorter ones.
    """
    kinds = gguf.TokenType
    pieces = [("<unk>", kinds.UNKNOWN), ("<s>", kinds.CONTROL), ("</s>", kinds.CONTROL)]
    pieces += [(f"<0x{value:02X}>", kinds.BYTE) for value in range(256)]
    letters = string.ascii_lowercase
    pairs = ["".join(pair) for pair in itertools.product(letters, repeat=2)]
    triples = ["".join(triple) for triple in itertools.product(letters, repeat=3)]
    space = "\u2581"
    made_up = itertools.chain(
        [space],
        (character for character in string.printable if not character.isspace()),
        pairs,
        (space + letter for letter in letters),
        (space + pair for pair in pairs),
        (space + triple for triple in triples),
        triples,
    )
    pieces += [(piece, kinds.NORMAL) for piece in itertools.islice(made_up, VOCAB - len(pieces))]
    return [(piece, float(min(0, 259 - id)), int(kind)) for id, (piece, kind) in enumerate(pieces)]


def write(path: Path, format: str, *, layers: int = LAYERS, seed: int = 0) -> None:
    """Write the file, one tensor in memory at a time."""
    generator = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"random TinyLlama 1.1B {format}")
    writer.add_file_type(FILE_TYPES[format])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_vocab_size(VOCAB)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INTERMEDIATE)
    writer.add_block_count(layers)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10000.0)

    pieces, scores, kinds = zip(*vocabulary(), strict=True)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(list(pieces))
    writer.add_token_scores(list(scores))
    writer.add_token_types(list(kinds))
    writer.add_unk_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(True)
    writer.add_chat_template(CHAT_TEMPLATE)

    kind = gguf.GGMLQuantizationType[format.upper()]
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    for name, shape in shapes(layers):
        if len(shape) == 1:
            writer.add_tensor_info(name, shape, np.dtype(np.float32), shape[0] * 4)
        else:
            rows, columns = shape
            row_bytes = columns // block * block_bytes
            bytes_shape = (rows, row_bytes)  # of uint8, from which gguf derives the real shape
            writer.add_tensor_info(name, bytes_shape, np.dtype(np.uint8), rows * row_bytes, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _, shape in shapes(layers):
        if len(shape) == 1:
            writer.write_tensor_data(np.ones(shape, np.float32))
        else:
            writer.write_tensor_data(random_rows(generator, format, *shape))
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, help="the GGUF file to write")
    parser.add_argument("--format", choices=sorted(FILE_TYPES), default="q4_0")
    parser.add_argument("--layers", type=int, default=LAYERS, help="fewer make a smaller file")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    write(options.path, options.format, layers=options.layers, seed=options.seed)
    print(f"{options.path}: {options.path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
