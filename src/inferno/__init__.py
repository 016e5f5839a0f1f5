"""inferno: run a Llama-family language model on the CPU, fast and with the same bits every time.

    engine = inferno.Engine.load("smollm2-135m-instruct")
    print(engine.chat("What is Rust?"))

The names below are the public interface; everything else may change. They are imported when
first used, so that `import inferno` and `inferno --help` cost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inferno.engine import Engine as Engine
    from inferno.engine import Memory as Memory
    from inferno.errors import AccessDenied as AccessDenied
    from inferno.errors import Busy as Busy
    from inferno.errors import ContextFull as ContextFull
    from inferno.errors import DownloadFailed as DownloadFailed
    from inferno.errors import InfernoError as InfernoError
    from inferno.errors import InvalidCheckpoint as InvalidCheckpoint
    from inferno.errors import InvalidOption as InvalidOption
    from inferno.errors import InvalidText as InvalidText
    from inferno.errors import ModelNotFound as ModelNotFound
    from inferno.errors import NativeError as NativeError
    from inferno.errors import OutOfMemory as OutOfMemory
    from inferno.errors import TemplateError as TemplateError
    from inferno.errors import UnsupportedModel as UnsupportedModel
    from inferno.generation import Generation as Generation
    from inferno.generation import Stats as Stats
    from inferno.generation import TokenLogprobs as TokenLogprobs
    from inferno.options import SamplingParams as SamplingParams
    from inferno.scoring import Score as Score
    from inferno.session import Session as Session

_HOMES = {
    "Engine": "engine",
    "Memory": "engine",
    "Session": "session",
    "Generation": "generation",
    "Stats": "generation",
    "TokenLogprobs": "generation",
    "SamplingParams": "options",
    "Score": "scoring",
    **dict.fromkeys(
        (
            "InfernoError",
            "ModelNotFound",
            "DownloadFailed",
            "AccessDenied",
            "InvalidCheckpoint",
            "UnsupportedModel",
            "InvalidOption",
            "InvalidText",
            "TemplateError",
            "ContextFull",
            "OutOfMemory",
            "Busy",
            "NativeError",
        ),
        "errors",
    ),
}

__version__ = "0.1.0"
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module `inferno` has no attribute `{name}`")
    value = getattr(importlib.import_module(f"inferno.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
