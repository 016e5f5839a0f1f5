"""The plan as Python holds it: operations on values, before values have buffers.

Values are float rows, or activations packed for the matrices that read them ("q8", "f32", …).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from inferno.graph import Parameter, Rope


@dataclass(frozen=True, eq=False)
class Value:
    """(rows, columns) of the kind "rows" or packed ("q8", "f32", …).

    `extent` says what there is a row for: "tokens", "selected" (those with logits), or "routed"
    (each expert of each token).
    """

    kind: str
    columns: int
    extent: str


@dataclass(frozen=True)
class Slice:
    """Columns offset to offset + width of a value of rows."""

    value: Value
    offset: int
    width: int


@dataclass(frozen=True)
class Operation:
    """One operation of the plan; the fields are those of `Op` in native/runtime/plan.h."""

    kind: str
    input: Slice | None = None
    second: Slice | None = None
    third: Slice | None = None
    output: Slice | None = None
    pack: Value | None = None
    matrix: int = -1
    vector: int = -1
    attributes: dict[str, Any] = field(default_factory=dict)

    def values(self) -> list[Value]:
        """Return the values read or written."""
        slices = [s.value for s in (self.input, self.second, self.third, self.output) if s]
        return [*slices, self.pack] if self.pack else slices


@dataclass(frozen=True)
class Part:
    """Rows of a matrix that come from one stored tensor."""

    parameter: Parameter
    rows: int
    rope_head_dim: int


@dataclass(frozen=True)
class MatrixSource:
    """A packed matrix: stacked parts, all of `columns` columns, in one format."""

    parts: tuple[Part, ...]
    columns: int
    format: str

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def name(self) -> str:
        return " + ".join(part.parameter.name for part in self.parts)


@dataclass(frozen=True)
class VectorSource:
    """A norm's weight, a layer's sinks, or the biases of a stacked matrix: None where one has none.

    `offset` is what checkpoints leave out of the stored values, unless the file's writer added it.
    """

    parts: tuple[tuple[Parameter | None, int, int], ...]  # (parameter, size, rope_head_dim)
    suffix: str  # ".weight", ".bias" or none
    offset: float = 0.0


@dataclass
class Program:
    """Operations in order, and where their weights come from."""

    operations: list[Operation] = field(default_factory=list)
    matrices: list[MatrixSource] = field(default_factory=list)
    vectors: list[VectorSource] = field(default_factory=list)
    ropes: list[Rope] = field(default_factory=list)
    experts: int = 0
    experts_per_token: int = 0
