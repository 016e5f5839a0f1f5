"""What requests look like, for `/openapi.json`: the fields that are read, by endpoint.

Routes check fields themselves, and say more than a schema can; this describes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferno.options import MAX_LOGPROBS, MAX_SEED
from inferno.server.conversations import (
    FORMAT,
    FORMAT_VERSION,
    ID,
    MAX_TEXT,
    MAX_TITLE,
    ROLES,
    STATUSES,
)
from inferno.server.embedding import MAX_INPUTS
from inferno.server.messages import MAX_MESSAGES
from inferno.server.sampling import MAX_CHOICES, MAX_STOP_CHARACTERS, MAX_STOPS
from inferno.server.tools import CHOICES, MAX_TOOLS
from inferno.tool_calls import NAME

Schema = Mapping[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
IDS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}}


def _number(low: float, high: float) -> Schema:
    return {"type": "number", "minimum": low, "maximum": high}


def _integer(low: int, high: int) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _either(*schemas: Schema) -> Schema:
    return {"anyOf": list(schemas)}


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


_COUNT = _integer(-1, 2**31 - 1)
_STOP = {"type": "string", "maxLength": MAX_STOP_CHARACTERS}

SAMPLING: Mapping[str, Schema] = {
    "temperature": _number(0, 100),
    "top_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "top_k": _integer(0, 2**31 - 1),
    "min_p": _number(0, 1),
    "typical_p": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    "repetition_penalty": _number(0.01, 100),
    "presence_penalty": _number(-100, 100),
    "frequency_penalty": _number(-100, 100),
    "repeat_last_n": _COUNT,
    "logit_bias": {"type": "object", "additionalProperties": _number(-100, 100)},
    "seed": _integer(-(2**63), MAX_SEED),
    "stop": _either(_STOP, _list(_STOP, maxItems=MAX_STOPS)),
    "ignore_eos": FLAG,
}
FORM: Mapping[str, Schema] = {
    "response_format": _object(
        "type",
        type={"enum": ["text", "json_object", "json_schema"]},
        json_schema=_object("schema", name=TEXT, schema=OBJECT, strict=FLAG),
        schema=OBJECT,
    ),
    "json_schema": OBJECT,
    "regex": TEXT,
    "grammar": TEXT,
}
DELIVERY: Mapping[str, Schema] = {
    "model": TEXT,
    "stream": FLAG,
    "stream_options": _object(include_usage=FLAG),
    "return_progress": FLAG,
    "timings_per_token": FLAG,
    "priority": {"enum": ["interactive", "background"]},
}
GENERATION: Mapping[str, Schema] = {
    **DELIVERY,
    **SAMPLING,
    **FORM,
    "n": _integer(1, MAX_CHOICES),
    "max_tokens": _COUNT,
    "prediction": _object("type", "content", type={"const": "content"}, content=TEXT),
    "speculation": _either({"enum": ["auto", "off"]}, _integer(1, 16)),
}
CALL = _object(
    "function",
    id=TEXT,
    type={"const": "function"},
    function=_object("name", "arguments", name=TEXT, arguments=_either(TEXT, OBJECT)),
)
MESSAGE = _object(
    "role",
    "content",
    role={"enum": ["system", "developer", "user", "assistant", "tool"]},
    content=_either(TEXT, _list(_object("type", "text", type={"const": "text"}, text=TEXT))),
    name=TEXT,
    tool_calls=_list(CALL),
    tool_call_id=TEXT,
)
TOOL = _object(
    "type",
    "function",
    type={"const": "function"},
    function=_object(
        "name",
        name={"type": "string", "pattern": f"^{NAME.pattern}$"},
        description=TEXT,
        parameters=OBJECT,
        strict=FLAG,
    ),
)
PROMPT: Mapping[str, Schema] = {
    "messages": _list(MESSAGE, minItems=1, maxItems=MAX_MESSAGES),
    "tools": _list(TOOL, maxItems=MAX_TOOLS),
    "tool_choice": _either({"enum": list(CHOICES)}, TOOL),
    "chat_template_kwargs": OBJECT,
    "reasoning_effort": TEXT,
    "truncation": {"enum": ["disabled", "auto", "oldest_turns"]},
}
INPUTS = _either(TEXT, IDS, _list(_either(TEXT, IDS), maxItems=MAX_INPUTS))
OPTIONS = _object(**SAMPLING, num_predict=_integer(-2, 2**31 - 1), num_ctx=_integer(1, 2**31 - 1))
OLLAMA: Mapping[str, Schema] = {
    "model": TEXT,
    "stream": FLAG,
    "format": _either({"const": "json"}, OBJECT),
    "options": OPTIONS,
    "think": _either(FLAG, {"enum": ["low", "medium", "high", "max"]}),
    "keep_alive": _either(TEXT, {"type": "number"}),
    "logprobs": FLAG,
    "top_logprobs": _integer(0, MAX_LOGPROBS),
}


def _body(*required: str, **properties: Schema) -> dict[str, Any]:
    """Return what a route says of its body, as `openapi_extra`."""
    content = {"application/json": {"schema": _object(*required, **properties)}}
    return {"requestBody": {"required": True, "content": content}}


CHAT_COMPLETIONS = _body(
    "messages",
    **PROMPT,
    **GENERATION,
    max_completion_tokens=_COUNT,
    parallel_tool_calls=FLAG,
    logprobs=FLAG,
    top_logprobs=_integer(0, MAX_LOGPROBS),
    reasoning_format={"enum": ["auto", "deepseek", "none"]},
)
COMPLETIONS = _body(
    "prompt",
    **GENERATION,
    prompt=_either(TEXT, IDS, _list(_either(TEXT, IDS))),
    suffix=TEXT,
    echo=FLAG,
    best_of=_integer(1, MAX_CHOICES),
    logprobs=_integer(0, MAX_LOGPROBS),
)
EMBEDDINGS = _body(
    "input",
    model=TEXT,
    input=INPUTS,
    encoding_format={"enum": ["float", "base64"]},
    dimensions=_integer(1, 2**31 - 1),
    pooling={"enum": ["mean", "last", "cls"]},
)
COMPOSE = _body("messages", **PROMPT, model=TEXT)
TOKENIZE = _body(content=TEXT, prompt=TEXT, add_special=FLAG, parse_special=FLAG, with_pieces=FLAG)
DETOKENIZE = _body("tokens", tokens=IDS)
OLLAMA_CHAT = _body(**OLLAMA, messages=_list(MESSAGE), tools=_list(TOOL))
OLLAMA_GENERATE = _body(**OLLAMA, prompt=TEXT, suffix=TEXT, system=TEXT, raw=FLAG)
OLLAMA_EMBED = _body(
    "input",
    model=TEXT,
    input=INPUTS,
    truncate=FLAG,
    dimensions=_integer(1, 2**31 - 1),
)
OLLAMA_EMBEDDINGS = _body("prompt", model=TEXT, prompt=TEXT)
OLLAMA_SHOW = _body(model=TEXT, verbose=FLAG)

_ID: Schema = {"type": "string", "pattern": f"^{ID.pattern}$"}
_TITLE: Schema = {"type": "string", "maxLength": MAX_TITLE}
_GROWING: Mapping[str, Schema] = {
    "content": {"type": "string", "maxLength": MAX_TEXT},
    "status": {"enum": list(STATUSES)},
    "finish_reason": {"type": "string", "maxLength": 64},
    "figures": OBJECT,
}
_MESSAGE: Mapping[str, Schema] = {
    "id": _ID,
    "parent": _either(_ID, {"type": "null"}),
    "role": {"enum": list(ROLES)},
    **_GROWING,
}
CONVERSATION = _body(id=_ID, title=_TITLE, system=TEXT)
CONVERSATION_CHANGE = _body(title=_TITLE, is_pinned=FLAG, system=TEXT, leaf=_ID)
CONVERSATION_MESSAGE = _body("role", "content", **_MESSAGE)
CONVERSATION_MESSAGE_CHANGE = _body(**_GROWING)
CONVERSATIONS_IMPORT = _body(
    "format",
    "version",
    "conversations",
    format={"const": FORMAT},
    version={"const": FORMAT_VERSION},
    conversations=_list(
        _object(
            "messages",
            id=_ID,
            title=_TITLE,
            is_pinned=FLAG,
            system=TEXT,
            leaf=_either(_ID, {"type": "null"}),
            messages=_list(_object("role", "content", **_MESSAGE)),
        )
    ),
)
