"""Lowering changes how a graph is computed, never what.

Two interpreters in float64 numpy: one of the graph as it was written, tensor by tensor, and one of
the program as the core runs it, in buffers that are really shared, with the memory of dead values
poisoned. What a test builds is small enough to follow by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import architectures
from inferno.config import ModelConfig
from inferno.graph import Graph, Parameter, Parameters, Rope, Tensor
from inferno.lowering import Program, assign_buffers, lower
from inferno.lowering.operations import Operation, Slice, Value
from inferno.models import build_of, supported

Doubles = npt.NDArray[np.float64]
FormatOf = Callable[[Parameter], str]

TOKENS = [3, 1, 4, 1, 5]
VOCAB = 8
READS = {"q4_0": "q8", "q8_0": "q8", "f16": "f32", "f32": "f32"}


def uniform(format: str = "f32") -> FormatOf:
    return lambda parameter: format


def by_name(default: str, **formats: str) -> FormatOf:
    """Give the parameters whose name ends so their format."""
    return lambda p: next((f for end, f in formats.items() if p.name.endswith(end)), default)


class Weights:
    """Random tensors, drawn when first asked for; asked again, they must have the same shape."""

    def __init__(self) -> None:
        self._tensors: dict[str, Doubles] = {}
        self._random = np.random.default_rng(0)

    def __call__(self, parameter: Parameter, kind: str, *shape: int) -> Doubles:
        name = f"{parameter.name}.{kind}"
        if name not in self._tensors:
            self._tensors[name] = self._random.standard_normal(shape)
        assert self._tensors[name].shape == shape, name
        return self._tensors[name]


# ---- what the operations are ---------------------------------------------------------------------


def rms_norm(x: Doubles, weight: Doubles, epsilon: float) -> Doubles:
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + epsilon) * weight


def rms_norm_heads(x: Doubles, weight: Doubles, a: dict[str, Any]) -> Doubles:
    heads = x.reshape(-1, a["head_dim"])
    return rms_norm(heads, weight, a["epsilon"]).reshape(x.shape)


def silu(x: Doubles) -> Doubles:
    return x / (1 + np.exp(-x))


def gelu(x: Doubles) -> Doubles:
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def clamped_swiglu(gate: Doubles, up: Doubles, limit: float) -> Doubles:
    gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return gate / (1 + np.exp(-1.702 * gate)) * (up + 1)


def routed(logits: Doubles, chosen: int, normalize: bool) -> Doubles:
    """Return the weight of every expert, 0 for those not chosen: (tokens, experts)."""
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    order = np.argsort(-logits, axis=1, kind="stable")[:, :chosen]
    kept = np.zeros_like(weights)
    np.put_along_axis(kept, order, np.take_along_axis(weights, order, axis=1), axis=1)
    return kept / kept.sum(axis=1, keepdims=True) if normalize else kept


def rotated(x: Doubles, head_dim: int, rope: Rope) -> Doubles:
    frequencies = np.asarray(rope.inverse_frequencies, np.float64)
    pairs = len(frequencies)
    heads = x.reshape(len(x), -1, head_dim).copy()
    angles = np.arange(len(x))[:, None] * frequencies
    cos, sin = (f(angles)[:, None] * rope.factor for f in (np.cos, np.sin))
    first, second = heads[..., :pairs].copy(), heads[..., pairs : 2 * pairs].copy()
    heads[..., :pairs] = first * cos - second * sin
    heads[..., pairs : 2 * pairs] = second * cos + first * sin
    return heads.reshape(x.shape)


def attention(
    q: Doubles, k: Doubles, v: Doubles, a: dict[str, Any], sinks: Doubles | None
) -> Doubles:
    """q, k are rotated already; positions start at 0."""
    n, d, group = len(q), a["head_dim"], a["heads"] // a["kv_heads"]
    out = np.empty_like(q)
    for head in range(a["heads"]):
        mine = slice(head * d, (head + 1) * d)
        theirs = slice(head // group * d, (head // group + 1) * d)
        for i in range(n):
            first = max(0, i + 1 - a["window"]) if a["window"] else 0
            scores = k[first : i + 1, theirs] @ q[i, mine] * a["scale"]
            if a["limit"]:
                scores = a["limit"] * np.tanh(scores / a["limit"])
            weights = np.exp(scores)
            total = weights.sum() + (0 if sinks is None else np.exp(sinks[head]))
            out[i, mine] = weights / total @ v[first : i + 1, theirs]
    return out


# ---- the graph, as written -----------------------------------------------------------------------


def evaluate(tensors: Sequence[Tensor], weights: Weights) -> Doubles:
    """Compute every tensor from its inputs, each in memory of its own; return the last."""
    values: dict[int, Doubles] = {}
    for t in tensors:
        x = [values[id(source)] for source in t.inputs]
        a = t.attributes
        if t.kind == "embed":
            value = weights(t.parameters[0], "weight", a["rows"], t.width)[TOKENS]
        elif t.kind == "rms_norm":
            weight = weights(t.parameters[0], "weight", a["head_dim"]) + a["offset"]
            value = rms_norm_heads(x[0], weight, a)
        elif t.kind == "linear" and a["experts"]:
            # Every expert of every token, chosen or not: (tokens, experts, width).
            each = x[0] if x[0].ndim == 3 else np.repeat(x[0][:, None], a["experts"], axis=1)
            value = np.stack(
                [
                    each[:, e] @ weights(p, "weight", t.width, each.shape[2]).T
                    + (weights(p, "bias", t.width) if a["bias"][0] else 0)
                    for e, p in enumerate(t.parameters)
                ],
                axis=1,
            )
        elif t.kind == "route":
            value = routed(x[0], a["experts_per_token"], a["normalize"])
        elif t.kind == "combine":
            value = np.einsum("tew,te->tw", x[0], x[1])
        elif t.kind == "linear":
            value = x[0] @ weights(t.parameters[0], "weight", t.width, x[0].shape[1]).T
            if a["bias"][0]:
                value = value + weights(t.parameters[0], "bias", t.width)
        elif t.kind == "attention":
            q, k, v = x
            if a["rope"] is not None:
                q, k = (rotated(y, a["head_dim"], a["rope"]) for y in (q, k))
            sinks = [weights(p, "", a["heads"]) for p in t.parameters]
            value = attention(q, k, v, a, sinks[0] if sinks else None)
        elif t.kind == "slice":
            value = x[0][..., a["offset"] : a["offset"] + t.width]
        elif t.kind == "scale":
            value = x[0] * a["factor"]
        elif t.kind == "softcap":
            value = a["limit"] * np.tanh(x[0] / a["limit"])
        elif t.kind == "clamped_swiglu":
            value = clamped_swiglu(*x, a["limit"])
        else:
            functions = {"add": np.add, "mul": np.multiply, "silu": silu, "gelu": gelu}
            value = functions[t.kind](*x)
        assert (len(value), value.shape[-1]) == (len(TOKENS), t.width)
        values[id(t)] = value
    return values[id(tensors[-1])]


# ---- the program, as the core runs it ------------------------------------------------------------


class Machine:
    """Buffers and what the operations do to them; `wanted` rows are those with logits."""

    def __init__(self, program: Program, weights: Weights, wanted: Sequence[int]) -> None:
        self._program = program
        self._weights = weights
        self._wanted = list(wanted)
        patterns, self._buffers = assign_buffers(program.operations)
        shapes = {
            "tokens": (len(TOKENS),),
            "selected": (len(wanted),),
            "routed": (len(TOKENS), program.experts),  # chosen or not
        }
        self._memory = [np.full((*shapes[p.extent], p.columns), np.nan) for p in patterns]
        self._routing = np.empty(0)

    def run(self) -> Doubles:
        last_use = {v: i for i, op in enumerate(self._program.operations) for v in op.values()}
        for i, op in enumerate(self._program.operations):
            getattr(self, f"_{op.kind}")(op)
            for value in op.values():
                if last_use[value] == i and op is not self._program.operations[-1]:
                    self._memory[self._buffers[value]][:] = np.nan
        return self._at(op.output).copy()

    def _at(self, s: Slice | None) -> Doubles:
        assert s is not None
        return self._memory[self._buffers[s.value]][..., s.offset : s.offset + s.width]

    def _put(self, value: Value, rows: Doubles) -> None:
        self._memory[self._buffers[value]][:] = rows

    def _matrix(self, number: int) -> Doubles:
        source = self._program.matrices[number]
        parts = [self._weights(p.parameter, "weight", p.rows, source.columns) for p in source.parts]
        return np.concatenate(parts)

    def _vector(self, number: int) -> Doubles:
        source = self._program.vectors[number]
        return source.offset + np.concatenate(
            [
                np.zeros(size)
                if parameter is None
                else self._weights(parameter, source.suffix.removeprefix("."), size)
                for parameter, size, _ in source.parts
            ]
        )

    def _embed(self, op: Operation) -> None:
        self._at(op.output)[:] = self._matrix(op.matrix)[TOKENS] * op.attributes["scale"]

    def _select(self, op: Operation) -> None:
        self._at(op.output)[:] = self._at(op.input)[self._wanted]

    def _pack(self, op: Operation) -> None:
        rows = self._at(op.input)
        memory = self._memory[self._buffers[op.pack]]
        self._put(op.pack, rows[:, None] if memory.ndim > rows.ndim else rows)

    def _rms_norm(self, op: Operation) -> None:
        weight = self._vector(op.vector)
        self._put(op.pack, rms_norm(self._at(op.input), weight, op.attributes["epsilon"]))

    def _rms_norm_rows(self, op: Operation) -> None:
        self._write(op, rms_norm_heads(self._at(op.input), self._vector(op.vector), op.attributes))

    def _silu_mul(self, op: Operation) -> None:
        self._put(op.pack, silu(self._at(op.input)) * self._at(op.second))

    def _gelu_mul(self, op: Operation) -> None:
        self._put(op.pack, gelu(self._at(op.input)) * self._at(op.second))

    def _clamped_swiglu(self, op: Operation) -> None:
        limit = op.attributes["limit"]
        self._put(op.pack, clamped_swiglu(self._at(op.input), self._at(op.second), limit))

    def _softcap(self, op: Operation) -> None:
        limit = op.attributes["limit"]
        self._at(op.output)[:] = limit * np.tanh(self._at(op.output) / limit)

    def _route(self, op: Operation) -> None:
        chosen, normalize = self._program.experts_per_token, op.attributes["normalize"]
        self._routing = routed(self._at(op.input), chosen, normalize)

    def _combine(self, op: Operation) -> None:
        self._write(op, np.einsum("tew,te->tw", self._at(op.input), self._routing))

    def _write(self, op: Operation, rows: Doubles) -> None:
        self._at(op.output)[:] = self._at(op.output) + rows if op.attributes["accumulate"] else rows

    def _linear(self, op: Operation) -> None:
        x = self._memory[self._buffers[op.pack]]
        if x.ndim == 3:
            batches = [self._product(op, x[:, e], e) for e in range(x.shape[1])]
            return self._write(op, np.stack(batches, axis=1))
        return self._write(op, self._product(op, x, 0))

    def _product(self, op: Operation, x: Doubles, expert: int) -> Doubles:
        product = x @ self._matrix(op.matrix + expert).T
        if op.vector >= 0:
            product = product + self._vector(op.vector + expert)
        return product * op.attributes["scale"]

    def _attention(self, op: Operation) -> None:
        a, (q, k, v) = op.attributes, map(self._at, (op.input, op.second, op.third))
        if a["rope"] >= 0:
            for x in (q, k):  # in place, as the core does
                x[:] = rotated(x, a["head_dim"], self._program.ropes[a["rope"]])
        sinks = self._vector(op.vector) if op.vector >= 0 else None
        self._at(op.output)[:] = attention(q, k, v, a, sinks)


def lowered(g: Graph, format_of: FormatOf) -> Program:
    return lower(g.tensors, format_of, READS)


def assert_lowering_changes_nothing(
    g: Graph, format_of: FormatOf, wanted: Sequence[int] = range(len(TOKENS))
) -> Program:
    weights = Weights()
    expected = evaluate(g.tensors, weights)[list(wanted)]
    program = lowered(g, format_of)
    found = Machine(program, weights, wanted).run()
    # Both are float64; only BLAS may add in another order.
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    return program


def kinds(program: Program) -> list[str]:
    return [op.kind for op in program.operations]


def matrix_names(program: Program) -> list[str]:
    return [matrix.name for matrix in program.matrices]


W = Parameters()


def stream(g: Graph, width: int = 32) -> Tensor:
    return g.embed(W["embed"], VOCAB, width)


# ---- models --------------------------------------------------------------------------------------

MIXED = by_name("q4_0", v_proj="q8_0", k_proj="f16", up_proj="f32", embed_tokens="q8_0")


def model_graph(model_type: str, **options: Any) -> Graph:
    options = {"vocab_size": VOCAB, "num_hidden_layers": 2, **options}
    config = architectures.tiny_config(model_type, **options).to_dict()
    config["architectures"] = ["AnyForCausalLM"]
    g = Graph()
    build_of(model_type)(g, ModelConfig.from_huggingface(config), W)
    return g


@pytest.mark.parametrize(
    "format_of", [uniform("q4_0"), uniform("f32"), MIXED], ids=["q4_0", "f32", "mixed"]
)
@pytest.mark.parametrize(
    ("model_type", "options"),
    [
        *((model_type, {}) for model_type in supported()),
        ("llama", {"tie_word_embeddings": True, "num_hidden_layers": 1}),
        ("llama", {"attention_bias": True, "mlp_bias": True, "num_hidden_layers": 3}),
        ("qwen2", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
        ("mistral", {"sliding_window": 2}),
        ("gemma2", {"sliding_window": 3}),
        ("qwen3_moe", {"mlp_only_layers": [1], "norm_topk_prob": False}),
        ("phi3", {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
        ("smollm3", {"no_rope_layers": [1, 0]}),
    ],
)
def test_a_model_computes_the_same_lowered(
    model_type: str, options: dict[str, Any], format_of: FormatOf
) -> None:
    g = model_graph(model_type, **options)
    assert_lowering_changes_nothing(g, format_of)
    assert_lowering_changes_nothing(g, format_of, wanted=[4])
    assert_lowering_changes_nothing(g, format_of, wanted=[0, 3])


def test_a_llama_layer_is_nine_operations() -> None:
    layer = ["rms_norm", "linear", "attention", "pack", "linear"]
    layer += ["rms_norm", "linear", "silu_mul", "linear"]
    program = lowered(model_graph("llama"), uniform("q4_0"))
    assert kinds(program) == ["embed", *layer, *layer, "select", "rms_norm", "linear"]


def test_query_key_and_value_are_one_matrix_and_so_are_gate_and_up() -> None:
    program = lowered(model_graph("llama", num_hidden_layers=1), uniform("q4_0"))
    at = "model.layers.0"
    assert matrix_names(program) == [
        "model.embed_tokens",
        " + ".join(f"{at}.self_attn.{name}_proj" for name in "qkv"),
        f"{at}.self_attn.o_proj",
        f"{at}.mlp.gate_proj + {at}.mlp.up_proj",
        f"{at}.mlp.down_proj",
        "lm_head",
    ]


def test_a_tied_head_is_the_embedding_and_no_second_matrix() -> None:
    program = lowered(
        model_graph("llama", num_hidden_layers=1, tie_word_embeddings=True), uniform("q4_0")
    )
    embed, head = program.operations[0], program.operations[-1]
    assert embed.matrix == head.matrix
    assert len(program.matrices) == 5


def test_all_layers_share_one_table_of_frequencies() -> None:
    assert len(lowered(model_graph("llama", num_hidden_layers=4), uniform()).ropes) == 1


def test_a_deeper_model_needs_no_more_buffers() -> None:
    def count(layers: int) -> int:
        program = lowered(model_graph("llama", num_hidden_layers=layers), uniform("q4_0"))
        return len(assign_buffers(program.operations)[0])

    assert count(2) == count(3) == count(12)


# ---- one pass at a time --------------------------------------------------------------------------


def gated(g: Graph, x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    """Return logits of the stream x, to which down(silu(gate) * up) is added."""
    x = x + g.linear(g.silu(gate) * up, W["down"], x.width)
    return g.linear(x, W["head"], VOCAB)


def test_products_of_one_input_are_stacked() -> None:
    g = Graph()
    x = stream(g)
    h = g.rms_norm(x, W["norm"], 1e-5)
    gated(g, x, g.linear(h, W["gate"], 48), g.linear(h, W["up"], 48, bias=True))
    program = assert_lowering_changes_nothing(g, uniform("q4_0"))
    assert matrix_names(program) == ["embed", "gate + up", "down", "head"]


def test_products_in_different_formats_are_not_stacked() -> None:
    g = Graph()
    x = stream(g)
    h = g.rms_norm(x, W["norm"], 1e-5)
    gated(g, x, g.linear(h, W["gate"], 48), g.linear(h, W["up"], 48))
    program = assert_lowering_changes_nothing(g, by_name("q4_0", up="q8_0"))
    assert matrix_names(program) == ["embed", "gate", "up", "down", "head"]
    # Both read int8: the norm is packed once.
    assert kinds(program).count("rms_norm") == 1
    program = assert_lowering_changes_nothing(g, by_name("q4_0", up="f16"))
    assert kinds(program).count("rms_norm") == 2


def test_products_of_different_inputs_are_not_stacked() -> None:
    g = Graph()
    x = stream(g)
    gate = g.linear(g.rms_norm(x, W["first"], 1e-5), W["gate"], 48)
    gated(g, x, gate, g.linear(g.rms_norm(x, W["second"], 1e-5), W["up"], 48))
    program = assert_lowering_changes_nothing(g, uniform("q4_0"))
    assert matrix_names(program) == ["embed", "gate", "up", "down", "head"]


def test_a_residual_is_added_in_place() -> None:
    g = Graph()
    x = stream(g)
    x = x + g.linear(g.rms_norm(x, W["norm"], 1e-5), W["a"], 32)
    x = x + g.linear(x, W["b"], 32, bias=True)
    g.linear(x, W["head"], VOCAB)
    program = assert_lowering_changes_nothing(g, uniform())
    linears = [op for op in program.operations if op.kind == "linear"]
    assert [op.attributes["accumulate"] for op in linears] == [True, True, False]


@pytest.mark.parametrize("turned", [False, True])
def test_a_sum_may_be_written_either_way_round(turned: bool) -> None:
    g = Graph()
    x = stream(g)
    y = g.linear(g.rms_norm(x, W["norm"], 1e-5), W["a"], 32)
    x = y + x if turned else x + y
    g.linear(x, W["head"], VOCAB)
    assert "select" in kinds(assert_lowering_changes_nothing(g, uniform("q8_0")))


def test_two_products_can_be_added() -> None:
    g = Graph()
    x = stream(g)
    a = g.linear(g.rms_norm(x, W["first"], 1e-5), W["a"], 32)
    b = g.linear(g.rms_norm(x, W["second"], 1e-5), W["b"], 32)
    g.linear(a + b, W["head"], VOCAB)
    assert_lowering_changes_nothing(g, uniform("q8_0"))


def test_a_stream_that_is_read_later_is_not_overwritten() -> None:
    """x + y, where x is needed once more: the core has no such sum, and says so."""
    g = Graph()
    x = stream(g)
    y = x + g.linear(g.rms_norm(x, W["norm"], 1e-5), W["a"], 32)
    y = y + g.linear(x, W["b"], 32)
    g.linear(y, W["head"], VOCAB)
    with pytest.raises(NotImplementedError, match="`add`"):
        lowered(g, uniform("q8_0"))


def test_an_operation_that_the_core_lacks_is_named() -> None:
    g = Graph()
    g.linear(g.silu(stream(g)), W["head"], VOCAB)
    with pytest.raises(NotImplementedError, match="`silu`"):
        lowered(g, uniform("q8_0"))


@pytest.mark.parametrize("late", ["q8_0", "f16"])
def test_a_norm_sees_the_stream_as_it_was(late: str) -> None:
    """Two branches read one norm, and the first is added to the stream before the second reads."""
    g = Graph()
    x = stream(g)
    h = g.rms_norm(x, W["norm"], 1e-5)
    x = x + g.linear(h, W["early"], 32)
    x = x + g.linear(h, W["late"], 32)
    g.linear(x, W["head"], VOCAB)
    assert_lowering_changes_nothing(g, by_name("q8_0", late=late))


def test_a_gate_sees_the_stream_as_it_was() -> None:
    """silu(x) * x, read after x has been added to."""
    g = Graph()
    x = stream(g)
    h = g.silu(x) * x
    x = x + g.linear(g.rms_norm(x, W["norm"], 1e-5), W["early"], 32)
    x = x + g.linear(h, W["late"], 32)
    g.linear(x, W["head"], VOCAB)
    assert_lowering_changes_nothing(g, uniform("q8_0"))


def test_only_wanted_rows_reach_the_head() -> None:
    g = Graph()
    g.linear(g.rms_norm(stream(g), W["norm"], 1e-5), W["head"], VOCAB)
    program = assert_lowering_changes_nothing(g, uniform("q4_0"), wanted=[2])
    assert kinds(program) == ["embed", "select", "rms_norm", "linear"]
    assert [op.output.value.extent for op in program.operations if op.output] == [
        "tokens",
        "selected",
        "selected",
    ]


def test_a_norm_that_others_read_stays_whole() -> None:
    """The head's norm is selected; a norm that attention reads too is not."""
    g = Graph()
    x = stream(g)
    h = g.rms_norm(x, W["norm"], 1e-5)
    q, k, v = (g.linear(h, W[name], 32) for name in "qkv")
    o = g.attention(q, k, v, layer=0, heads=4, kv_heads=4, head_dim=8, rope=None, scale=0.5)
    g.linear(x + g.linear(o, W["o"], 32), W["head"], VOCAB)
    assert_lowering_changes_nothing(g, uniform("q4_0"), wanted=[4])


def test_graphs_refuse_to_add_tensors_of_different_widths() -> None:
    g = Graph()
    x = stream(g)
    with pytest.raises(ValueError, match="equal widths, found 32 and 48"):
        _ = x + g.linear(x, W["wide"], 48)


# ---- buffers -------------------------------------------------------------------------------------

PATTERNS = [
    ("rows", 8, "tokens"),
    ("rows", 8, "selected"),
    ("rows", 16, "tokens"),
    ("rows", 16, "routed"),
    ("q8", 8, "tokens"),
]


@st.composite
def operation_lists(draw: st.DrawFn) -> list[Operation]:
    """Operations that read a few of the values so far, and write a new one or add to an old."""
    values: list[Value] = []
    operations = []
    for _ in range(draw(st.integers(1, 30))):
        read = draw(st.lists(st.sampled_from(values), max_size=3)) if values else []
        if values and draw(st.booleans()):
            written = draw(st.sampled_from(values))
        else:
            written = Value(*draw(st.sampled_from(PATTERNS)))
            values.append(written)
        slices = [Slice(value, 0, value.columns) for value in [*read, written]]
        fields = dict(zip(("input", "second", "third", "output"), slices, strict=False))
        operations.append(Operation("any", **fields))
    return operations


@settings(max_examples=100, deadline=None)
@given(operation_lists())
def test_values_that_live_together_never_share_a_buffer(operations: list[Operation]) -> None:
    patterns, buffers = assign_buffers(operations)
    lives: dict[Value, list[int]] = {}
    for i, op in enumerate(operations):
        for value in op.values():
            lives.setdefault(value, []).append(i)
    assert set(buffers) == set(lives)
    for value, buffer in buffers.items():
        pattern = patterns[buffer]
        assert (pattern.kind, pattern.columns, pattern.extent) == (
            value.kind,
            value.columns,
            value.extent,
        )
    for a in lives:
        for b in lives:
            if a is not b and buffers[a] == buffers[b]:
                assert max(lives[a]) < min(lives[b]) or max(lives[b]) < min(lives[a])


@settings(max_examples=100, deadline=None)
@given(operation_lists())
def test_there_are_no_more_buffers_than_values_that_live_at_once(
    operations: list[Operation],
) -> None:
    patterns, _ = assign_buffers(operations)
    lives: dict[Value, list[int]] = {}
    for i, op in enumerate(operations):
        for value in op.values():
            lives.setdefault(value, []).append(i)
    for kind, columns, extent in PATTERNS:
        same = [
            life
            for v, life in lives.items()
            if (v.kind, v.columns, v.extent) == (kind, columns, extent)
        ]
        most = max(
            (sum(min(life) <= i <= max(life) for life in same) for i in range(len(operations))),
            default=0,
        )
        count = sum((p.kind, p.columns, p.extent) == (kind, columns, extent) for p in patterns)
        assert count == most
