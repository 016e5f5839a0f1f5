"""Architectures: one file each, and the file's name is its registration.

A model file has `build(g, c, w)`, which describes the forward pass in the words of `graph`, and
returns the logits. It knows no formats, no files and no hardware.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from inferno.config import ModelConfig
from inferno.graph import Graph, Parameters, Tensor

_SHARED = {"blocks", "rope"}

Build = Callable[[Graph, ModelConfig, Parameters], Tensor]


def supported() -> list[str]:
    """Return the `model_type`s that have a file here."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in _SHARED)


def build_of(model_type: str) -> Build:
    """Return `build` of the file for `model_type`, one of `supported()`."""
    build: Build = importlib.import_module(f"inferno.models.{model_type}").build
    return build
