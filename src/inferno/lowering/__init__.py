"""From a graph to a plan for the native core, as a list of small passes.

Knows no architectures and no instruction sets; what a plan can say is in native/runtime/plan.h.
"""

from __future__ import annotations

from collections.abc import Mapping

from inferno.graph import Tensor
from inferno.lowering.buffers import assign_buffers
from inferno.lowering.emit import emit
from inferno.lowering.fuse import (
    FormatOf,
    fold_activations,
    fold_residuals,
    fold_scales,
    group_linears,
    select_rows,
)
from inferno.lowering.operations import Program

__all__ = ["Program", "assign_buffers", "lower"]


def lower(tensors: list[Tensor], format_of: FormatOf, activation_of: Mapping[str, str]) -> Program:
    """Lower a graph whose last tensor is the logits.

    `format_of(parameter)`: how it is packed. `activation_of[format]`: what its matrices read.
    """
    tensors = fold_scales(tensors)
    tensors = select_rows(tensors)
    tensors = fold_activations(tensors)
    tensors = group_linears(tensors, format_of)
    tensors = fold_residuals(tensors)
    return emit(tensors, format_of, activation_of)
