"""Three models, three prompts, and the hashes of their logits: data/golden_logits.json.

Every instruction set of every machine reproduces them. `python tests/golden.py` writes them anew,
from the scalar kernels: a change there is a change of every answer, and needs a reason.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import checkpoints
import engines

FILE = Path(__file__).parent / "data/golden_logits.json"

# stories260K is real; the other has the widths and scales that blocks of 256 columns want.
MODELS = {
    "stories260K-q8_0": lambda path: checkpoints.stories260k(path, "q8_0"),
    "stories260K-q4_0": lambda path: checkpoints.stories260k(path, "q4_0"),
    "random-llama-q4_k": lambda path: engines.tiny_gguf(path, format="q4_k", seed=5),
}
STORY = json.loads((FILE.parent / "stories260K.greedy.json").read_text("utf-8"))["ids"]


def prompts(vocab_size: int) -> dict[str, list[int]]:
    """Return one token; the beginning of a story, over a page of the cache; ids at random."""
    return {
        "one token": [1],
        "a story": [id % vocab_size for id in STORY[:90]],
        "random": engines.random_ids(37, vocab_size, seed=11),
    }


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def golden() -> dict[str, dict[str, str]]:
    """Return {model: {"file": its hash, prompt: hash of the logits of all its positions}}."""
    found: dict[str, dict[str, str]] = json.loads(FILE.read_text("utf-8"))
    return found


def main() -> None:
    table = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, make in MODELS.items():
            path = make(Path(folder) / f"{name}.gguf")
            engine = engines.load(path, isa="scalar", threads=2)
            table[name] = {"file": digest(path.read_bytes())}
            for prompt, ids in prompts(engine.config.vocab_size).items():
                table[name][prompt] = digest(engine.logits(ids).tobytes())
    FILE.write_text(json.dumps(table, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
