"""The last pass: from tensors to the operations of a plan, on values that have no buffers yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from inferno.graph import Parameter, Rope, Tensor
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

_PRODUCTS = ("linear", "linear_add")
_ACTIVATIONS = ("silu_mul", "gelu_mul", "clamped_swiglu")


def emit(tensors: list[Tensor], format_of: FormatOf, activation_of: Mapping[str, str]) -> Program:
    """Write the operations that compute the last of `tensors`.

    `activation_of`: what a matrix of a format reads: "q8", "f32", …
    """
    return _Emitter(format_of, activation_of).run(tensors)


class _Emitter:
    def __init__(self, format_of: FormatOf, activation_of: Mapping[str, str]) -> None:
        self._format_of = format_of
        self._activation_of = activation_of
        self._program = Program()
        self._rows: dict[Tensor, Slice] = {}
        self._packs: dict[tuple[Tensor, str, str], Value] = {}
        self._extents: dict[Tensor, str] = {}
        # What is read of each: "rows", or the packed activations of a kind.
        self._readers: dict[Tensor, dict[str, None]] = defaultdict(dict)
        self._matrix_numbers: dict[tuple[Parameter, ...], int] = {}
        self._rope_numbers: dict[int, int] = {}

    def run(self, tensors: list[Tensor]) -> Program:
        for tensor in tensors:
            self._extents[tensor] = self._extent(tensor)
            for i, source in enumerate(tensor.inputs):
                packed = tensor.kind in _PRODUCTS and i == 0
                # What experts read of a token is spread over their rows first.
                packed = packed and self._extents[source] == self._extents[tensor]
                kind = self._activation_of[self._format_of(tensor.parameters[0])] if packed else ""
                self._readers[source][kind or "rows"] = None
        for tensor in tensors:
            write = getattr(self, f"_emit_{tensor.kind}", None)
            if write is None:
                raise NotImplementedError(
                    f"The plan has no operation for `{tensor.kind}` alone (width {tensor.width})"
                )
            write(tensor)
        return self._program

    def _extent(self, tensor: Tensor) -> str:
        if tensor.kind in _PRODUCTS and tensor.attributes["experts"]:
            return "routed"
        if tensor.kind in ("embed", "combine", "combine_add"):
            return "tokens"
        return "selected" if tensor.kind == "select" else self._extents[tensor.inputs[0]]

    def _add(self, kind: str, **fields: Any) -> None:
        self._program.operations.append(Operation(kind, **fields))

    def _new_rows(self, tensor: Tensor) -> Slice:
        rows = Slice(Value("rows", tensor.width, self._extents[tensor]), 0, tensor.width)
        self._rows[tensor] = rows
        return rows

    def _output(self, tensor: Tensor) -> tuple[Slice, bool]:
        """Return where to write, and whether to add to what is there: to the last input."""
        if not tensor.kind.endswith("_add"):
            return self._new_rows(tensor), False
        self._rows[tensor] = self._rows[tensor.inputs[-1]]
        return self._rows[tensor], True

    def _emit_embed(self, tensor: Tensor) -> None:
        a = tensor.attributes
        matrix = self._matrix(tensor.parameters, (a["rows"],), (0,), tensor.width)
        output = self._new_rows(tensor)
        self._add("embed", output=output, matrix=matrix, attributes={"scale": a["scale"]})

    def _emit_select(self, tensor: Tensor) -> None:
        self._add("select", input=self._rows[tensor.inputs[0]], output=self._new_rows(tensor))

    def _emit_slice(self, tensor: Tensor) -> None:
        whole = self._rows[tensor.inputs[0]]
        offset = whole.offset + tensor.attributes["offset"]
        self._rows[tensor] = Slice(whole.value, offset, tensor.width)

    # Norms and activations are written straight into the packed input of the matrices that read
    # them: here and not there, where the stream may have been added to.
    def _emit_rms_norm(self, tensor: Tensor) -> None:
        readers = self._readers[tensor]
        if "rows" in readers or tensor.attributes["head_dim"] != tensor.width:
            self._norm_rows(tensor)
        for kind in readers:
            if kind != "rows":
                self._pack(tensor, kind)

    def _emit_rms_norm_add(self, tensor: Tensor) -> None:
        self._norm_rows(tensor)

    def _emit_activation(self, tensor: Tensor) -> None:
        for kind in self._readers[tensor]:
            if kind == "rows":
                raise NotImplementedError(
                    f"The plan has no operation for `{tensor.kind}` that a matrix does not read"
                )
            self._pack(tensor, kind)

    _emit_silu_mul = _emit_gelu_mul = _emit_clamped_swiglu = _emit_activation

    def _emit_softcap(self, tensor: Tensor) -> None:
        rows = self._rows[tensor.inputs[0]]
        self._rows[tensor] = rows
        self._add("softcap", output=rows, attributes={"limit": tensor.attributes["limit"]})

    def _emit_linear(self, tensor: Tensor) -> None:
        a = tensor.attributes
        count = a["experts"] or 1
        # Of stacked products of experts, the parameters are those of each product in turn.
        numbers = [
            self._matrix(
                tensor.parameters[e::count], a["widths"], a["rope_head_dim"], tensor.inputs[0].width
            )
            for e in range(count)
        ]
        assert numbers == list(range(numbers[0], numbers[0] + count))
        vectors = [self._bias(tensor, tensor.parameters[e::count]) for e in range(count)]
        format = self._program.matrices[numbers[0]].format
        pack = self._pack(tensor.inputs[0], self._activation_of[format], self._extents[tensor])
        output, accumulate = self._output(tensor)
        self._add(
            "linear",
            pack=pack,
            output=output,
            matrix=numbers[0],
            vector=vectors[0],
            attributes={"accumulate": accumulate, "scale": a["scale"]},
        )

    _emit_linear_add = _emit_linear

    def _emit_attention(self, tensor: Tensor) -> None:
        a = dict(tensor.attributes)
        a["rope"] = self._rope(a["rope"])
        q, k, v = (self._rows[t] for t in tensor.inputs)
        sinks = [(parameter, a["heads"], 0) for parameter in tensor.parameters]
        self._add(
            "attention",
            input=q,
            second=k,
            third=v,
            output=self._new_rows(tensor),
            vector=self._vector(VectorSource(tuple(sinks), "")) if sinks else -1,
            attributes=a,
        )

    def _emit_route(self, tensor: Tensor) -> None:
        program, a = self._program, tensor.attributes
        shape = (tensor.width, a["experts_per_token"])
        if program.experts and shape != (program.experts, program.experts_per_token):
            raise NotImplementedError("The plan has one number of experts for all layers")
        program.experts, program.experts_per_token = shape
        self._add(
            "route",
            input=self._rows[tensor.inputs[0]],
            attributes={"normalize": a["normalize"]},
        )

    def _emit_combine(self, tensor: Tensor) -> None:
        output, accumulate = self._output(tensor)
        self._add(
            "combine",
            input=self._rows[tensor.inputs[0]],
            output=output,
            attributes={"accumulate": accumulate},
        )

    _emit_combine_add = _emit_combine

    def _norm_rows(self, tensor: Tensor) -> None:
        output, accumulate = self._output(tensor)
        self._add(
            "rms_norm_rows",
            input=self._rows[tensor.inputs[0]],
            output=output,
            vector=self._norm_weight(tensor),
            attributes={
                "accumulate": accumulate,
                "epsilon": tensor.attributes["epsilon"],
                "head_dim": tensor.attributes["head_dim"],
            },
        )

    def _norm_weight(self, tensor: Tensor) -> int:
        a = tensor.attributes
        part = (tensor.parameters[0], a["head_dim"], 0)
        return self._vector(VectorSource((part,), ".weight", a["offset"]))

    def _pack(self, tensor: Tensor, kind: str, extent: str | None = None) -> Value:
        extent = extent or self._extents[tensor]
        key = (tensor, kind, extent)
        if key in self._packs:
            return self._packs[key]
        pack = self._packs[key] = Value(kind, tensor.width, extent)
        if tensor in self._rows:
            self._add("pack", input=self._rows[tensor], pack=pack)
            return pack
        slices = [self._rows[t] for t in tensor.inputs]
        if tensor.kind == "rms_norm":
            epsilon = tensor.attributes["epsilon"]
            vector = self._norm_weight(tensor)
            self._add(
                "rms_norm",
                input=slices[0],
                pack=pack,
                vector=vector,
                attributes={"epsilon": epsilon},
            )
        else:
            assert tensor.kind in _ACTIVATIONS
            gate, up = slices
            self._add(tensor.kind, input=gate, second=up, pack=pack, attributes=tensor.attributes)
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

    def _bias(self, tensor: Tensor, parameters: tuple[Parameter, ...]) -> int:
        a = tensor.attributes
        if not any(a["bias"]):
            return -1
        parts = [
            (p if has else None, width, rope)
            for p, has, width, rope in zip(
                parameters, a["bias"], a["widths"], a["rope_head_dim"], strict=True
            )
        ]
        return self._vector(VectorSource(tuple(parts), ".bias"))

    def _vector(self, source: VectorSource) -> int:
        self._program.vectors.append(source)
        return len(self._program.vectors) - 1

    def _rope(self, rope: Rope | None) -> int:
        if rope is None:
            return -1
        key = id(rope)
        if key not in self._rope_numbers:
            self._rope_numbers[key] = len(self._program.ropes)
            self._program.ropes.append(rope)
        return self._rope_numbers[key]
