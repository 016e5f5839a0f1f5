"""Open a checkpoint: names, shapes, formats and bytes; nothing is copied.

Knows nothing of architectures beyond their tensor names, nor of what the weights are for.
"""

from __future__ import annotations

import os
from pathlib import Path

from inferno.errors import ModelNotFound
from inferno.weights.checkpoint import Checkpoint, TokenizerFiles
from inferno.weights.tensor import FORMATS, SUPPORTED_FORMATS, Format, StoredTensor

__all__ = [
    "FORMATS",
    "SUPPORTED_FORMATS",
    "Checkpoint",
    "Format",
    "StoredTensor",
    "TokenizerFiles",
    "open_checkpoint",
]


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Open a GGUF file, the first file of a split set, or a directory with safetensors.

    Raises:
        ModelNotFound: there is nothing at `path`, or no model in the directory.
        InvalidCheckpoint: a file is cut, corrupt, or contradicts another.
        UnsupportedModel: an architecture, a feature or a format that this version cannot run.
    """
    path = Path(path)
    if path.is_dir():
        from inferno.weights.safetensors import open_directory

        return open_directory(path)
    if path.suffix == ".safetensors":
        raise ModelNotFound(
            f"`{path}` holds weights only; a model needs the config.json and tokenizer beside it",
            hint=f"give the directory: `{path.parent}`",
        )
    from inferno.weights.gguf import open_gguf

    return open_gguf(path)
