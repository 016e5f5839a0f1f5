"""Which format a matrix gets: llama.cpp's mixes, written out for a model or two."""

from __future__ import annotations

import pytest

from inferno import InvalidOption
from inferno.recipes import check_type, file_type, format_of, weight_choices

LAYER = "model.layers.{}.{}.weight"
PARTS = (
    *("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
    *("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
)


def layers_of(
    type: str, part: str, format: str, *, layers: int = 24, columns: int = 2048
) -> list[int]:
    """List the layers whose `part` has a format."""
    names = [LAYER.format(layer, part) for layer in range(layers)]
    found = [format_of(type, name, columns, layers=layers, tied=False) for name in names]
    return [layer for layer, one in enumerate(found) if one == format]


def test_q4_k_m_has_better_values_and_down_projections_where_llama_cpp_has_them() -> None:
    better = [0, 1, 2, 5, 8, 11, 14, 17, 20, 21, 22, 23]
    for part in PARTS:
        expected = better if part in ("self_attn.v_proj", "mlp.down_proj") else []
        assert layers_of("q4_k_m", part, "q6_k") == expected
        others = [layer for layer in range(24) if layer not in expected]
        assert layers_of("q4_k_m", part, "q4_k") == others


def test_the_other_mixes() -> None:
    assert layers_of("q4_k_s", "self_attn.v_proj", "q5_k") == [0, 1, 2, 3]
    assert layers_of("q4_k_s", "mlp.down_proj", "q5_k") == [0, 1, 2]
    assert layers_of("q5_k_m", "mlp.down_proj", "q6_k") == layers_of(
        "q4_k_m", "mlp.down_proj", "q6_k"
    )
    assert layers_of("q3_k_m", "self_attn.v_proj", "q5_k") == [0, 1]
    assert layers_of("q3_k_m", "mlp.down_proj", "q5_k") == [0]
    assert layers_of("q3_k_m", "mlp.down_proj", "q4_k") == list(range(1, 24))
    assert layers_of("q3_k_m", "self_attn.o_proj", "q4_k") == list(range(24))
    assert layers_of("q3_k_l", "self_attn.o_proj", "q5_k") == list(range(24))
    assert layers_of("q4_k_m", "self_attn.qkv_proj", "q5_k") == list(range(24))
    assert layers_of("q4_k", "mlp.down_proj", "q4_k") == list(range(24))


@pytest.mark.parametrize(
    ("format", "of_32", "of_none"),
    [
        *(("q2_k", "q4_0", "f16"), ("q3_k", "q4_0", "f16"), ("q4_k", "q5_0", "f16")),
        *(("q5_k", "q5_1", "f16"), ("q6_k", "q8_0", "f16"), ("q4_0", "q4_0", "q4_0")),
    ],
)
def test_rows_that_are_no_whole_blocks_have_another_format(
    format: str, of_32: str, of_none: str
) -> None:
    name = LAYER.format(0, "mlp.up_proj")
    found = [format_of(format, name, columns, layers=2, tied=True) for columns in (512, 576, 40)]
    assert found == [format, of_32, of_none]


@pytest.mark.parametrize("type", ["q2_k", "q4_k", "q4_k_m", "q6_k"])
def test_the_head_has_six_bits_and_so_has_an_embedding_that_is_the_head(type: str) -> None:
    head, embedding = "lm_head.weight", "model.embed_tokens.weight"
    assert format_of(type, head, 2048, layers=2, tied=False) == "q6_k"
    assert format_of(type, embedding, 2048, layers=2, tied=True) == "q6_k"
    assert format_of(type, embedding, 576, layers=2, tied=True) == "q8_0"
    assert format_of(type, embedding, 2048, layers=2, tied=False) == type.removesuffix("_m")


def test_an_embedding_in_four_bits_has_eight() -> None:
    for tied in (False, True):
        name = "model.embed_tokens.weight"
        assert format_of("q4_0", name, 64, layers=2, tied=tied) == "q8_0"
    assert format_of("q4_0", "lm_head.weight", 64, layers=2, tied=False) == "q4_0"


def test_the_down_projections_of_experts_are_down_projections() -> None:
    for part in ("mlp.experts.7.down_proj", "block_sparse_moe.experts.7.w2"):
        assert 23 in layers_of("q4_k_m", part, "q6_k") and 3 in layers_of("q4_k_m", part, "q4_k")


def test_file_types_are_those_of_the_gguf_package() -> None:
    import gguf

    for choice in weight_choices():
        names = [choice, f"mostly_{choice}", f"mostly_{choice}_s", f"all_{choice}"]
        known = {t.name.lower(): t.value for t in gguf.LlamaFileType}
        assert file_type(choice) in [known.get(name) for name in names]


@pytest.mark.parametrize(
    ("asked", "meant"), [("Q4_K_M", "q4_k_m"), ("q4km", "q4_k_m"), ("q8", "q8_0"), ("Q6_K", "q6_k")]
)
def test_a_type_that_is_nearly_right_is_named(asked: str, meant: str) -> None:
    with pytest.raises(InvalidOption, match=r"`type`: expected one of .*q4_k_m, q5_k_m, found"):
        check_type("type", asked)
    try:
        check_type("type", asked)
    except InvalidOption as error:
        assert error.hint == f"did you mean `{meant}`?"


@pytest.mark.parametrize("asked", [None, 4, ["q4_0"], "", "x" * 10_000])
def test_what_is_no_type_at_all_is_refused(asked: object) -> None:
    with pytest.raises(InvalidOption, match="`type`: expected one of"):
        check_type("type", asked)
