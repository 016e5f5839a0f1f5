"""The words a model file is written in: tensors of one row a token, and the operations on them.

A graph is only a description; `lowering` turns it into a plan for the native core. Knows no
formats, threads, caches or instruction sets.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Parameter:
    """Weights by name, without `.weight` or `.bias`: `model.layers.0.self_attn.q_proj`."""

    name: str


class Rope(NamedTuple):
    """A rotation of the first 2 * len(inverse_frequencies) columns of each head.

    `factor`: what sines and cosines are multiplied by.
    """

    inverse_frequencies: Floats
    factor: float = 1.0


class Parameters:
    """The names below a prefix: `w["self_attn"]["q_proj"]` is `self_attn.q_proj` of `w`."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix

    def __getitem__(self, name: str) -> Parameters:
        return Parameters(f"{self._prefix}.{name}" if self._prefix else name)

    def layers(self, name: str, count: int) -> Iterator[Parameters]:
        """Yield the parameters of layers 0 to count - 1."""
        for layer in range(count):
            yield self[f"{name}.{layer}"]

    @property
    def parameter(self) -> Parameter:
        return Parameter(self._prefix)


@dataclass(frozen=True, eq=False)
class Tensor:
    """(tokens, width) f32: what `kind` makes of `inputs`. Compared by identity."""

    kind: str
    inputs: tuple[Tensor, ...]
    width: int
    parameters: tuple[Parameter, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    graph: Graph | None = field(default=None, repr=False)

    def __add__(self, other: Tensor) -> Tensor:
        return self._graph.elementwise("add", self, other)

    def __mul__(self, other: Tensor | float) -> Tensor:
        if isinstance(other, Tensor):
            return self._graph.elementwise("mul", self, other)
        return self._graph.scale(self, other)

    @property
    def _graph(self) -> Graph:
        assert self.graph is not None
        return self.graph


class Graph:
    """A model being described; `tensors` are in the order in which they were made."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []

    def _add(
        self,
        kind: str,
        inputs: tuple[Tensor, ...],
        width: int,
        *,
        parameters: tuple[Parameter, ...] = (),
        **attributes: Any,
    ) -> Tensor:
        tensor = Tensor(kind, inputs, width, parameters, attributes, self)
        self.tensors.append(tensor)
        return tensor

    def embed(self, w: Parameters, vocab_size: int, width: int) -> Tensor:
        """Return row `token` of w: (vocab_size, width), for each token."""
        return self._add("embed", (), width, parameters=(w.parameter,), rows=vocab_size, scale=1.0)

    def rms_norm(
        self,
        x: Tensor,
        w: Parameters,
        epsilon: float,
        *,
        head_dim: int | None = None,
        unit_offset: bool = False,
    ) -> Tensor:
        """Return x / sqrt(mean(x^2) + epsilon) * w (Zhang and Sennrich, arXiv:1910.07467).

        w: (x.width,), or (head_dim,) with `head_dim`: each head is then normalized by itself.
        `unit_offset`: checkpoints store w - 1.
        """
        return self._add(
            "rms_norm",
            (x,),
            x.width,
            parameters=(w.parameter,),
            epsilon=epsilon,
            head_dim=head_dim or x.width,
            offset=1.0 if unit_offset else 0.0,
        )

    def linear(
        self, x: Tensor, w: Parameters, width: int, *, bias: bool = False, rope_head_dim: int = 0
    ) -> Tensor:
        """Return x w^T (+ bias); w: (width, x.width).

        `rope_head_dim`: these are heads that will be rotated, so rows that a checkpoint stores
        as neighbouring pairs are put in halves.
        """
        return self._add(
            "linear",
            (x,),
            width,
            parameters=(w.parameter,),
            bias=(bias,),
            rope_head_dim=(rope_head_dim,),
            widths=(width,),
            scale=1.0,
            experts=0,
        )

    def split(self, x: Tensor, *widths: int) -> tuple[Tensor, ...]:
        """Return consecutive columns of x, which `widths` add up to."""
        if sum(widths) != x.width:
            raise ValueError(f"split: expected widths that sum to {x.width}, found {widths}")
        starts = itertools.accumulate(widths, initial=0)
        return tuple(
            self._add("slice", (x,), width, offset=start)
            for width, start in zip(widths, starts, strict=False)
        )

    def attention(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        layer: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        rope: Rope | None,
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
        sinks: Parameters | None = None,
    ) -> Tensor:
        """Store k and v in the cache of `layer` and attend causally to all that is in it.

        q: (tokens, heads * head_dim); k, v: (tokens, kv_heads * head_dim). `rope` rotates q and
        k first. `window`: how many positions a token sees, itself the last; 0 for all. `softcap`:
        the bound of scores; 0 for none. `sinks`: (heads,) scores that take part in the softmax
        without a value.
        """
        return self._add(
            "attention",
            (q, k, v),
            q.width,
            parameters=() if sinks is None else (sinks.parameter,),
            layer=layer,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            rope=rope,
            scale=scale,
            window=window,
            limit=softcap,
        )

    def silu(self, x: Tensor) -> Tensor:
        """Return x * sigmoid(x)."""
        return self._add("silu", (x,), x.width)

    def gelu(self, x: Tensor) -> Tensor:
        """Return x * Phi(x), approximated by tanh (Hendrycks and Gimpel, arXiv:1606.08415)."""
        return self._add("gelu", (x,), x.width)

    def clamped_swiglu(self, gate: Tensor, up: Tensor, limit: float) -> Tensor:
        """Return g * sigmoid(1.702 g) * (u + 1), with g <= limit and |u| <= limit (gpt-oss)."""
        return self._add("clamped_swiglu", (gate, up), gate.width, limit=limit)

    def scale(self, x: Tensor, factor: float) -> Tensor:
        """Return x * factor."""
        return x if factor == 1.0 else self._add("scale", (x,), x.width, factor=factor)

    def softcap(self, x: Tensor, limit: float) -> Tensor:
        """Return limit * tanh(x / limit)."""
        return self._add("softcap", (x,), x.width, limit=limit)

    def route(self, logits: Tensor, experts_per_token: int, *, normalize: bool) -> Tensor:
        """Choose the experts of each token: those with the largest logits, ties to the lower.

        Their weights are the softmax over all, or over the chosen if `normalize`.
        """
        return self._add(
            "route",
            (logits,),
            logits.width,
            experts_per_token=experts_per_token,
            normalize=normalize,
        )

    def expert_linear(
        self,
        x: Tensor,
        routing: Tensor,
        w: Sequence[Parameters],
        width: int,
        *,
        bias: bool = False,
    ) -> Tensor:
        """Return x w[e]^T (+ bias[e]) for each expert e that `routing` chose, a row each.

        x: a row a token, or what another `expert_linear` made of it. w[e]: (width, x.width).
        """
        return self._add(
            "linear",
            (x, routing),
            width,
            parameters=tuple(expert.parameter for expert in w),
            bias=(bias,),
            rope_head_dim=(0,),
            widths=(width,),
            scale=1.0,
            experts=len(w),
        )

    def combine(self, x: Tensor, routing: Tensor) -> Tensor:
        """Return the sum of each token's experts' rows of x, times the weights of `routing`."""
        return self._add("combine", (x, routing), x.width)

    def elementwise(self, kind: str, a: Tensor, b: Tensor) -> Tensor:
        """Return a + b or a * b, of the same width."""
        if a.width != b.width:
            raise ValueError(f"{kind}: expected equal widths, found {a.width} and {b.width}")
        return self._add(kind, (a, b), a.width)
