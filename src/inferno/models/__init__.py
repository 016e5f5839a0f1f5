"""Architectures: one file each, and the file's name is its registration.

A model file has `build(g, c, w)`, which describes the forward pass in the words of `graph`, and
returns the logits. It knows no formats, no files and no hardware. Two constants it may have:

- `USES`: the fields of `ModelConfig`, beyond those that every model has, that `build` goes by.
  A checkpoint that sets another one is refused, since its results would be others in silence.
- `DEFAULTS`: values of config.json that a checkpoint may leave out, where the family differs.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from typing import Any

from inferno.config import ModelConfig
from inferno.graph import Graph, Parameters, Tensor

_SHARED = {"blocks", "experts", "rope"}

Build = Callable[[Graph, ModelConfig, Parameters], Tensor]


def supported() -> list[str]:
    """Return the `model_type`s that have a file here."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if m.name not in _SHARED)


def build_of(model_type: str) -> Build:
    """Return `build` of the file for `model_type`, one of `supported()`."""
    build: Build = importlib.import_module(f"inferno.models.{model_type}").build
    return build


def uses_of(model_type: str) -> frozenset[str]:
    """Return `USES` of the file for `model_type`."""
    module = importlib.import_module(f"inferno.models.{model_type}")
    return frozenset(getattr(module, "USES", ()))


def defaults_of(model_type: str) -> Mapping[str, Any]:
    """Return `DEFAULTS` of the file for `model_type`."""
    module = importlib.import_module(f"inferno.models.{model_type}")
    return dict(getattr(module, "DEFAULTS", {}))
