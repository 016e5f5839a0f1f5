"""The words a model file is written in: tensors of one row a token, and the operations on them.

A graph is only a description; `lowering` turns it into a plan for the native core. Knows no
formats, threads, caches or instruction sets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Parameter:
    """Weights by name, without `.weight` or `.bias`: `model.layers.0.self_attn.q_proj`."""

    name: str


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

    def __mul__(self, other: Tensor) -> Tensor:
        return self._graph.elementwise("mul", self, other)

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
        return self._add("embed", (), width, parameters=(w.parameter,), rows=vocab_size)

    def rms_norm(self, x: Tensor, w: Parameters, epsilon: float) -> Tensor:
        """Return x / sqrt(mean(x^2) + epsilon) * w (Zhang and Sennrich, arXiv:1910.07467)."""
        return self._add("rms_norm", (x,), x.width, parameters=(w.parameter,), epsilon=epsilon)

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
        rope: Floats | None,
        scale: float,
    ) -> Tensor:
        """Store k and v in the cache of `layer` and attend causally to all that is in it.

        q: (tokens, heads * head_dim); k, v: (tokens, kv_heads * head_dim). `rope`: inverse
        frequencies (head_dim / 2,) that rotate q and k first, or None.
        """
        return self._add(
            "attention",
            (q, k, v),
            q.width,
            layer=layer,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            rope=rope,
            scale=scale,
        )

    def silu(self, x: Tensor) -> Tensor:
        """Return x * sigmoid(x)."""
        return self._add("silu", (x,), x.width)

    def elementwise(self, kind: str, a: Tensor, b: Tensor) -> Tensor:
        """Return a + b or a * b, of the same width."""
        if a.width != b.width:
            raise ValueError(f"{kind}: expected equal widths, found {a.width} and {b.width}")
        return self._add(kind, (a, b), a.width)
