"""The last pass: from tensors to the operations of a plan, on values that have no buffers yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from inferno.graph import Floats, Parameter, Tensor
from inferno.lowering.fuse import FormatOf
from inferno.lowering.operations import (
    MatrixSource,
    Operation,
    Part,
    Program,
    Slice,
    Value,
    VectorSource,
)


def emit(tensors: list[Tensor], format_of: FormatOf, activation_of: Mapping[str, str]) -> Program:
    """Write the operations that compute the last of `tensors`.

    `activation_of`: what a matrix of a format reads, "q8" or "f32".
    """
    return _Emitter(format_of, activation_of).run(tensors)


class _Emitter:
    def __init__(self, format_of: FormatOf, activation_of: Mapping[str, str]) -> None:
        self._format_of = format_of
        self._activation_of = activation_of
        self._program = Program()
        self._rows: dict[Tensor, Slice] = {}
        self._packs: dict[tuple[Tensor, str], Value] = {}
        self._readers: dict[Tensor, list[str]] = defaultdict(list)  # what matrices read of each
        self._matrix_numbers: dict[tuple[Parameter, ...], int] = {}
        self._rope_numbers: dict[int, int] = {}

    def run(self, tensors: list[Tensor]) -> Program:
        for tensor in tensors:
            if tensor.kind in ("linear", "linear_add"):
                format = self._format_of(tensor.parameters[0])
                self._readers[tensor.inputs[0]].append(self._activation_of[format])
        for tensor in tensors:
            write = getattr(self, f"_emit_{tensor.kind}", None)
            if write is None:
                raise NotImplementedError(
                    f"The plan has no operation for `{tensor.kind}` alone (width {tensor.width})"
                )
            write(tensor)
        return self._program

    def _add(self, kind: str, **fields: Any) -> None:
        self._program.operations.append(Operation(kind, **fields))

    def _new_rows(self, tensor: Tensor, selected: bool) -> Slice:
        rows = Slice(Value("rows", tensor.width, selected), 0, tensor.width)
        self._rows[tensor] = rows
        return rows

    def _emit_embed(self, tensor: Tensor) -> None:
        matrix = self._matrix(tensor.parameters, (tensor.attributes["rows"],), (0,), tensor.width)
        self._add("embed", output=self._new_rows(tensor, False), matrix=matrix)

    def _emit_select(self, tensor: Tensor) -> None:
        self._add("select", input=self._rows[tensor.inputs[0]], output=self._new_rows(tensor, True))

    def _emit_slice(self, tensor: Tensor) -> None:
        whole = self._rows[tensor.inputs[0]]
        self._rows[tensor] = Slice(whole.value, tensor.attributes["offset"], tensor.width)

    # Norms and activations are written straight into the packed input of the matrices that read
    # them: here and not there, where the stream may have been added to.
    def _emit_rms_norm(self, tensor: Tensor) -> None:
        for kind in self._readers[tensor]:
            self._pack(tensor, kind)

    _emit_silu_mul = _emit_rms_norm

    def _emit_linear(self, tensor: Tensor) -> None:
        self._product(tensor, None)

    def _emit_linear_add(self, tensor: Tensor) -> None:
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
        pack = self._pack(tensor.inputs[0], self._activation_of[format])
        output = stream or self._new_rows(tensor, pack.selected)
        self._add(
            "linear",
            pack=pack,
            output=output,
            matrix=matrix,
            vector=self._bias(tensor),
            attributes={"accumulate": stream is not None},
        )

    def _emit_attention(self, tensor: Tensor) -> None:
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
