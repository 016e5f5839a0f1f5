"""The plan as Python holds it: operations on values, before values have buffers.

Values are float rows, or activations packed for the matrices that read them ("q8" or "f32").
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from inferno.graph import Floats, Parameter, Tensor
from inferno.lowering.fuse import FormatOf


@dataclass(frozen=True, eq=False)
class Value:
    """(rows, columns) of the kind "rows", "q8" or "f32"; `selected`: only rows with logits."""

    kind: str
    columns: int
    selected: bool


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
    """A norm's weight, or the biases of a stacked matrix: None where a part has none."""

    parts: tuple[tuple[Parameter | None, int, int], ...]  # (parameter, size, rope_head_dim)
    suffix: str  # "weight" or "bias"


@dataclass
class Program:
    """Operations in order, and where their weights come from."""

    operations: list[Operation] = field(default_factory=list)
    matrices: list[MatrixSource] = field(default_factory=list)
    vectors: list[VectorSource] = field(default_factory=list)
    ropes: list[Floats] = field(default_factory=list)


# What a matrix of a format reads.
ACTIVATION_OF = {"f32": "f32", "f16": "f32", "bf16": "f32"}


def emit(tensors: list[Tensor], format_of: FormatOf) -> Program:
    """Write the operations that compute the last of `tensors`."""
    return _Emitter(format_of).run(tensors)


class _Emitter:
    def __init__(self, format_of: FormatOf) -> None:
        self._format_of = format_of
        self._program = Program()
        self._rows: dict[Tensor, Slice] = {}
        self._packs: dict[tuple[Tensor, str], Value] = {}
        self._matrix_numbers: dict[tuple[Parameter, ...], int] = {}
        self._rope_numbers: dict[int, int] = {}

    def run(self, tensors: list[Tensor]) -> Program:
        for tensor in tensors:
            getattr(self, f"_{tensor.kind}")(tensor)
        return self._program

    def _add(self, kind: str, **fields: Any) -> None:
        self._program.operations.append(Operation(kind, **fields))

    def _new_rows(self, tensor: Tensor, selected: bool) -> Slice:
        rows = Slice(Value("rows", tensor.width, selected), 0, tensor.width)
        self._rows[tensor] = rows
        return rows

    def _embed(self, tensor: Tensor) -> None:
        matrix = self._matrix(tensor.parameters, (tensor.attributes["rows"],), (0,), tensor.width)
        self._add("embed", output=self._new_rows(tensor, False), matrix=matrix)

    def _select(self, tensor: Tensor) -> None:
        self._add("select", input=self._rows[tensor.inputs[0]], output=self._new_rows(tensor, True))

    def _slice(self, tensor: Tensor) -> None:
        whole = self._rows[tensor.inputs[0]]
        self._rows[tensor] = Slice(whole.value, tensor.attributes["offset"], tensor.width)

    # Norms and activations are computed where a matrix reads them, straight into its packed input.
    def _rms_norm(self, tensor: Tensor) -> None: ...

    def _silu_mul(self, tensor: Tensor) -> None: ...

    def _linear(self, tensor: Tensor) -> None:
        self._product(tensor, None)

    def _linear_add(self, tensor: Tensor) -> None:
        stream = self._rows[tensor.inputs[1]]
        self._rows[tensor] = stream
        self._product(tensor, stream)

    def _product(self, tensor: Tensor, stream: Slice | None) -> None:
        matrix = self._matrix(
            tensor.parameters,
            tensor.attributes["widths"],
            tensor.attributes["rope_head_dim"],
            tensor.inputs[0].width,
        )
        format = self._program.matrices[matrix].format
        pack = self._pack(tensor.inputs[0], ACTIVATION_OF.get(format, "q8"))
        output = stream or self._new_rows(tensor, pack.selected)
        self._add(
            "linear",
            pack=pack,
            output=output,
            matrix=matrix,
            vector=self._bias(tensor),
            attributes={"accumulate": stream is not None},
        )

    def _attention(self, tensor: Tensor) -> None:
        a = dict(tensor.attributes)
        a["rope"] = self._rope(a["rope"])
        q, k, v = (self._rows[t] for t in tensor.inputs)
        self._add(
            "attention",
            input=q,
            second=k,
            third=v,
            output=self._new_rows(tensor, False),
            attributes=a,
        )

    def _pack(self, tensor: Tensor, kind: str) -> Value:
        if (tensor, kind) in self._packs:
            return self._packs[tensor, kind]
        source = tensor.inputs if tensor.kind in ("rms_norm", "silu_mul") else (tensor,)
        slices = [self._rows[t] for t in source]
        pack = Value(kind, tensor.width, slices[0].value.selected)
        self._packs[tensor, kind] = pack
        if tensor.kind == "rms_norm":
            self._program.vectors.append(
                VectorSource(((tensor.parameters[0], tensor.width, 0),), "weight")
            )
            self._add(
                "rms_norm",
                input=slices[0],
                pack=pack,
                vector=len(self._program.vectors) - 1,
                attributes={"epsilon": tensor.attributes["epsilon"]},
            )
        elif tensor.kind == "silu_mul":
            self._add("silu_mul", input=slices[0], second=slices[1], pack=pack)
        else:
            self._add("pack", input=slices[0], pack=pack)
        return pack

    def _matrix(
        self,
        parameters: tuple[Parameter, ...],
        rows: tuple[int, ...],
        rope_head_dims: tuple[int, ...],
        columns: int,
    ) -> int:
        if parameters not in self._matrix_numbers:
            parts = tuple(map(Part, parameters, rows, rope_head_dims))
            self._matrix_numbers[parameters] = len(self._program.matrices)
            self._program.matrices.append(
                MatrixSource(parts, columns, self._format_of(parameters[0]))
            )
        return self._matrix_numbers[parameters]

    def _bias(self, tensor: Tensor) -> int:
        a = tensor.attributes
        if not any(a["bias"]):
            return -1
        self._program.vectors.append(
            VectorSource(
                tuple(
                    (p if has else None, width, rope)
                    for p, has, width, rope in zip(
                        tensor.parameters, a["bias"], a["widths"], a["rope_head_dim"], strict=True
                    )
                ),
                "bias",
            )
        )
        return len(self._program.vectors) - 1

    def _rope(self, frequencies: Floats | None) -> int:
        if frequencies is None:
            return -1
        key = id(frequencies)
        if key not in self._rope_numbers:
            self._rope_numbers[key] = len(self._program.ropes)
            self._program.ropes.append(frequencies)
        return self._rope_numbers[key]
