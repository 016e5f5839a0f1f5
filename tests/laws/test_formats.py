"""What Python and the native core both say must be the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import architectures
from inferno import Engine, InvalidOption, _native, engine, loading, recipes
from inferno.cli import flags
from inferno.config import MAX_EXPERTS
from inferno.errors import NativeError
from inferno.models import supported
from inferno.weights import FORMATS, SUPPORTED_FORMATS
from reference import kv_cache, quantization

NATIVE = {name: rest for name, *rest in _native.formats()}
SOURCE = Path(__file__).parents[2] / "native"

each_format = pytest.mark.parametrize("format", NATIVE)


def constant(header: str, name: str) -> int:
    """Read an integer constant of a native header."""
    text = (SOURCE / header).read_text("utf-8")
    found = re.search(rf"constexpr int(?:64_t)? {name} = (\d+);", text)
    assert found, f"{header} has no {name}"
    return int(found[1])


def test_files_may_hold_what_kernels_can_multiply() -> None:
    assert len(set(SUPPORTED_FORMATS)) == len(SUPPORTED_FORMATS)
    assert set(SUPPORTED_FORMATS) == set(NATIVE) == set(quantization.FORMATS)


@each_format
def test_a_stored_block_has_one_size(format: str) -> None:
    _, columns, block_bytes, _, _ = NATIVE[format]
    assert FORMATS[format].nbytes((columns,)) == block_bytes
    assert quantization.row_bytes(format, columns) == block_bytes


@each_format
def test_packing_adds_nothing_to_a_block(format: str) -> None:
    _, _, block_bytes, tile_block_bytes, _ = NATIVE[format]
    unpacked_scales = 2 if format == "iq4_xs" else 0
    assert tile_block_bytes == 16 * (block_bytes + unpacked_scales)


@each_format
def test_the_halves_of_a_block_are_known(format: str) -> None:
    assert FORMATS[format].halves == quantization.HALVES.get(format, ())


def test_a_block_of_weights_is_a_block_of_activations_or_more() -> None:
    kinds = {name: columns for name, columns, _ in _native.activations()}
    for activation, columns, *_ in NATIVE.values():
        assert columns == kinds[activation]


def test_weights_can_become_what_floats_are_quantized_to() -> None:
    encode = [name for name, (*_, encodes) in NATIVE.items() if encodes]
    assert recipes.weight_choices()[: len(encode)] == encode
    assert set(loading._FLOAT_FORMATS) <= set(encode)
    formats = {recipes._RECIPES[choice].format for choice in recipes.weight_choices()}
    assert formats == set(encode)


def test_a_page_has_as_many_positions_on_both_sides() -> None:
    assert constant("kernels/cache_types.h", "kPagePositions") == loading.PAGE_POSITIONS
    one_page = _native.PagePool(1, 1, 16, "f16")
    assert one_page.bytes_per_position == 2 * 16 * 2  # keys and values of f16
    assert one_page.allocated_bytes == 0


@pytest.mark.parametrize(
    ("kv_cache", "head_dim", "bytes"),
    [
        ("f16", 64, 2 * 128),
        ("f16", 40, 2 * 2 * 48),  # sixteen lanes
        ("f32", 64, 2 * 256),
        ("q8_0", 64, 2 * 2 * 34),  # blocks of 32 with a scale of two bytes
        ("q8_0", 80, 2 * 3 * 34),
    ],
)
def test_a_position_takes_what_its_numbers_take(kv_cache: str, head_dim: int, bytes: int) -> None:
    pool = _native.PagePool(3, 2, head_dim, kv_cache)
    assert pool.bytes_per_position == 3 * 2 * bytes
    assert pool.page_bytes == loading.PAGE_POSITIONS * pool.bytes_per_position


def test_the_types_of_cache_are_said_alike_everywhere() -> None:
    types = _native.cache_types()
    assert types == list(loading.KV_CACHE_TYPES) and set(types) == set(kv_cache.TYPES)
    assert types[0] == "f16"  # the default
    _, _, words = flags.ENGINE_FLAGS["kv_cache"]
    assert words == f"of keys and values: {', '.join(types)} ({types[0]})"
    with pytest.raises(NativeError, match="Unknown type of cache"):
        _native.PagePool(1, 1, 16, "q4_0")


def test_the_most_experts_are_as_many_on_both_sides() -> None:
    assert constant("kernels/table.h", "kMaxExperts") == MAX_EXPERTS


def test_the_most_threads_are_as_many_on_both_sides(llama_gguf: Path) -> None:
    assert constant("base/thread_pool.h", "kMaxThreads") == engine.MAX_THREADS
    with pytest.raises(InvalidOption, match=f"1 to {engine.MAX_THREADS}, found"):
        _native.ThreadPool(engine.MAX_THREADS + 1)
    with pytest.raises(InvalidOption, match=f"1 to {engine.MAX_THREADS}, found"):
        Engine.load(llama_gguf, threads=engine.MAX_THREADS + 1)


def test_every_operation_of_a_lowered_model_exists(tmp_path: Path) -> None:
    text = (SOURCE / "runtime/plan.h").read_text("utf-8")
    kinds = re.findall(r"^    X\((\w+)\)", text, re.M)
    found = set()
    for model_type in supported():
        path = architectures.save(tmp_path / model_type, model_type, num_hidden_layers=2)
        program = Engine.load(path, threads=1)._loaded.program
        found |= {op.kind for op in program.operations}
    assert found == set(kinds)
