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


# What a field means, wherever it is read.
MEANINGS: Mapping[str, str] = {
    "messages": "The conversation so far, the newest message last. One that ends in the middle of "
    "the assistant's turn is gone on with.",
    "tools": "Functions that the reply may call.",
    "tool_choice": "Whether it may (`auto`), must (`required`, a function) or must not (`none`).",
    "parallel_tool_calls": "Allow several calls in one reply; true by default.",
    "chat_template_kwargs": "Variables of the chat template, such as `enable_thinking`.",
    "reasoning_effort": "How much to think, where the chat template reads it.",
    "reasoning_format": "`none` leaves the thought in the text; else it is `reasoning_content`.",
    "truncation": "`oldest_turns` drops old turns where the prompt does not fit, which is an error "
    "otherwise.",
    "model": "Any name; with `--strict` it must be the one that is served.",
    "stream": "Send the answer piece by piece, as it comes.",
    "stream_options": "`include_usage`: a last chunk with the counts of tokens.",
    "return_progress": "Tell in a stream how far the prompt is read.",
    "timings_per_token": "Send the timings so far with each chunk.",
    "priority": "`background` lets others go first.",
    "temperature": "Divides the logits; 0 takes the likeliest token.",
    "top_p": "Keep the likeliest tokens until they have this share; 1: all.",
    "top_k": "Keep so many of the likeliest; 0: all.",
    "min_p": "Keep what has this share of the best's chance; 0: all.",
    "typical_p": "Keep tokens of the most expected surprise until they have this share; 1: all.",
    "repetition_penalty": "Above 1 makes tokens that are in the text less likely. Also "
    "`repeat_penalty`.",
    "presence_penalty": "Taken from the logits of tokens that were generated.",
    "frequency_penalty": "The same, as often as they were generated.",
    "repeat_last_n": "How many tokens the three penalties look back; -1: all, 0: none.",
    "dry_multiplier": "How much to mind repeated passages; 0: not at all.",
    "dry_base": "How much more for each token that they are longer.",
    "dry_allowed_length": "Shorter passages may be repeated freely.",
    "dry_penalty_last_n": "How many tokens DRY looks back; -1: all, 0: none.",
    "dry_sequence_breakers": "Texts; a passage does not reach over a token with one in it.",
    "xtc_probability": "How often to exclude the top choices; 0: never.",
    "xtc_threshold": "The chance from which a token is a top choice.",
    "logit_bias": "Token id → added to its logit; -100 bans it.",
    "seed": "The same seed gives the same text. Without one, or with -1, one is drawn, and the "
    "answer says which.",
    "stop": "Texts before which the answer ends.",
    "ignore_eos": "Go on where the model would end.",
    "response_format": "The form that the text must have; OpenAI's.",
    "json_schema": "The text must be JSON that this schema allows.",
    "regex": "The text must match this expression as a whole.",
    "grammar": "The text must be derived by this grammar, Lark or GBNF.",
    "n": "So many answers, each its own draw.",
    "best_of": "The same as `n`, or nothing.",
    "max_tokens": "The longest answer; -1: to the end of the context.",
    "max_completion_tokens": "As `max_tokens`, and goes before it.",
    "prediction": "What the answer is expected to be like: it comes faster if it is, and is the "
    "same either way.",
    "speculation": "How many tokens to guess ahead; it changes the speed, and no token.",
    "logprobs": "Log probabilities of the tokens: whether, or of so many likely ones.",
    "top_logprobs": "So many likely tokens at each place.",
    "prompt": "The text, or its ids, or a list of either: with `n`, at most 80 texts.",
    "suffix": "What comes after the text, for models that fill in.",
    "echo": "Begin the answer with the prompt.",
    "input": "A text, its ids, or a list of either.",
    "encoding_format": "Numbers, or base64 of little-endian float32.",
    "dimensions": "The first so many of a vector, made of length 1 again.",
    "pooling": "How the states of the tokens become one vector.",
    "content": "The text.",
    "add_special": "Begin with the token that begins texts, if the model has one.",
    "parse_special": "Let control tokens in the text count; true by default.",
    "with_pieces": "Give the text of each token with it.",
    "tokens": "Token ids.",
    "id": "Letters and digits of your choice; what is there under it is brought up to date.",
    "title": "What the list shows.",
    "system": "The system message.",
    "format": "The form that the text must have: `json`, or a schema. Of an import, its own name.",
    "version": "Of the format of the export.",
    "conversations": "As an export has them.",
    "is_pinned": "Pinned ones come first in the list.",
    "leaf": "The message at the end of the branch that was looked at last.",
    "parent": "The message before it; null for the first.",
    "role": "Whose message it is.",
    "status": "Whether it is whole, being written, or was cut off.",
    "finish_reason": "Why the reply ended, as the chat request said.",
    "figures": "What it took: times and counts, kept as they are.",
    "verbose": "Makes no difference.",
    "options": "The sampling fields, by Ollama's names; those about loading are ignored.",
    "think": "Whether the model should think first, and how hard.",
    "keep_alive": "Ignored: the model stays loaded.",
    "raw": "Continue the prompt without the template.",
    "truncate": "Cut what does not fit, which is an error otherwise.",
}


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
    "dry_multiplier": _number(0, 100),
    "dry_base": _number(1, 100),
    "dry_allowed_length": _integer(1, 2**31 - 1),
    "dry_penalty_last_n": _COUNT,
    "dry_sequence_breakers": _list(TEXT),
    "xtc_probability": _number(0, 1),
    "xtc_threshold": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
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
    explained = {
        name: {**schema, "description": MEANINGS[name]} for name, schema in properties.items()
    }
    content = {"application/json": {"schema": _object(*required, **explained)}}
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
