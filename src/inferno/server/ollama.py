"""Requests in Ollama's words, said in those of OpenAI and llama.cpp; and answers in Ollama's."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from inferno import reasoning
from inferno.server.failures import invalid, unsupported
from inferno.server.fields import Fields, wrong
from inferno.server.prompts import infill_markers

if TYPE_CHECKING:
    from inferno.generation import Generation
    from inferno.server.service import Service
    from inferno.server.turns import Turn

# The release whose interface this is; clients ask, and refuse what is older than they need.
INTERFACE_VERSION = "0.13.0"

# Of `options`, what sampling knows by the same name.
SAMPLING = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repeat_last_n", "repeat_penalty",
    "presence_penalty", "frequency_penalty", "seed", "stop", "num_predict", "mirostat",
)  # fmt: skip
# About how the model is loaded, or of samplers that are off.
IGNORED = (
    "num_ctx", "num_batch", "num_thread", "num_gpu", "main_gpu", "num_keep", "use_mmap",
    "use_mlock", "numa", "low_vram", "f16_kv", "vocab_only", "logits_all", "embedding_only",
    "mirostat_tau", "mirostat_eta", "penalize_newline", "draft_num_predict",
)  # fmt: skip
EFFORTS = ("low", "medium", "high", "max")


def chat_fields(fields: Fields, service: Service, messages: list[Any]) -> Fields:
    """Return the fields of a chat in OpenAI's words. Raises RequestFailed."""
    asked: dict[str, Any] = {
        "messages": [_message(m, f"messages[{n}]") for n, m in enumerate(messages)],
        **sampling_fields(fields),
        **format_fields(fields),
        **_thinking(fields, service),
    }
    for name in ("logprobs", "top_logprobs", "tools"):
        asked[name] = fields.take(name)
    return Fields(asked, ignored=fields.ignored)


def sampling_fields(fields: Fields) -> dict[str, Any]:
    """Return what `options` say of sampling. Raises RequestFailed."""
    options = Fields(fields.mapping("options") or {})
    found = {name: options.take(name) for name in SAMPLING}
    if found["num_predict"] == -2:  # up to the end of the context, which is the end anyway
        found["num_predict"] = -1
    options.refuse("tfs_z", "tail-free sampling is not supported", 1, 1.0)
    options.ignore(*IGNORED)
    options.finish(strict=False)
    for name in options.ignored:
        fields.note(f"options.{name}")
    fields.ignore("keep_alive")
    return found


def format_fields(fields: Fields) -> dict[str, Any]:
    """Return which form the reply must have: `format` is "json" or a schema."""
    value = fields.take("format")
    if value is None or value == "":
        return {}
    if value == "json":
        return {"response_format": {"type": "json_object"}}
    if not isinstance(value, dict):
        raise wrong("format", '"json" or a schema', value)
    return {"response_format": {"type": "json_object", "schema": value}}


def refuse_images(value: Any, where: str) -> None:
    if value:
        raise unsupported(f"{where}images", f"`{where}images`: this model has no eyes")


def _thinking(fields: Fields, service: Service) -> dict[str, Any]:
    think = fields.take("think")
    if think is None:
        return {}
    if not isinstance(think, bool) and think not in EFFORTS:
        raise wrong("think", f"true, false or one of {', '.join(EFFORTS)}", think)
    template, tokenizer = service.engine.template.template, service.engine.tokenizer
    if think and not reasoning.thinks(template, tokenizer.control_tokens):
        raise invalid("think", f'"{service.model}" does not support thinking')
    effort = {"reasoning_effort": think} if isinstance(think, str) else {}
    return {"chat_template_kwargs": {"enable_thinking": bool(think)}, **effort}


def _message(message: Any, where: str) -> Any:
    if not isinstance(message, dict):
        raise wrong(where, "an object with role and content", message)
    refuse_images(message.get("images"), f"{where}.")
    renamed = {"tool_name": "name"}
    return {renamed.get(k, k): v for k, v in message.items() if k != "images"}


# ---- answers -------------------------------------------------------------------------------------


def stamped(service: Service, created: float | None = None) -> dict[str, Any]:
    """Return what every object of a reply begins with."""
    return {"model": tag(service), "created_at": rfc3339(created)}


def durations(generation: Generation, seconds: float) -> dict[str, int]:
    """Return counts, and nanoseconds: of all, of loading, of prompt and reply."""
    s = generation.stats
    return {
        "total_duration": _nanoseconds(seconds),
        "load_duration": 0,
        "prompt_eval_count": s.prompt_tokens,
        "prompt_eval_duration": _nanoseconds(s.prefill_seconds),
        "eval_count": s.generated_tokens,
        "eval_duration": _nanoseconds(s.decode_seconds),
    }


def tool_calls(turn: Turn) -> list[dict[str, Any]]:
    """Return the calls of a turn that are whole, with their arguments as objects."""
    found = []
    for index, call in enumerate(turn.calls):
        try:
            arguments = json.loads(call.arguments)
        except ValueError:  # the reply was cut off within it
            continue
        function = {"index": index, "name": call.name, "arguments": arguments}
        found.append({"id": call.id, "function": function})
    return found


def described(service: Service) -> dict[str, Any]:
    """Return the model as lists of models have it."""
    return {
        "name": tag(service),
        "model": tag(service),
        "modified_at": rfc3339(service.created),
        "size": service.engine.memory.weights,
        "digest": hashlib.sha256(service.fingerprint.encode()).hexdigest(),
        "details": details(service),
        "capabilities": capabilities(service),
    }


def details(service: Service) -> dict[str, Any]:
    engine = service.engine
    family = engine.config.model_type
    return {
        "parent_model": "",
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": _short(engine.num_parameters),
        "quantization_level": engine.weight_formats[0].upper(),
    }


def model_info(service: Service) -> dict[str, Any]:
    """Return the model's numbers under GGUF's keys."""
    engine, c = service.engine, service.engine.config
    arch = c.model_type
    return {
        "general.architecture": arch,
        "general.parameter_count": engine.num_parameters,
        f"{arch}.context_length": engine.context,
        f"{arch}.embedding_length": c.hidden_size,
        f"{arch}.block_count": c.num_hidden_layers,
        f"{arch}.feed_forward_length": c.intermediate_size,
        f"{arch}.attention.head_count": c.num_attention_heads,
        f"{arch}.attention.head_count_kv": c.num_key_value_heads,
        f"{arch}.rope.freq_base": c.rope_theta,
        f"{arch}.vocab_size": c.vocab_size,
    }


def capabilities(service: Service) -> list[str]:
    engine = service.engine
    found = ["completion", "embedding"]
    try:
        service.tool_format  # noqa: B018
        found.append("tools")
    except ValueError:
        pass
    if infill_markers(engine) is not None:
        found.append("insert")
    if reasoning.thinks(engine.template.template, engine.tokenizer.control_tokens):
        found.append("thinking")
    return found


def parameters(values: Mapping[str, Any]) -> str:
    """Return sampling defaults as a Modelfile has them."""
    return "\n".join(f"{name:<30} {value}" for name, value in values.items() if value is not None)


def tag(service: Service) -> str:
    return service.model if ":" in service.model else f"{service.model}:latest"


def rfc3339(seconds: float | None = None) -> str:
    moment = datetime.fromtimestamp(time.time() if seconds is None else seconds, timezone.utc)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _nanoseconds(seconds: float) -> int:
    return round(1e9 * seconds)


def _short(count: int) -> str:
    """Return a number of parameters as model names have it."""
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= size:
            return f"{count / size:.2f}".rstrip("0").rstrip(".") + letter
    return str(count)
